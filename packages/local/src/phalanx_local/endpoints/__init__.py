"""Requests over HTTP, from the path to the encoded answer."""

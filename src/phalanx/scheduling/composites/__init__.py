"""Placing groups of groups."""

"""Warnings about declarations, as one event per change on the object."""

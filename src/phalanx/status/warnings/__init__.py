"""Warnings about declarations of users, recorded as one event per change on the declaring object."""

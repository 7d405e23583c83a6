"""Bugs that the soak must find: `python -m tests.soak --mutations`."""

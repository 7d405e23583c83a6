"""Dry runs behind the page, in a separate process."""

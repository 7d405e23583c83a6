"""Rows of the page's tables, one module per kind of row."""

"""Commands that list nodes and make room on them."""

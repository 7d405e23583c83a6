"""Commands that look at nodes, and that make room on them."""

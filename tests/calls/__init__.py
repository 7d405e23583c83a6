"""Function calls of the main paths, compared with a committed table: growth shows without a clock."""

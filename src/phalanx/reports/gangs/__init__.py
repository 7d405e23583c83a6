"""One-line entries of gangs, for all dialects."""

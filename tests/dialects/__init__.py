"""The dialects, specified."""

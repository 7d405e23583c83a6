"""Findings about another scheduler's objects, per object and field."""

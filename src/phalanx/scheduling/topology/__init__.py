"""Placing members close to each other."""

"""A cluster on one machine, and worked scenarios that run on it."""

"""Local cluster on one machine, and demo scenarios that run on it."""

"""Submitting jobs, looking at them, and telling them what to do."""

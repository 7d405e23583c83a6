"""Collecting: a gang that waits too long reserves room as it comes free, even where run times are unknown."""

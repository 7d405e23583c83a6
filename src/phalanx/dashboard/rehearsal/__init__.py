"""Dry runs ("rehearsals") of the scheduler for the page, in a separate process."""

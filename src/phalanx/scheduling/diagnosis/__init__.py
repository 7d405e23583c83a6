"""Why something is not placed: counts, one dominant reason, and the smallest change that would help."""

"""One cycle: what is asked and decided in it, and what is remembered for the next."""

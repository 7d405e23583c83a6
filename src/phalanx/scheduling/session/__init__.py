"""State of one cycle, its decisions, and the state that is preserved for the next cycle."""

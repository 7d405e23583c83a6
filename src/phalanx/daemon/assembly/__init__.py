"""Construction of the scheduler process: a builder for each group of parts, and the registry of parts."""

"""Which nodes are close to each other."""

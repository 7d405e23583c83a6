"""Features of the cycle, each a `CyclePlugin`."""

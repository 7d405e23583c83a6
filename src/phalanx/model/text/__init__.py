"""Text that somebody else wrote: JSON, YAML, numbers, quantities, durations and patterns, read within limits."""

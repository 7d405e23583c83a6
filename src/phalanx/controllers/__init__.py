"""Controllers: what keeps jobs, groups and queues going, beside the scheduler. One process, one leader."""

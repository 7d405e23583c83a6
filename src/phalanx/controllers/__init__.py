"""Controllers of jobs, groups and queues, beside the scheduler. One process with one leader."""

"""Controllers of Volcano jobs, PodGroups and queues, beside the scheduler: one process with one leader."""

"""Which devices a resource claim gets: pure, deterministic, free of scheduling and IO.

The rules are those of kube-scheduler's structured allocator (1.36): pools by driver and name, slices and devices as
they are published, the first combination that satisfies every request wins.
"""

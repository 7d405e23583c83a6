"""Allocation of devices to ResourceClaims: pure, deterministic, independent of scheduling and I/O.

The rules are those of kube-scheduler's structured allocator (1.36): pools by driver and name, slices and devices in
published order; the first combination that satisfies every request is chosen.
"""

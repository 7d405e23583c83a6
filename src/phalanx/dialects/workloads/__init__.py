"""Pods that operators make, grouped without a group object: by their owners' kinds (docs/workloads.md)."""

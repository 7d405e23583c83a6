"""Devices: shared GPUs and similar cards, NUMA nodes, resource claims."""

"""Devices: shared cards, NUMA nodes, resource claims."""

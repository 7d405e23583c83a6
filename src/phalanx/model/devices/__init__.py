"""Devices: cards and their parts, NUMA nodes, claims."""

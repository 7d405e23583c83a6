"""Gangs of pods that operators create without a group object, by kind of owner (docs/workloads.md)."""

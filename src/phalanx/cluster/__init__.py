"""The cluster as arrays: node tables, pods, gangs, and transactions over them. Without I/O, and deterministic."""

"""The cluster as arrays: node tables, pods, gangs, and transactions over them. Sans-IO and deterministic."""

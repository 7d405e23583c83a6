"""Quorums, subgroups, gang groups and priorities of gangs."""

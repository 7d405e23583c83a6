"""Pairs of features in one cluster: start, wait, eviction and restart (decisions/042)."""

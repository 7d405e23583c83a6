"""Preemption and reclaim: eviction rules, eviction costs, and the search for the cheapest victims."""

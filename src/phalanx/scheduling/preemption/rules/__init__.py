"""The rules of eviction: who may take from whom, who may not go, and how many."""

"""Who may be evicted for whom, and at what cost."""

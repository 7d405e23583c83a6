"""Who has the next turn: queues, then tenants, then jobs, then members above the minimum."""

"""Order of turns: queues, then tenants, then jobs, then surplus members; and queues' shares behind it."""

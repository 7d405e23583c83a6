"""Commands about queues, quotas and what was used."""

"""Commands about queues and quotas, and about past usage."""

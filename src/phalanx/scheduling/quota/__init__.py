"""Quotas: limits of queues and quotas, the queue tree, usage history and the computation of shares."""

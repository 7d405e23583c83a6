"""Quotas: limits of accounts, the queue tree, usage history and the computation of shares."""

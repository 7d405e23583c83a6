"""Queues and quotas of every dialect as accounts."""

"""Queues and quotas of every family as accounts."""

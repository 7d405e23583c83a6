"""Queues and quotas of every dialect as `Account`s."""

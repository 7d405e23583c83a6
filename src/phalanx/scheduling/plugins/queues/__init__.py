"""Plugins for queues, quotas and fair shares."""

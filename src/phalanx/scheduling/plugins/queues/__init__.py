"""Plugins with an opinion on queues, quotas and fair shares."""

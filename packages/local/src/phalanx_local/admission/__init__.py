"""Admission beyond the strategy of a kind: quotas, runtime classes, policies and webhooks."""

"""Eviction rules: reclaim between queues and quotas, protection of pods, gang quorums and limits."""

"""Publication of scheduling results in the cluster: status of groups, queues and quotas, conditions and events."""

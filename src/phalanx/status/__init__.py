"""What is told in the cluster: the status of groups, queues and quotas, conditions and events."""

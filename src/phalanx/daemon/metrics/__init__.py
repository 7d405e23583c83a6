"""What Prometheus reads that is counted from the state of the cluster when it asks."""

"""Scheduler process: observes the cluster, plans, and writes the plan to the API server."""

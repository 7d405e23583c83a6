"""Prometheus metrics, most of them computed from the state of the cluster per scrape."""

"""Volumes: what pods name, and what claims, classes, drivers and attachments decide."""

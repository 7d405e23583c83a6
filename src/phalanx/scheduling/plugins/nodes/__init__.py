"""Plugins with an opinion on nodes: filters and scores."""

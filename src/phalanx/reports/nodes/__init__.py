"""Nodes of a cluster for lists: state, free resources, and reasons why a node is closed."""

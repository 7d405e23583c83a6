"""Nodes of a cluster: state, free amounts, and reasons why a node is closed."""

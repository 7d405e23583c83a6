"""The node agent, specified."""

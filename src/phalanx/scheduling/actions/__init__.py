"""scheduling/actions."""

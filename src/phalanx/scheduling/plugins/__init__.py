"""scheduling/plugins."""

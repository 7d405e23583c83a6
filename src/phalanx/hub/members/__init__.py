"""Member clusters: their objects, credentials and connections."""

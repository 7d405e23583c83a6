"""HTTP/1.1 to one API server: connections, their settings, requests and responses."""

"""Address of an API server and the credentials for its requests."""

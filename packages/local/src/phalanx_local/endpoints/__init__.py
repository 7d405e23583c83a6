"""HTTP requests, from the path to the encoded response."""

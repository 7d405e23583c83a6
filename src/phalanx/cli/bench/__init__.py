"""`phalanx bench`: how fast pods are bound through an API server, beside the server's own ceiling."""

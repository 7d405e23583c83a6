"""Command `phalanx bench`: pods bound per second through an API server, compared with the server's limit."""

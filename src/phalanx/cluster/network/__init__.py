"""Network topology: the proximity of nodes."""

"""What `phalanx install` writes into a cluster, and the command."""

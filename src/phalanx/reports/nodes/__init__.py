"""The nodes of a cluster: what they do, what is free, and why one is not used."""

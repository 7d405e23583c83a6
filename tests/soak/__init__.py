"""Long random lives of a cluster, in virtual time: `make soak`."""

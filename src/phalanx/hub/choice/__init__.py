"""Choice of the cluster of each gang: questions to clusters, the order of gangs, and recalls."""

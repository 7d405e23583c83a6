"""Choice of the member cluster for each gang: forecasts in clusters, the order of gangs, and recalls."""

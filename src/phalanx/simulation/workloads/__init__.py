"""Sources of simulated jobs: logs of batch systems, traces of clusters, descriptions in YAML."""

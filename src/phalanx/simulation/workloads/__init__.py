"""Where simulated jobs come from: logs of batch systems, traces of clusters, descriptions in YAML."""

"""Many clusters: a gang that is submitted at the hub goes whole to one member cluster."""

"""Hub of many clusters: dispatches each submitted gang as a whole to one member cluster."""

"""Where the pods of one class go: masks, scores, spread and affinity, topology domains."""

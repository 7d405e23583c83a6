"""Placement of pods of one class: filter masks, scores, spread and affinity, topology domains."""

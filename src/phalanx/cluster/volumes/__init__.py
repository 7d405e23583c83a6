"""Volumes: the requirements of pods, and the supply of nodes."""

"""Diagnosis of gangs and pods that were not placed: counts of nodes, one dominant reason, and the smallest change
that helps."""

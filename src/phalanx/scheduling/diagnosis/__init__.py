"""Diagnosis of units that were not placed: counts, one dominant reason, and the smallest change that helps."""

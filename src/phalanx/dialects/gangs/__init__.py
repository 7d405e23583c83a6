"""Combination of what pods and objects declare about a gang into one `Gang`, and the status of its PodGroup."""

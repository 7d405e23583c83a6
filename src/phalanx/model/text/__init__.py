"""Text from users and other programs: JSON, YAML, numbers, quantities, durations and patterns, parsed within
limits.
"""

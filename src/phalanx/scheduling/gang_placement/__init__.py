"""Placement of gangs: all members that a gang needs, within its topology, or none."""

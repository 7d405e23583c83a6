"""Placing what starts together: all members that a gang needs, near each other where they ask for it, or none."""

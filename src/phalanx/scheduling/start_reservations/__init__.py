"""Starts that are reserved for units that wait, and advance reservations, as a feature of the cycle."""

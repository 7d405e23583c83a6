"""Advance reservations: reading of their objects, and their effect on pods."""

"""Advance reservations: decoding of their objects, and their effect on pods."""

"""Advance reservations: what their objects say, and what they mean for pods."""

"""Reservations: free room over time, start reservations of waiting units, and advance reservations."""

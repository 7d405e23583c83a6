"""Start reservations and advance reservations as a feature of the cycle."""

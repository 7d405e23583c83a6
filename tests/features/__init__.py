"""Runs of the suite that leave one feature of the cycle out."""

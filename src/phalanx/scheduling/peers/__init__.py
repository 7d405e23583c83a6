"""Placing pods that mind where others are."""

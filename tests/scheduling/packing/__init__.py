"""Packing of small clusters in one cycle, compared with an exact solver."""

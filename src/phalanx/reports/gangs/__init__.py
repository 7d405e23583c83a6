"""Gangs of a cluster one line each, whichever dialect declares them."""

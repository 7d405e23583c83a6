"""Gangs of all APIs as entries of a list, one line each."""

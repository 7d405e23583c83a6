"""Simulation: the real scheduler in virtual time, with workloads and clusters as input and metrics as output."""

"""Devices that pods claim, share, or get with their CPUs."""

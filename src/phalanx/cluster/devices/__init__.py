"""Devices that pods claim, share, or receive with their CPUs."""

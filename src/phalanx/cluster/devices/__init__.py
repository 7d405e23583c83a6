"""Devices that pods request by ResourceClaim, share, or receive with their CPUs."""

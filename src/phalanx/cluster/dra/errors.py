"""Errors in the device requests of a ResourceClaim."""

from __future__ import annotations


class SelectorError(ValueError):
    """CEL expression that is invalid, or that failed for a device."""

"""What can be wrong with what a claim asks for."""

from __future__ import annotations


class SelectorError(ValueError):
    """An expression that is not legal, or that failed for a device."""

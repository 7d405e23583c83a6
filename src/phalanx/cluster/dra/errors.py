"""Errors in the requests of a claim."""

from __future__ import annotations


class SelectorError(ValueError):
    """Expression that is invalid, or that failed for a device."""

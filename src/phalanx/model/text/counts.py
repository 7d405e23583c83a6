"""Numbers with their noun in messages, in singular and plural."""

from __future__ import annotations

from collections.abc import Sequence


def count_of(number: int, noun: str) -> str:
    """Format a number with its noun: `1 pod` or `2 pods`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def first_of(names: Sequence[str], limit: int) -> str:
    """Format the first names as a list, and how many more there are."""
    shown, more = ", ".join(names[:limit]), len(names) - limit
    return f"{shown} and {more} more" if more > 0 else shown

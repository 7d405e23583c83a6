"""Errors in the input of a simulation."""

from __future__ import annotations


class InputError(Exception):
    """Invalid input; the message names the file, the line or field, and the expected value."""

"""What is wrong with what a simulation was given."""

from __future__ import annotations


class InputError(Exception):
    """The message names the file, the line or field, and what to write instead."""

"""Errors of a policy."""

from __future__ import annotations


class PolicyError(Exception):
    """Invalid policy. The message names the plugin, action or argument and the accepted values."""

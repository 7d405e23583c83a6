"""What can be wrong with a policy."""

from __future__ import annotations


class PolicyError(Exception):
    """A policy that cannot be used; the text names the plugin, action or argument and what to write instead."""

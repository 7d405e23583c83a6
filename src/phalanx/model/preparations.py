"""What has to be written to the API before a pod can be bound."""

from __future__ import annotations

import msgspec


class Preparation(msgspec.Struct, frozen=True):
    """One write, or one wait, without which a pod must not be bound. Kinds of it are subclasses; each has one
    handler in `execution/`."""

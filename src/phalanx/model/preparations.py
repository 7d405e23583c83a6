"""Preparations: writes to the API that must precede the binding of a pod."""

from __future__ import annotations

import msgspec


class Preparation(msgspec.Struct, frozen=True):
    """Write to the API, or wait, that must precede the binding of a pod. Each subclass has one handler in
    `execution/`."""

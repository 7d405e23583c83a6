"""Measured usage of nodes."""

from __future__ import annotations

import msgspec


class NodeLoad(msgspec.Struct, frozen=True):
    """Measured usage of one node: millicores and bytes in use, averaged over the last minutes."""

    node: str
    cpu: int
    memory: int

"""What nodes really use, as measured on them."""

from __future__ import annotations

import msgspec


class NodeLoad(msgspec.Struct, frozen=True):
    """One node's load: thousandths of a core and bytes in use, averaged over the last minutes."""

    node: str
    cpu: int
    memory: int

"""Steps of a cluster that can be drawn, recorded and replayed."""

from __future__ import annotations

from typing import Any

import msgspec

RACK, HOSTNAME = "topology.kubernetes.io/rack", "kubernetes.io/hostname"


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step: its target and its details. A step whose target no longer exists is skipped."""

    what: str
    name: str = ""
    how: dict[str, Any] = {}

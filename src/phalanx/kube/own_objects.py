"""What tells the objects that the scheduler and its installer make from everybody else's."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

LABELS: Mapping[str, str] = MappingProxyType(
    {"app.kubernetes.io/name": "phalanx", "app.kubernetes.io/managed-by": "phalanx"}
)

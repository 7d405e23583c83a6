"""What tells the objects that the scheduler and its installer make from everybody else's."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

LABELS: Mapping[str, str] = MappingProxyType(
    {"app.kubernetes.io/name": "phalanx", "app.kubernetes.io/managed-by": "phalanx"}
)

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def name_prefix(scheduler_names: Sequence[str]) -> str:
    """What the names of a scheduler's lease and of its ConfigMaps begin with: its first name.

    So two schedulers of one cluster share neither, and two replicas of one share both. Pods may name a scheduler in
    letters that no object's name may have; then a hash tells such names apart.
    """
    first = scheduler_names[0]
    if _NAME.fullmatch(first):
        return first
    # As charts/phalanx/templates/_names.tpl has it.
    digest = hashlib.sha256(first.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    readable = re.sub(r"[^a-z0-9]+", "-", first.lower())[:50].strip("-")
    return f"{readable}-{digest}" if readable else f"phalanx-{digest}"


def default_lease(scheduler_names: Sequence[str]) -> str:
    """The lease of a scheduler's replicas; `phalanx-scheduler` by default."""
    return f"{name_prefix(scheduler_names)}-scheduler"

"""Names and labels of the objects that the scheduler and its installer create."""

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
    """Return the prefix for the names of a scheduler's lease and ConfigMaps: its first scheduler name.

    Two schedulers of one cluster have different prefixes, two replicas of one the same. A scheduler name can have
    characters that are invalid in names of objects; then the prefix contains a hash of the name.
    """
    first = scheduler_names[0]
    if _NAME.fullmatch(first):
        return first
    # charts/phalanx/templates/_names.tpl computes the same name.
    digest = hashlib.sha256(first.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    readable = re.sub(r"[^a-z0-9]+", "-", first.lower())[:50].strip("-")
    return f"{readable}-{digest}" if readable else f"phalanx-{digest}"


def default_lease(scheduler_names: Sequence[str]) -> str:
    """Return the name of the Lease of a scheduler's replicas; `phalanx-scheduler` by default."""
    return f"{name_prefix(scheduler_names)}-scheduler"

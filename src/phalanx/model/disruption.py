"""PodDisruptionBudgets: how many pods of an application may be taken away at the moment."""

from __future__ import annotations

import msgspec


class DisruptionBudget(msgspec.Struct, frozen=True):
    """`allowed` is what the disruption controller grants now (status.disruptionsAllowed, 0 while it has not
    spoken). `disrupted` are the names of pods whose eviction it has granted already: they cost nothing more.
    """

    namespace: str
    name: str
    allowed: int = 0
    disrupted: frozenset[str] = frozenset()

"""Disruption budgets: pods of an application or gang that can be evicted now."""

from __future__ import annotations

import msgspec


class DisruptionBudget(msgspec.Struct, frozen=True):
    """PodDisruptionBudget; `allowed` is status.disruptionsAllowed (0 until the disruption controller sets it).

    `disrupted` contains pods with a granted eviction: evicting them again is free.
    """

    namespace: str
    name: str
    allowed: int = 0
    disrupted: frozenset[str] = frozenset()


class Portion(msgspec.Struct, frozen=True):
    """Part of a gang's members: a number, or a percentage that is rounded up (Kubernetes' IntOrString)."""

    amount: int
    percent: bool = False

    def of(self, total: int) -> int:
        return -(-self.amount * total // 100) if self.percent else self.amount

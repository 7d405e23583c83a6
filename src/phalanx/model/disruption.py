"""How many pods of an application or of a gang may be taken away at the moment."""

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


class Portion(msgspec.Struct, frozen=True):
    """Some of a gang's members: so many, or so many percent of all, rounded up (Kubernetes' IntOrString)."""

    amount: int
    percent: bool = False

    def of(self, total: int) -> int:
        return -(-self.amount * total // 100) if self.percent else self.amount

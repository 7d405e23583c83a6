"""Which rules about other pods a policy keeps, and how much preferences about them count."""

from __future__ import annotations

import msgspec


class InterPodRules(msgspec.Struct, frozen=True):
    """`spread` and `affinity` tell whether what pods require is kept. The weights say how much a score from 0 to
    100 counts; `hard_weight` is what the required affinity of pods that are there already weighs among preferred
    terms (kube-scheduler's hardPodAffinityWeight).
    """

    spread: bool = False
    affinity: bool = False
    spread_weight: int = 0
    affinity_weight: int = 0
    hard_weight: int = 1

    def __or__(self, other: InterPodRules) -> InterPodRules:
        return InterPodRules(
            self.spread or other.spread,
            self.affinity or other.affinity,
            self.spread_weight + other.spread_weight,
            self.affinity_weight + other.affinity_weight,
            max(self.hard_weight, other.hard_weight),
        )


NO_RULES = InterPodRules()

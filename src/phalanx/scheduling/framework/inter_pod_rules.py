"""Enforced rules about other pods, and weights of preferences about other pods."""

from __future__ import annotations

import msgspec


class InterPodRules(msgspec.Struct, frozen=True):
    """Enforced rules about other pods: `spread` and `affinity` tell whether required terms are enforced. Weights
    are factors of scores from 0 to 100. `hard_weight` is the weight of required affinity of placed pods among
    preferred terms (kube-scheduler's hardPodAffinityWeight)."""

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

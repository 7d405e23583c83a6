"""Draws of steps of single features: composites, suspended jobs, cards, advance reservations, rejected pods."""

from __future__ import annotations

import random
from typing import Any

from phalanx.model.pod import MemberState

from .cluster import SoakCluster
from .steps import Step

RESERVATIONS = ("r", "s")


class FeatureDraws:
    """Part of `Draw`, which has the source of random numbers and the common draws."""

    _random: random.Random

    def _name(self, prefix: str) -> str:
        raise NotImplementedError

    def _asked(self) -> dict[str, Any]:
        raise NotImplementedError

    def _pick(self, cluster: SoakCluster, *states: MemberState) -> str:
        raise NotImplementedError

    def _tree_job(self, cluster: SoakCluster) -> Step:
        """Submit two native gangs of a composite."""
        draw = self._random
        how = {"groups": draw.choice([1, 2, 2]), "members": draw.choice([1, 2]), "unit": draw.random() < 0.5}
        return Step("tree_job", self._name("tree"), how | self._asked())

    def _suspended(self, cluster: SoakCluster) -> Step:
        """Submit a suspended job: its pods are created once its group is admitted."""
        how = {"members": self._random.choice([1, 2, 3])}
        return Step("suspended", self._name("held"), how | self._asked())

    def _cards(self, cluster: SoakCluster) -> Step:
        nodes = sorted(name.removeprefix("node ") for name in cluster.known if name.startswith("node "))
        return Step("cards", self._random.choice(nodes) if nodes else "", {"count": self._random.choice([0, 1, 2])})

    def _reserved(self, cluster: SoakCluster) -> Step:
        """Declare an advance reservation of amounts or of a whole node."""
        draw = self._random
        how: dict[str, Any] = {"start": draw.choice([0, 60, 600]), "length": draw.choice([300, 1000])}
        how |= draw.choice([{"cpu": 2, "count": 2}, {"cpu": 4, "count": 1}, {"node": f"n{draw.randrange(4)}"}])
        how["on_end"] = draw.choice(["evict", "keep"])
        return Step("reserved", draw.choice(RESERVATIONS), how)

    def _unreserved(self, cluster: SoakCluster) -> Step:
        return Step("unreserved", self._random.choice(RESERVATIONS))

    def _user(self, cluster: SoakCluster) -> Step:
        """Submit a pod that uses an advance reservation."""
        use = {"uses": self._random.choice(RESERVATIONS), "inside": self._random.random() < 0.5}
        return Step("user", self._name("user"), self._asked() | use)

    def _hard(self, cluster: SoakCluster) -> Step:
        """Limit the pods of the namespace; a limit far above their number is none."""
        used = sum(not record.pod.placeholder for record in cluster.state.pods.values())
        return Step("hard", how={"pods": used + self._random.choice([0, 1, 2, 4, 1000])})

    def _rejected(self, cluster: SoakCluster) -> Step:
        """Let a kubelet reject a bound pod."""
        return Step("rejected", self._pick(cluster, MemberState.ASSUMED, MemberState.BOUND, MemberState.RUNNING))

    def _terminating(self, cluster: SoakCluster) -> Step:
        """Let the API show an eviction; without a name, all of them."""
        evicted = sorted(uid for uid, record in cluster.state.pods.items() if record.evicting)
        return Step("terminating", self._random.choice(evicted) if evicted and self._random.random() < 0.5 else "")

"""Draws of steps for a cluster as it is at the moment."""

from __future__ import annotations

import random
from typing import Any

from phalanx.model.gang import MatchPolicy
from phalanx.model.pod import MemberState

from .cluster import POLICIES, QUEUES, SoakCluster
from .feature_draws import FeatureDraws
from .steps import HOSTNAME, RACK, Step

NODES, PODS = 8, 60
#: How often each happens, in parts of their sum.
WEIGHTS = {
    "node": 4,
    "no_node": 1,
    "queue": 2,
    "quota": 1,
    "tree": 1,
    "foreign": 1,
    "expects": 1,
    "job": 14,
    "single": 8,
    "grow": 3,
    "minimum": 2,
    "finish": 18,
    "gone": 6,
    "no_gang": 2,
    "confirm": 22,
    "depart": 14,
    "fail": 2,
    "refuse": 2,
    "resize": 2,
    "wait": 16,
    "window": 1,
    "no_window": 1,
    "restart": 1,
    "tree_job": 3,
    "suspended": 3,
    "cards": 2,
    "reserved": 1,
    "unreserved": 1,
    "user": 1,
    "rejected": 2,
    "terminating": 4,
    "hard": 1,
}


class Draw(FeatureDraws):
    """Draws steps from a seed, for a cluster as it is at the moment."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        # Half of the lives have only resource constraints: then every promised start can be met.
        self._minding = seed // len(POLICIES) % 2 == 1
        self._made = 0

    def step(self, cluster: SoakCluster) -> Step:
        what = self._random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if len(cluster.state.pods) > PODS and what in ("job", "single", "grow"):
            what = "gone"
        drawn: Step = getattr(self, f"_{what}")(cluster)
        return drawn

    def _pick(self, cluster: SoakCluster, *states: MemberState) -> str:
        found = sorted(uid for uid, record in cluster.state.pods.items() if record.state in states)
        return self._random.choice(found) if found else ""

    def _gang(self, cluster: SoakCluster) -> str:
        found = sorted(gang.key.name for gang in cluster.state.gangs.values() if gang.spec is not None)
        return self._random.choice(found) if found else ""

    def _name(self, prefix: str) -> str:
        self._made += 1
        return f"{prefix}{self._made:05}"

    def _or_nothing(self, parts: int, *others: dict[str, Any]) -> dict[str, Any]:
        """Return one of the choices, or nothing in that share of the draws."""
        choices: list[dict[str, Any]] = [{}] * parts + list(others)
        return self._random.choice(choices)

    def _asked(self) -> dict[str, Any]:
        draw = self._random
        limit = draw.choice([0, 0, 60, 300, 1000])
        minding: list[dict[str, Any]] = (
            [{"port": 80}, {"away": HOSTNAME}, {"away": RACK}, {"even": RACK}] if self._minding else []
        )
        return {
            "queue": draw.choice(QUEUES),
            "priority": draw.choice([0, 0, 0, 10, 100]),
            "limit": limit,
            **self._or_nothing(8, *minding),
            **self._or_nothing(5, {"own": "preemptable"}, {"own": "cooldown"}, {"own": "allowed"}),
            **self._or_nothing(3, {"quota": "k1"}, {"quota": "k2"}, {"quota": "k2", "own": "firm"}),
            **self._or_nothing(12, {"card": 500}, {"card": 1000}),
            **draw.choice([{"cpu": 1}, {"cpu": 1}, {"cpu": 2}, {"cpu": 1, "gpu": 1}, {"gpu": 2}, {"cpu": 4}]),
        }

    def _node(self, cluster: SoakCluster) -> Step:
        draw, number = self._random, self._random.randrange(NODES)
        how = {"cpu": draw.choice([4, 8]), "gpu": draw.choice([0, 2, 4]), "rack": "xyz"[number % 3]}
        how |= draw.choice([{}, {}, {}, {}, {"unschedulable": True}, {"taint": "odd"}])
        return Step("node", f"n{number}", how)

    def _no_node(self, cluster: SoakCluster) -> Step:
        return Step("no_node", f"n{self._random.randrange(NODES)}")

    def _queue(self, cluster: SoakCluster) -> Step:
        draw = self._random
        how: dict[str, Any] = {"weight": draw.choice([1, 1, 2, 4]), "reclaimable": draw.random() < 0.8}
        for word, chance in (("capability", 0.4), ("deserved", 0.4), ("guarantee", 0.2)):
            if draw.random() < chance:
                least = {"guarantee": 1, "deserved": 4, "capability": 8}[word]
                how[word] = {"cpu": draw.randint(least, least * 3), "gpu": draw.randint(least // 2, least)}
        words: list[dict[str, Any]] = [{"under": "top"}, {"lasting": 60}, {"rate": 2}, {"protects": "none"}]
        how |= self._or_nothing(4, *words, {"fifo": True})
        return Step("queue", draw.choice([*QUEUES, "top"]), how)

    def _tree(self, cluster: SoakCluster) -> Step:
        """Koordinator's, of two quotas."""
        draw, least = self._random, self._random.randint(0, 6)
        how = {"min": {"cpu": least}, "max": {"cpu": least + draw.choice([2, 8, 40])}, "lends": draw.random() < 0.8}
        return Step("tree", draw.choice(["k1", "k2"]), how)

    def _foreign(self, cluster: SoakCluster) -> Step:
        """Return a foreign pod, on a node or nominated for it."""
        draw = self._random
        nodes = [f"n{number}" for number in range(NODES)]
        known = [name for name in nodes if cluster.state.nodes.row(name) >= 0]
        how = {"node": draw.choice(known or nodes), "cpu": draw.choice([1, 3]), "nominated": draw.random() < 0.3}
        return Step("foreign", self._name("foreign"), how)

    def _expects(self, cluster: SoakCluster) -> Step:
        return Step("expects", self._gang(cluster), {"count": self._random.randint(1, 3), **self._asked()})

    def _quota(self, cluster: SoakCluster) -> Step:
        draw, least = self._random, self._random.randint(2, 10)
        return Step("quota", "ns", {"min": {"cpu": least}, "max": {"cpu": least + draw.choice([0, 8, 40])}})

    def _job(self, cluster: SoakCluster) -> Step:
        draw, members = self._random, self._random.choice([1, 2, 2, 3, 4, 6])
        how: dict[str, Any] = {
            "members": members,
            "minimum": draw.choice([members, members, max(1, members - 1), 1]),
        }
        near = draw.choice(["", "", "", "hard", "soft"])
        how |= self._or_nothing(
            4, {"queued": True}, {"queued": True, "announced": 1}, {"roles": True}, {"mate": self._gang(cluster)}
        )
        how |= self._or_nothing(3, *({"match": each.value} for each in MatchPolicy))
        return Step("job", self._name("job"), how | self._asked() | ({"near": near} if near else {}))

    def _single(self, cluster: SoakCluster) -> Step:
        return Step("single", self._name("pod"), self._asked())

    def _grow(self, cluster: SoakCluster) -> Step:
        return Step("grow", self._gang(cluster), {"pod": self._name("more"), **self._asked()})

    def _minimum(self, cluster: SoakCluster) -> Step:
        """Change the minimum of a gang; half of the draws are about a gang of which a member has ended."""
        ended = sorted(
            {record.gang.key.name for record in cluster.state.pods.values() if record.pod.finished and record.gang}
        )
        name = self._random.choice(ended) if ended and self._random.random() < 0.5 else self._gang(cluster)
        return Step("minimum", name, {"minimum": self._random.randint(1, 5)})

    def _finish(self, cluster: SoakCluster) -> Step:
        failed = self._random.random() < 0.2
        return Step("finish", self._pick(cluster, MemberState.RUNNING), {"failed": True} if failed else {})

    def _gone(self, cluster: SoakCluster) -> Step:
        return Step("gone", self._pick(cluster, *MemberState))

    def _no_gang(self, cluster: SoakCluster) -> Step:
        return Step("no_gang", self._gang(cluster))

    def _confirm(self, cluster: SoakCluster) -> Step:
        return Step("confirm", self._pick(cluster, MemberState.ASSUMED) if self._random.random() < 0.3 else "")

    def _depart(self, cluster: SoakCluster) -> Step:
        leaving = sorted(uid for uid in cluster.state.pods if cluster.leaves(uid))
        return Step("depart", self._random.choice(leaving) if leaving and self._random.random() < 0.3 else "")

    def _fail(self, cluster: SoakCluster) -> Step:
        return Step("fail", self._pick(cluster, MemberState.ASSUMED))

    def _refuse(self, cluster: SoakCluster) -> Step:
        leaving = sorted(uid for uid, record in cluster.state.pods.items() if record.evicting)
        return Step("refuse", self._random.choice(leaving) if leaving else "", {"seconds": 20})

    def _resize(self, cluster: SoakCluster) -> Step:
        name = self._pick(cluster, MemberState.RUNNING, MemberState.ASSUMED, MemberState.PENDING)
        return Step("resize", name, {"cpu": self._random.choice([1, 3])})

    def _wait(self, cluster: SoakCluster) -> Step:
        """Advance the clock, also by parts of a second; the kubelets' clocks differ by some seconds."""
        how = {"seconds": self._random.choice([0.25, 0.5, 1, 1.75, 10, 10, 59.75, 60, 300])}
        return Step("wait", how=how | self._or_nothing(4, {"skew": -2}, {"skew": 1}, {"skew": 3}))

    def _window(self, cluster: SoakCluster) -> Step:
        draw = self._random
        how = {"nodes": [f"n{draw.randrange(NODES)}"], "start": draw.choice([30, 600]), "length": 600}
        return Step("window", draw.choice("vw"), how)

    def _no_window(self, cluster: SoakCluster) -> Step:
        return Step("no_window", self._random.choice("vw"))

    def _restart(self, cluster: SoakCluster) -> Step:
        return Step("restart")

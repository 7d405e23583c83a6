"""Small random clusters with a waiting unit and possible victims."""

from __future__ import annotations

import random
from typing import Any

from phalanx.model.disruption import DisruptionBudget
from phalanx.model.events import ClusterEvent, DisruptionBudgetUpdated
from phalanx.model.pod import PodClass
from phalanx.model.topology import SubgroupRule
from phalanx.scheduling.policy.loader import DEFAULT_POLICY

from ..scenario import Scenario

PROPORTION = """
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: conformance}]},
        {plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]}]
"""
CAPACITY = PROPORTION.replace("proportion", "capacity")
# `test_self_protection.py` covers the reach of the owners' annotations.
HEARD = "phalanx: {selfProtection: all}\n"
KINDS = ("priorities", "quotas", "capacity", "tree", "proportion", "reclaimees")
MOST_VICTIMS = 14
HIGH = 10
PART = "part"
Labels = tuple[tuple[str, str], ...]


class Unaudited(Scenario):
    """Audit of the state's books after every cycle only, not after every event."""

    def observe(self, about: str, event: ClusterEvent) -> Unaudited:
        self._observed[about] = event
        self.state.apply(event)
        return self


class SmallCluster:
    """Draw 2 to 5 nodes (or up to `nodes`), 3 to 14 pods on them (or `victims`), and one preemptor: a pod, or a
    gang of up to four members.

    `kind` selects the accounts. Pods are single or in gangs, with and without surplus, with roles, subgroups, or
    as
    units. They have four priorities, their own and their gangs'. Some are protected, some count in a
    PodDisruptionBudget.
    """

    def __init__(self, seed: int, victims: tuple[int, int] = (3, MOST_VICTIMS), nodes: int = 5) -> None:
        self.draw = draw = random.Random(seed)
        self.kind = KINDS[seed % len(KINDS)]
        self.gpus = draw.random() < 0.5
        policies = {"capacity": CAPACITY, "tree": CAPACITY, "reclaimees": CAPACITY, "proportion": PROPORTION}
        self.scenario = Unaudited(HEARD + policies.get(self.kind, DEFAULT_POLICY))
        self.scenario.now = 100_000
        self._pods = 0
        self._sizes = [self._size() for _ in range(draw.randint(*victims))]
        self._fill(nodes)
        self._taker = 0 if draw.random() < 0.8 else draw.randrange(3)
        self.homes = self._accounts()
        self._occupy()
        self.waiting = self._preemptor()

    # nodes and accounts

    def _size(self) -> tuple[int, int]:
        return self.draw.choice([1, 1, 2, 2, 3]), self.draw.choice([0, 0, 1, 2]) if self.gpus else 0

    def _fill(self, most: int) -> None:
        """Draw the number of nodes that are nearly full."""
        draw = self.draw
        self.places = [f"n{draw.randrange(draw.randint(2, most))}" for _ in self._sizes]
        self.cpu = self.gpu = 0
        for name in sorted({*self.places, "n0", "n1"}):
            here = [size for size, place in zip(self._sizes, self.places, strict=True) if place == name]
            cpu, gpu = sum(cpu for cpu, _ in here) + draw.choice([0, 0, 1, 2]), sum(gpu for _, gpu in here)
            gpu += draw.randint(0, 1) if self.gpus else 0
            labels = {"disk": draw.choice(["ssd", "hdd"])}
            self.scenario.node(name, cpu=cpu, gpu=gpu, labels=labels, pods=len(here) + draw.choice([0, 1, 50, 50]))
            self.cpu += cpu
            self.gpu += gpu

    def _accounts(self) -> list[dict[str, str]]:
        """Return the possible homes of pods: namespace and queue."""
        draw, scenario = self.draw, self.scenario
        if self.kind == "priorities":
            return [{"namespace": "ns", "queue": "default"}]
        names = {"tree": ["xa", "xb", "ya"], "reclaimees": ["a", "b", "c", "d", "e"]}.get(
            self.kind, ["a", "b", "c"]
        )
        shares = self._shares(len(names))
        if self.kind == "quotas":
            for name, (cpu, gpu) in zip("abc", shares, strict=True):
                least: dict[str, object] = {"cpu": cpu}
                if self.gpus:
                    least["gpu"] = gpu
                scenario.elastic_quota(name, least, {"cpu": draw.randint(cpu, self.cpu), "gpu": self.gpu})
            return [{"namespace": name, "queue": "default"} for name in "abc"]
        if self.kind == "tree":
            for name, (cpu, gpu) in zip("xy", self._shares(2), strict=True):
                scenario.queue(name, **self._queue(cpu, gpu, lends=name != names[self._taker][0]))
        for name, (cpu, gpu) in zip(names, shares, strict=True):
            parent = name[0] if self.kind == "tree" else ""
            fields = self._queue(cpu, gpu, lends=name != names[self._taker])
            scenario.queue(name, parent=parent, **fields)
        return [{"namespace": "ns", "queue": name} for name in names]

    def _queue(self, cpu: int, gpu: int, lends: bool) -> dict[str, Any]:
        """Give the preemptor no guarantee: the amount reserved for it would grow as its own pods are evicted."""
        draw = self.draw
        fields: dict[str, Any] = {"weight": draw.randint(1, 3), "reclaimable": draw.random() < 0.9}
        if self.kind != "proportion":
            fields["deserved"] = {"cpu": cpu} | ({"gpu": gpu} if self.gpus else {})
        if draw.random() < 0.2:
            fields["capability"] = {"cpu": draw.randint(cpu, self.cpu)}
        if lends and draw.random() < 0.25:
            fields["guarantee"] = {"cpu": draw.randint(0, cpu)}
        return fields

    def _shares(self, parts: int) -> list[tuple[int, int]]:
        """Draw whole amounts whose sum does not exceed the total."""
        draw = self.draw
        cpus = sorted(draw.randint(0, self.cpu) for _ in range(parts - 1))
        cuts = [0, *cpus, self.cpu]
        return [(cuts[n + 1] - cuts[n], draw.randint(0, self.gpu) // parts) for n in range(parts)]

    # running pods

    def _occupy(self) -> None:
        draw = self.draw
        for name in ("pdb-0", "pdb-1"):
            for namespace in {home["namespace"] for home in self.homes}:
                budget = DisruptionBudget(namespace, name, draw.randint(0, 1))
                self.scenario.observe(f"budget {namespace}/{name}", DisruptionBudgetUpdated(budget))
        gangs = 0
        while self._pods < len(self._sizes):
            home, priority = draw.choice([*self.homes, *self.homes[1:]]), draw.choice([0, 0, 1, 2, 3])
            members = min(draw.choice([1, 1, 1, 2, 3, 4]), len(self._sizes) - self._pods)
            if members == 1:
                self._settle(home, priority=priority)
                continue
            gangs += 1
            mixed = draw.random() < 0.4
            for number in range(members):
                own = draw.choice([0, 1, 2, 3]) if mixed else priority
                labels = ((PART, str(number // 2)),)
                self._settle(home, labels, priority=own, gang=f"g{gangs}", role=f"r{number % 2}")
            stated: dict[str, Any] = {"priority": priority} if draw.random() < 0.5 else {}
            self._declare(f"g{gangs}", members, home, **stated)

    def _declare(self, name: str, there: int, home: dict[str, str], **stated: Any) -> None:
        draw = self.draw
        minimum = draw.randint(1, there + (draw.random() < 0.1))
        if there > 2 and draw.random() < 0.4:
            rule = SubgroupRule("parts", keys=(PART,), size=draw.randint(1, 2), least=draw.randint(1, 2))
            stated["subgroups"] = (rule,)
        roles = (("r0", 1),) if minimum > 1 and draw.random() < 0.3 else ()
        self.scenario.within(home["namespace"])
        self.scenario.gang(name, minimum, roles=roles, unit=draw.random() < 0.15, queue=home["queue"], **stated)

    def _settle(self, home: dict[str, str], labels: Labels = (), **fields: Any) -> None:
        draw = self.draw
        (cpu, gpu), node = self._sizes[self._pods], self.places[self._pods]
        more: dict[str, object] = {"labels": labels, "started": self.scenario.now - draw.randint(10, 50_000)}
        if draw.random() < 0.08:
            more["preemptable"] = False
        if draw.random() < 0.3:
            more["budgets"] = tuple(sorted(draw.sample(["pdb-0", "pdb-1"], draw.randint(1, 2))))
        self._pods += 1
        self.scenario.within(home["namespace"])
        amounts: dict[str, Any] = {"cpu": cpu, "gpu": gpu} if gpu else {"cpu": cpu}
        self.scenario.pod(f"p{self._pods}", node=node, queue=home["queue"], more=more, **amounts, **fields)

    # the preemptor

    def _preemptor(self) -> list[str]:
        draw = self.draw
        home = self.homes[self._taker % len(self.homes)]
        priority = HIGH if draw.random() < 0.7 else draw.choice([0, 1, 2, 3])
        members = draw.choice([1, 1, 1, 2, 3, 4])
        alike = draw.random() < 0.5
        shapes = [self._shape() for _ in range(members)]
        self.scenario.within(home["namespace"])
        gang = "want" if members > 1 or draw.random() < 0.3 else ""
        if gang:
            self.scenario.gang(gang, members, queue=home["queue"])
        for number in range(members):
            shape = shapes[0] if alike else shapes[number]
            self.scenario.pod(f"want-{number}", gang=gang, queue=home["queue"], priority=priority, **shape)
        return [f"want-{number}" for number in range(members)]

    def _shape(self) -> dict[str, Any]:
        draw = self.draw
        shape: dict[str, Any] = {"cpu": draw.choice([1, 2, 2, 3, 4])}
        if self.gpus and draw.random() < 0.5:
            shape["gpu"] = 1
        if draw.random() < 0.3:
            shape["pod_class"] = PodClass(node_selector=(("disk", draw.choice(["ssd", "hdd"])),))
        return shape

"""Changes of a cluster, step by step, and the watch events about them."""

from __future__ import annotations

import copy
import random
from dataclasses import fields

from tests.differential.oracle.world import Wire, World
from tests.differential.worlds import WorldMaker

# ("take" or "drop", kind, object): a watch event.
News = tuple[str, str, Wire]


class Story:
    """Changes `world` step by step."""

    def __init__(self, seed: int, topics: frozenset[str], bound: float = 0.6) -> None:
        self.maker = WorldMaker(seed, topics, bound)
        self.world: World = self.maker.world()
        self._random = self.maker.random
        self._happenings = [
            self._pod_comes,
            self._pod_goes,
            self._pod_is_bound,
            self._pod_is_bound,
            self._pod_ends,
            self._pod_is_told_to_leave,
            self._pod_is_relabelled,
            self._pod_is_recreated,
            self._gates_are_lifted,
            self._node_comes,
            self._node_goes,
            self._node_is_relabelled,
            self._node_changes,
            self._namespace_is_relabelled,
        ]
        if topics & {"Volumes", "DynamicResources"}:
            self._happenings += [self._something_changes] * 5 + [self._something_goes] * 2

    def step(self) -> list[News]:
        before = copy.deepcopy(self.world)
        self._random.choice(self._happenings)()
        return news(before, self.world, self._random)

    def _pod_comes(self) -> None:
        self.world.pods.append(self.maker.pod(self.world))

    def _pod_goes(self) -> None:
        self._goes(self.world.pods)

    def _pod_is_bound(self) -> None:
        waiting = list(self.world.waiting())
        if waiting and self.world.nodes:
            pod = self._random.choice(waiting)
            pod["spec"]["nodeName"] = self._random.choice(self.world.nodes)["metadata"]["name"]

    def _pod_ends(self) -> None:
        running = list(self.world.running())
        if running:
            self._random.choice(running)["status"]["phase"] = self._random.choice(
                ("Running", "Succeeded", "Failed")
            )

    def _pod_is_told_to_leave(self) -> None:
        if self.world.pods:
            self._random.choice(self.world.pods)["metadata"]["deletionTimestamp"] = "2026-01-01T02:00:00Z"

    def _pod_is_relabelled(self) -> None:
        if self.world.pods:
            self._random.choice(self.world.pods)["metadata"]["labels"] = self.maker.pod_labels()

    def _pod_is_recreated(self) -> None:
        """Same name, another uid."""
        if not self.world.pods:
            return
        at = self._random.randrange(len(self.world.pods))
        old, pod = self.world.pods[at], self.maker.pod(self.world)
        for field in ("name", "namespace"):
            pod["metadata"][field] = old["metadata"][field]
        self.world.pods[at] = pod

    def _gates_are_lifted(self) -> None:
        gated = [pod for pod in self.world.pods if pod["spec"].get("schedulingGates")]
        if gated:
            del self._random.choice(gated)["spec"]["schedulingGates"]

    def _node_comes(self) -> None:
        name = f"n{self._random.randint(0, 8)}"
        if self.world.node(name) is None:
            self.world.nodes.append(self.maker.node(name))

    def _node_goes(self) -> None:
        self._goes(self.world.nodes)

    def _node_is_relabelled(self) -> None:
        if self.world.nodes:
            node = self._random.choice(self.world.nodes)
            node["metadata"]["labels"] = self.maker.node_labels(node["metadata"]["name"])

    def _node_changes(self) -> None:
        if self.world.nodes:
            at = self._random.randrange(len(self.world.nodes))
            self.world.nodes[at] = self.maker.node(self.world.nodes[at]["metadata"]["name"])

    def _namespace_is_relabelled(self) -> None:
        namespace, other = self._random.choice(self.world.namespaces), self._random.choice(self.world.namespaces)
        namespace["metadata"]["labels"] = dict(other["metadata"]["labels"])

    def _something_changes(self) -> None:
        """Create an object of storage or devices, or replace the one of its name."""
        if not self.world.nodes:
            return
        other = World(nodes=self.world.nodes)
        self.maker.furnish(other)
        entries = [(kind, entry) for kind in _furniture() for entry in getattr(other, kind)]
        kind, entry = self._random.choice(entries)
        known: list[Wire] = getattr(self.world, kind)
        for at, last in enumerate(known):
            if _address(last) == _address(entry):
                known[at] = entry
                return
        known.append(entry)

    def _something_goes(self) -> None:
        self._goes(getattr(self.world, self._random.choice(_furniture())))

    def _goes(self, entries: list[Wire]) -> None:
        if entries:
            del entries[self._random.randrange(len(entries))]


def news(before: World, after: World, chance: random.Random) -> list[News]:
    """Return watch events between two states, in some order; a deletion before a recreation can be missed."""
    told: list[News] = []
    for field in fields(World):
        last = {_address(entry): entry for entry in getattr(before, field.name)}
        now = {_address(entry): entry for entry in getattr(after, field.name)}
        told += [("drop", field.name, entry) for address, entry in last.items() if address not in now]
        for address, entry in now.items():
            known = last.get(address)
            if known == entry:
                continue
            renewed = known is not None and known["metadata"].get("uid") != entry["metadata"].get("uid")
            if known is not None and renewed and chance.random() < 0.5:
                told.append(("drop", field.name, known))
            told.append(("take", field.name, copy.deepcopy(entry)))
    return told


def _address(entry: Wire) -> tuple[str, str]:
    return entry["metadata"].get("namespace", ""), entry["metadata"]["name"]


def _furniture() -> list[str]:
    return [field.name for field in fields(World) if field.name not in ("nodes", "pods", "namespaces")]

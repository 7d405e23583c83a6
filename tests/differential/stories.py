"""What may happen to a cluster, one watch event after the other."""

from __future__ import annotations

import copy
from collections.abc import Callable

from tests.differential.oracle.world import Wire, World, named
from tests.differential.worlds import WorldMaker

# ("take" or "drop", kind, object): what a watch tells.
News = tuple[str, str, Wire]


class Story:
    """Changes `world` step by step, and says what the watches would tell of it."""

    def __init__(self, seed: int, topics: frozenset[str]) -> None:
        self.maker = WorldMaker(seed, topics)
        self.world: World = self.maker.world()
        self._random = self.maker.random

    def step(self) -> list[News]:
        happenings: list[Callable[[], list[News]]] = [
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
        return self._random.choice(happenings)()

    def _pod_comes(self) -> list[News]:
        pod = self.maker.pod(self.world)
        self.world.pods.append(pod)
        return [self._take("pods", pod)]

    def _pod_goes(self) -> list[News]:
        return self._goes("pods", self.world.pods)

    def _pod_is_bound(self) -> list[News]:
        waiting = [pod for pod in self.world.waiting() if self.world.nodes]
        if not waiting:
            return []
        pod = self._random.choice(waiting)
        pod["spec"]["nodeName"] = self._random.choice(self.world.nodes)["metadata"]["name"]
        return [self._take("pods", pod)]

    def _pod_ends(self) -> list[News]:
        running = list(self.world.running())
        if not running:
            return []
        pod = self._random.choice(running)
        pod["status"]["phase"] = self._random.choice(("Running", "Succeeded", "Failed"))
        return [self._take("pods", pod)]

    def _pod_is_told_to_leave(self) -> list[News]:
        if not self.world.pods:
            return []
        pod = self._random.choice(self.world.pods)
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T02:00:00Z"
        return [self._take("pods", pod)]

    def _pod_is_relabelled(self) -> list[News]:
        if not self.world.pods:
            return []
        pod = self._random.choice(self.world.pods)
        pod["metadata"]["labels"] = self.maker.pod_labels()
        return [self._take("pods", pod)]

    def _pod_is_recreated(self) -> list[News]:
        """Same name, another uid; the watch may miss that the old one went."""
        if not self.world.pods:
            return []
        at = self._random.randrange(len(self.world.pods))
        old, pod = self.world.pods[at], self.maker.pod(self.world)
        for field in ("name", "namespace"):
            pod["metadata"][field] = old["metadata"][field]
        self.world.pods[at] = pod
        news = [self._take("pods", pod)]
        return [("drop", "pods", old), *news] if self._random.random() < 0.5 else news

    def _gates_are_lifted(self) -> list[News]:
        gated = [pod for pod in self.world.pods if pod["spec"].get("schedulingGates")]
        if not gated:
            return []
        pod = self._random.choice(gated)
        del pod["spec"]["schedulingGates"]
        return [self._take("pods", pod)]

    def _node_comes(self) -> list[News]:
        name = f"n{self._random.randint(0, 7)}"
        if self.world.node(name) is not None:
            return []
        node = self.maker.node(name)
        self.world.nodes.append(node)
        return [self._take("nodes", node)]

    def _node_goes(self) -> list[News]:
        return self._goes("nodes", self.world.nodes)

    def _node_is_relabelled(self) -> list[News]:
        if not self.world.nodes:
            return []
        node = self._random.choice(self.world.nodes)
        node["metadata"]["labels"] = self.maker.node_labels(node["metadata"]["name"])
        return [self._take("nodes", node)]

    def _node_changes(self) -> list[News]:
        if not self.world.nodes:
            return []
        at = self._random.randrange(len(self.world.nodes))
        self.world.nodes[at] = self.maker.node(self.world.nodes[at]["metadata"]["name"])
        return [self._take("nodes", self.world.nodes[at])]

    def _namespace_is_relabelled(self) -> list[News]:
        namespace = self._random.choice(self.world.namespaces)
        other = self._random.choice(self.world.namespaces)
        namespace["metadata"]["labels"] = dict(other["metadata"]["labels"])
        assert named(self.world.namespaces, namespace["metadata"]["name"]) is namespace
        return [self._take("namespaces", namespace)]

    def _goes(self, kind: str, entries: list[Wire]) -> list[News]:
        if not entries:
            return []
        return [("drop", kind, entries.pop(self._random.randrange(len(entries))))]

    def _take(self, kind: str, entry: Wire) -> News:
        return "take", kind, copy.deepcopy(entry)

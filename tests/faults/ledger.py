"""Changes of pods and nodes on the API server, in order, and the search for forbidden states."""

from __future__ import annotations

from collections import Counter
from typing import Any

from phalanx_local.storage.records import Change
from phalanx_local.storage.store import Collection, Store

ENDED = ("Succeeded", "Failed")


class BindingLedger:
    """Books whole CPUs by node, as each change of a pod or node is committed. `faults` are sentences."""

    def __init__(self, store: Store) -> None:
        self.faults: list[str] = []
        self._open = True
        self._room: dict[str, int] = {}
        # uid -> (node, CPUs) of pods that are bound and have not ended.
        self._held: dict[str, tuple[str, int]] = {}
        # uid -> every node that it was bound to.
        self.nodes: dict[str, list[str]] = {}
        store.listen(self._listen)

    def close(self) -> None:
        self._open = False

    def _listen(self, collection: Collection, change: Change) -> None:
        if not self._open:
            return
        if collection.storage.endswith("nodes"):
            self._node(change)
        elif collection.storage.endswith("pods"):
            self._pod(change)

    def _node(self, change: Change) -> None:
        name = change.key[1]
        if change.new is None:
            self._room.pop(name, None)
        else:
            self._room[name] = int(change.new.load()["status"]["allocatable"]["cpu"])

    def _pod(self, change: Change) -> None:
        if change.new is None:
            if change.old is not None:
                self._held.pop(change.old.uid, None)
            return
        pod, uid = change.new.load(), change.new.uid
        node = pod["spec"].get("nodeName", "")
        if not node:
            return
        nodes = self.nodes.setdefault(uid, [])
        if not nodes or nodes[-1] != node:
            nodes.append(node)
            if len(nodes) > 1:
                self.faults.append(f"{change.new.name} was bound to {' and then to '.join(nodes)}")
        if (pod.get("status") or {}).get("phase") in ENDED:
            self._held.pop(uid, None)
            return
        self._held[uid] = (node, cpus(pod))
        used: Counter[str] = Counter()
        for where, amount in self._held.values():
            used[where] += amount
        if node in self._room and used[node] > self._room[node]:
            self.faults.append(f"{node} has {self._room[node]} CPUs and holds {used[node]} with {change.new.name}")


def cpus(pod: dict[str, Any]) -> int:
    return sum(int(each["resources"]["requests"]["cpu"]) for each in pod["spec"]["containers"])

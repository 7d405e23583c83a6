"""Changes of a what-if question to a captured cluster, one per option."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from phalanx.model.events import ClusterEvent, GangUpdated, NodeRemoved, PodUpdated
from phalanx.model.gang import GangKey
from phalanx.model.text.quantity import QuantityError, parse_quantity
from phalanx.simulation.documents import FileObject
from phalanx.simulation.errors import OptionError

_QUEUE = "scheduling.volcano.sh/v1beta1"
# Kinds of objects that have the name of the node that they describe.
_NAMED_AFTER = ("Device", "CSINode", "Numatopology")
_MOST_NODES = 100_000
_replace = msgspec.structs.replace


class QueueChange(msgspec.Struct, frozen=True):
    """Changed fields of a queue in a what-if question; resource amounts as in the API."""

    name: str
    weight: int | None = None
    capability: dict[str, str] = {}
    deserved: dict[str, str] = {}


def more_nodes(entries: Sequence[FileObject], count: int, like: str) -> list[FileObject]:
    """Return `count` new nodes like an existing one, with the objects that describe them."""
    if not 1 <= count <= _MOST_NODES:
        raise OptionError("add-nodes", "", f" is {count}; use a number from 1 to {_MOST_NODES}")
    names = {_name(entry) for entry in entries if entry.kind == "Node"}
    if not like:
        raise OptionError("add-nodes", "", " needs --like NODE", others=("like",))
    if like not in names:
        raise OptionError("like", like, f": unknown node; {_some(names)}")
    added = [name for number in range(count + len(names)) if (name := f"{like}-added-{number}") not in names]
    return [_copied(entry, like, name) for name in added[:count] for entry in entries if _describes(entry, like)]


def _describes(entry: FileObject, node: str) -> bool:
    if entry.kind == "Node" or entry.kind in _NAMED_AFTER:
        return _name(entry) == node
    spec = entry.document.get("spec")
    return entry.kind == "ResourceSlice" and isinstance(spec, Mapping) and spec.get("nodeName") == node


def _copied(entry: FileObject, like: str, name: str) -> FileObject:
    metadata = dict(entry.document["metadata"])
    own = name if entry.kind != "ResourceSlice" else f"{metadata['name']}-{name}"
    labels = dict(metadata.get("labels") or {})
    if "kubernetes.io/hostname" in labels:
        labels["kubernetes.io/hostname"] = name
    metadata |= {"name": own, "uid": f"what-if/{entry.kind}/{own}", "labels": labels}
    document: dict[str, Any] = {**entry.document, "metadata": metadata}
    spec = document.get("spec")
    if entry.kind == "ResourceSlice" and isinstance(spec, Mapping):
        pool = spec.get("pool")
        document["spec"] = {**spec, "nodeName": name, "pool": {**(pool or {}), "name": name}}
    if entry.kind == "Node":
        document["spec"] = {key: value for key, value in (spec or {}).items() if key != "unschedulable"}
    return FileObject(f"--add-nodes: {entry.kind} {own}", document)


def lost_nodes(entries: Iterable[FileObject], chosen: Sequence[str]) -> list[ClusterEvent]:
    """Return the deletions of nodes, each named directly or by labels such as `rack=r1,zone=a`."""
    nodes = {
        _name(entry): entry.document["metadata"].get("labels") or {} for entry in entries if entry.kind == "Node"
    }
    lost = dict[str, None]()
    for text in chosen:
        if "=" in text:
            wanted = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
            matches = [name for name, labels in nodes.items() if wanted.items() <= labels.items()]
        else:
            matches = [name for name in text.split(",") if name in nodes]
            if missing := [name for name in text.split(",") if name not in nodes]:
                raise OptionError("without-nodes", missing[0], f": unknown node; {_some(nodes)}")
        if not matches:
            raise OptionError("without-nodes", text, ": no node has these labels")
        lost.update(dict.fromkeys(matches))
    if lost and len(lost) == len(nodes):
        raise OptionError("without-nodes", "", " removes all nodes; keep at least one")
    return [NodeRemoved(name) for name in lost]


def changed_queue(entries: Sequence[FileObject], change: QueueChange) -> FileObject:
    """Return the changed queue; the default queue can lack an object."""
    for amounts in (change.capability, change.deserved):
        for name, amount in amounts.items():
            try:
                parse_quantity(amount)
            except QuantityError as error:
                raise OptionError("queue", change.name, f": {name}={amount}: {error}") from error
    stated: dict[str, Any] = {"weight": change.weight} if change.weight is not None else {}
    stated |= {"capability": change.capability} if change.capability else {}
    stated |= {"deserved": change.deserved} if change.deserved else {}
    if not stated:
        raise OptionError(
            "queue",
            change.name,
            ": add a change: --weight, --capability or --deserved",
            others=("weight", "capability", "deserved"),
        )
    queues = {_name(entry): entry for entry in entries if entry.kind == "Queue"}
    entry = queues.get(change.name)
    if entry is None:
        if change.name != "default":
            raise OptionError("queue", change.name, f": unknown queue; {_some(queues)}")
        document = {"apiVersion": _QUEUE, "kind": "Queue", "metadata": {"name": change.name}, "spec": stated}
        return FileObject(f"--queue {change.name}", document)
    spec = dict(entry.document.get("spec") or {})
    for key, value in stated.items():
        spec[key] = {**(spec.get(key) or {}), **value} if isinstance(value, dict) else value
    return FileObject(entry.place, {**entry.document, "spec": spec})


def with_priority(
    events: Iterable[ClusterEvent], pods: frozenset[str], gangs: frozenset[GangKey], priority: int
) -> list[ClusterEvent]:
    """Return the events of the cluster with another priority of these pods and gangs."""
    if not -(2**31) <= priority < 2**31:
        raise OptionError("priority", "", f" is {priority}; use a 32-bit integer")
    changed: list[ClusterEvent] = []
    for event in events:
        match event:
            case PodUpdated(pod) if pod.uid in pods or (pod.gang and GangKey(pod.namespace, pod.gang) in gangs):
                changed.append(PodUpdated(_replace(pod, priority=priority)))
            case GangUpdated(gang) if gang.key in gangs:
                changed.append(GangUpdated(_replace(gang, priority=priority)))
            case _:
                changed.append(event)
    return changed


def _name(entry: FileObject) -> str:
    return str(entry.document["metadata"]["name"])


def _some(names: Iterable[str]) -> str:
    known = sorted(names)
    return f"there are {', '.join(known[:5])}{' ...' if len(known) > 5 else ''}" if known else "there are none"

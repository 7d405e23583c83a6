"""Workloads of a what-if question that exist already: the file replaces waiting ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from phalanx.model.text.counts import count_of
from phalanx.simulation.cluster import SimulatedCluster
from phalanx.simulation.documents import FileObject
from phalanx.simulation.errors import InputError

_FINISHED = frozenset({"Succeeded", "Failed"})

Address = tuple[str, str, str, str]
"""Group, kind, namespace and name of an object."""


def address_of(entry: FileObject, namespace: str = "") -> Address:
    """Return the address of an object; `namespace` is that of an object without one."""
    metadata = entry.document["metadata"]
    group = entry.api_version.rpartition("/")[0] if "/" in entry.api_version else ""
    return group, entry.kind, str(metadata.get("namespace") or namespace), str(metadata["name"])


def without_replaced(
    cluster: SimulatedCluster, objects: Sequence[FileObject], namespace: str
) -> tuple[SimulatedCluster, list[str]]:
    """Return the cluster without the pods and groups of the workloads in `objects`, and one note for each of them:
    an applied file creates no second job of that name.

    Raises InputError for a workload with pods on nodes.
    """
    workloads = {
        address_of(entry, namespace): entry for entry in objects if entry.kind != "Pod" and _has_pods(entry)
    }
    below = _below(cluster.entries, workloads)
    notes = []
    for address, entry in workloads.items():
        name = f"{entry.kind} {'/'.join(address[2:])}"
        mine = [other for other in cluster.entries if below.get(_uid(other)) == address]
        if placed := sum(map(_is_placed, mine)):
            raise InputError(
                f"{entry.place}: {name} exists already and has {count_of(placed, 'pod')} on nodes; rename it, or "
                "use --gang with a change"
            )
        if mine:
            notes.append(f"{name} exists and waits: the file replaces it")
    kept = tuple(entry for entry in cluster.entries if _uid(entry) not in below)
    return (msgspec.structs.replace(cluster, entries=kept) if below else cluster), notes


def _below(entries: Sequence[FileObject], workloads: Mapping[Address, object]) -> dict[str, Address]:
    """Return the workload above each object by uid, also through objects between them."""
    below: dict[str, Address] = {}
    while True:
        before = len(below)
        for entry in entries:
            if (uid := _uid(entry)) and uid not in below:
                for owner, owner_uid in _owners(entry):
                    if owner in workloads:
                        below[uid] = owner
                    elif owner_uid in below:
                        below[uid] = below[owner_uid]
        if len(below) == before:
            return below


def _owners(entry: FileObject) -> Iterator[tuple[Address, str]]:
    """Yield address and uid of the owners of an object."""
    metadata = entry.document["metadata"]
    stated = metadata.get("ownerReferences")
    for reference in stated if isinstance(stated, list) else ():
        if isinstance(reference, Mapping):
            version = str(reference.get("apiVersion") or "")
            group = version.rpartition("/")[0] if "/" in version else ""
            namespace = str(metadata.get("namespace") or "")
            address = (group, str(reference.get("kind")), namespace, str(reference.get("name")))
            yield address, str(reference.get("uid") or "")


def _has_pods(entry: FileObject) -> bool:
    spec: Any = entry.document.get("spec")
    return isinstance(spec, Mapping) and ("template" in spec or "tasks" in spec)


def _is_placed(entry: FileObject) -> bool:
    spec, status = (entry.document.get(part) or {} for part in ("spec", "status"))
    return entry.kind == "Pod" and bool(spec.get("nodeName")) and status.get("phase") not in _FINISHED


def _uid(entry: FileObject) -> str:
    return str(entry.document["metadata"].get("uid") or "")

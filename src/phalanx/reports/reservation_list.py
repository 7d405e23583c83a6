"""Room that is kept: starts that are promised to those who wait, and reservations that were made in advance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from phalanx.kube.client import KubeClient
from phalanx.kube.discovery import discover
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from phalanx.model.advance_reservation import NO_END
from phalanx.model.gang import GangKey
from phalanx.model.text.moments import shown_moment
from phalanx.reports.jobs.read_documents import conditions_of, mapping, number, text
from phalanx.reports.read_promises import read_promises
from phalanx.scheduling.reservations.stored import StoredReservation
from phalanx.scheduling.reservations.telling import postponement
from phalanx.views.promises import PromiseOrigin, Promises

ADVANCE = Resource("phalanx.dev", "v1alpha1", "reservations", "Reservation", namespaced=False)
KOORDINATOR = Resource("scheduling.koordinator.sh", "v1alpha1", "reservations", "Reservation", namespaced=False)
PROMISED = "Promised"

Json = Mapping[str, Any]


class ReservationEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`kind` is promise, reservation or koordinator. `name` is that of the reservation, or of whose promise it is:
    gangs, or a pod. `start` and `end` are RFC 3339, "" for none that is known; `pods` are those that use a
    reservation, or for whom room is kept by a promise. `promise` is where a promise comes from, and as of when."""

    kind: str
    name: str
    phase: str
    namespace: str = ""
    start: str = ""
    end: str = ""
    queue: str = ""
    pods: int = 0
    nodes: tuple[str, ...] = ()
    reason: str = ""
    message: str = ""
    promise: PromiseOrigin | None = None


async def read_reservations(
    client: KubeClient, lease_namespace: str, now: float, scheduler_names: Sequence[str] = ("phalanx",)
) -> tuple[list[ReservationEntry], list[str]]:
    """(By start, those without one last; what could not be read). `lease_namespace` is where the scheduler of these
    names keeps its lease and what it has promised."""
    promises = await read_promises(client, lease_namespace, scheduler_names)
    warnings = promises.warnings(now)
    found = [_promise(each, promises) for each in promises.promises]
    served = await discover(client)
    for resource, kind in ((ADVANCE, "reservation"), (KOORDINATOR, "koordinator")):
        if not any(each.version == resource.version for each in served.find(resource.group, resource.plural)):
            continue
        try:
            listed = await client.list_all(resource.path())
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            warnings.append(f"not read: {resource.plural}.{resource.group}: {error.message}")
            continue
        found += [_reservation(document, kind) for document in listed["items"]]
    found.sort(key=lambda room: (not room.start, room.start, room.kind, room.name))
    return found, warnings


def _promise(kept: StoredReservation, promises: Promises) -> ReservationEntry:
    names = kept.titles or [str(GangKey(namespace, name)) for namespace, name, _ in kept.gangs]
    where = kept.gangs[0][0] if kept.gangs else kept.name.partition("/")[0]
    nodes = {node for share in kept.shares for node in share.nodes}
    return ReservationEntry(
        kind="promise",
        name=",".join(names) or f"pod {kept.name or kept.pod}",
        namespace=where,
        queue=kept.queue,
        promise=promises.origin,
        phase=PROMISED,
        start=shown_moment(kept.told),
        end=shown_moment(kept.end if kept.end < NO_END else None),
        pods=sum(count for share in kept.shares for count in share.nodes.values()),
        nodes=tuple(sorted(nodes)),
        reason=kept.slips[-1].cause.value if kept.slips else "",
        message=postponement(kept.slips[-1]) if kept.slips else "",
    )


def _reservation(document: Json, kind: str) -> ReservationEntry:
    metadata, spec = mapping(document.get("metadata")), mapping(document.get("spec"))
    status = mapping(document.get("status"))
    entries = status.get("nodes")
    names = [text(mapping(each).get("name")) for each in (entries if isinstance(entries, list) else ())]
    owners = status.get("currentOwners")
    conditions = {each.type: each for each in conditions_of(document)}
    told = next((conditions[name] for name in ("Scheduled", "Ready") if _says_no(conditions.get(name))), None)
    return ReservationEntry(
        kind=kind,
        name=text(metadata.get("name")),
        phase=text(status.get("phase")) or "Pending",
        start=text(status.get("start")) or text(status.get("nextStart")),
        end=text(status.get("end")) or text(spec.get("expires")),
        queue=text(spec.get("queue")),
        pods=number(status.get("users")) or (len(owners) if isinstance(owners, list) else 0),
        nodes=tuple(sorted(filter(None, [*names, text(status.get("nodeName"))]))),
        reason=told.reason if told is not None else "",
        message=told.message if told is not None else "",
    )


def _says_no(condition: Any) -> bool:
    return condition is not None and condition.status == "False"

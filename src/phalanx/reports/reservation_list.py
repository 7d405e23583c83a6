"""List of promised starts and advance reservations."""

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
from phalanx.model.promise_records import StoredReservation
from phalanx.model.promise_texts import postponement
from phalanx.model.text.moments import shown_moment
from phalanx.reports.jobs.read_documents import conditions_of, mapping, number, text
from phalanx.reports.read_promises import read_promises
from phalanx.views.promises import PromiseOrigin, Promises

ADVANCE = Resource("phalanx.dev", "v1alpha1", "reservations", "Reservation", namespaced=False)
KOORDINATOR = Resource("scheduling.koordinator.sh", "v1alpha1", "reservations", "Reservation", namespaced=False)
PROMISED = "Promised"

Json = Mapping[str, Any]


class ReservationEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Promised start or advance reservation in `phalanx reservations`.

    `kind` is promise, reservation or koordinator. `name` is the reservation, or the gangs or pod of a promise.
    `start` and `end` are RFC 3339, "" if unknown. `pods` are the users of a reservation or the subjects of a
    promise. `promise` is the source and time of a promise.
    """

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
    """Read promised starts and reservations. Return (entries by start, undated ones last; unreadable kinds).

    `lease_namespace` is the namespace of the scheduler's lease and promises.
    """
    promises = await read_promises(client, lease_namespace, scheduler_names)
    warnings = promises.warnings(now)
    entries = [_promise(promise, promises) for promise in promises.promises]
    served = await discover(client)
    for resource, kind in ((ADVANCE, "reservation"), (KOORDINATOR, "koordinator")):
        if not any(promise.version == resource.version for promise in served.find(resource.group, resource.plural)):
            continue
        try:
            listed = await client.list_all(resource.path())
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            warnings.append(f"not read: {resource.plural}.{resource.group}: {error.message}")
            continue
        entries += [reservation_entry(document, kind) for document in listed["items"]]
    entries.sort(key=lambda room: (not room.start, room.start, room.kind, room.name))
    return entries, warnings


def _promise(kept: StoredReservation, promises: Promises) -> ReservationEntry:
    names = kept.titles or [str(GangKey(namespace, name)) for namespace, name, _ in kept.gangs]
    where = kept.gangs[0][0] if kept.gangs else kept.name.partition("/")[0]
    nodes = {node for share in kept.shares for node in share.nodes}
    return ReservationEntry(
        kind="promise",
        # A record of an older version has only the uid of its pod, which means nothing to a user.
        name=",".join(names) or (f"pod {kept.name}" if kept.name else "unnamed pod"),
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


def reservation_entry(document: Json, kind: str) -> ReservationEntry:
    """Return the entry of an advance reservation; `kind` is reservation or koordinator."""
    metadata, spec = mapping(document.get("metadata")), mapping(document.get("spec"))
    status = mapping(document.get("status"))
    entries = status.get("nodes")
    names = [text(mapping(entry).get("name")) for entry in (entries if isinstance(entries, list) else ())]
    owners = status.get("currentOwners")
    conditions = {entry.type: entry for entry in conditions_of(document)}
    condition = next((conditions[name] for name in ("Scheduled", "Ready") if _says_no(conditions.get(name))), None)
    return ReservationEntry(
        kind=kind,
        name=text(metadata.get("name")),
        phase=text(status.get("phase")) or "Pending",
        start=text(status.get("start")) or text(status.get("nextStart")),
        end=text(status.get("end")) or text(spec.get("expires")),
        queue=text(spec.get("queue")),
        pods=number(status.get("users")) or (len(owners) if isinstance(owners, list) else 0),
        nodes=tuple(sorted(filter(None, [*names, text(status.get("nodeName"))]))),
        reason=condition.reason if condition is not None else "",
        message=condition.message if condition is not None else "",
    )


def _says_no(condition: Any) -> bool:
    return condition is not None and condition.status == "False"

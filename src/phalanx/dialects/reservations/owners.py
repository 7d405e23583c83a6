"""Owners of an advance reservation: Koordinator's owners, and namespaces and queues."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.dialects.label_selectors import IllegibleSelectorError, read_selector
from phalanx.dialects.reader import ObjectReader, show
from phalanx.model.peers import selects
from phalanx.model.pod import Pod
from phalanx.model.selectors import Requirement

_FIELDS = ("object", "controller", "labelSelector", "namespaces", "queues")
_MOST_OWNERS = 64


class OwnerIdentity(msgspec.Struct, frozen=True):
    """Reference to a pod or controller by namespace, name and uid; "" matches any."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class ReservationOwner(msgspec.Struct, frozen=True):
    """Condition for pods that can use a reservation: the pod is `object`, its owner is `controller`, its labels
    match `selector`, and its namespace and queue are listed. All stated parts must match."""

    object: OwnerIdentity | None = None
    controller: OwnerIdentity | None = None
    selector: tuple[Requirement, ...] | None = None
    namespaces: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()

    def allows(self, pod: Pod, queue: str, pod_owners: str) -> bool:
        """Return whether the pod meets all conditions of this owner and can use the reservation. `pod_owners` are
        the pod's owners as comma-separated `namespace/name`."""
        if self.namespaces and pod.namespace not in self.namespaces:
            return False
        if self.queues and queue not in self.queues:
            return False
        if self.selector is not None and not selects(self.selector, dict(pod.labels)):
            return False
        if self.object is not None and not _is(self.object, pod.namespace, (pod.name,), pod.uid):
            return False
        if self.controller is None:
            return True
        names = tuple(owner.partition("/")[2] for owner in pod_owners.split(",") if owner)
        return _is(self.controller, pod.namespace, names, pod.controller)


def _is(wanted: OwnerIdentity, namespace: str, names: tuple[str, ...], uid: str) -> bool:
    return (
        wanted.namespace in ("", namespace)
        and (not wanted.name or wanted.name in names)
        and (not wanted.uid or wanted.uid == uid)
    )


def read_owners(reader: ObjectReader) -> tuple[ReservationOwner, ...]:
    """Decode a reservation's owners, one of which must allow a pod. Unreadable ones are recorded as problems of the
    reader."""
    stated = reader.spec.get("owners")
    if stated is None:
        return ()
    if not isinstance(stated, list) or len(stated) > _MOST_OWNERS:
        reader.refuse(
            "spec.owners", stated, f"write a list of at most {_MOST_OWNERS}, such as [{{namespaces: [a]}}]"
        )
        return ()
    return tuple(
        owner for place, entry in enumerate(stated) if (owner := _owner(reader, f"spec.owners[{place}]", entry))
    )


def _owner(reader: ObjectReader, field: str, stated: object) -> ReservationOwner | None:
    if not isinstance(stated, Mapping) or not any(stated.get(name) for name in _FIELDS):
        reader.refuse(field, stated, f"write at least one of {', '.join(_FIELDS)}")
        return None
    unknown = sorted(set(map(str, stated)) - set(_FIELDS))
    if unknown:
        # An unknown field could restrict the owner further.
        reader.refuse(f"{field}.{unknown[0]}", stated.get(unknown[0]), f"write one of {', '.join(_FIELDS)}")
        return None
    selector = stated.get("labelSelector")
    try:
        requirements = read_selector(selector) if selector is not None else None
    except IllegibleSelectorError as error:
        reader.refuse(f"{field}.labelSelector", selector, str(error))
        return None
    return ReservationOwner(
        _reference(reader, field, stated, "object"),
        _reference(reader, field, stated, "controller"),
        requirements,
        _names(reader, field, stated, "namespaces"),
        _names(reader, field, stated, "queues"),
    )


def _reference(reader: ObjectReader, field: str, stated: Mapping[str, object], name: str) -> OwnerIdentity | None:
    value = stated.get(name)
    if value is None:
        return None
    if not isinstance(value, Mapping) or not (value.get("name") or value.get("uid")):
        reader.refuse(f"{field}.{name}", value, "write {namespace: a, name: b} or {uid: c}")
        return None
    texts = [value.get(key) or "" for key in ("namespace", "name", "uid")]
    return OwnerIdentity(*(text if isinstance(text, str) else show(text) for text in texts))


def _names(reader: ObjectReader, field: str, stated: Mapping[str, object], name: str) -> tuple[str, ...]:
    value = stated.get(name)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(entry, str) and entry for entry in value):
        reader.refuse(f"{field}.{name}", value, "write a list of names")
        return ()
    return tuple(sorted(value))

"""The door back: the status of the object that declares a gang, in its own vocabulary.

A change is computed only where something differs, so a steady state writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from phalanx.dialects import kube_batch, native, scheduler_plugins, volcano
from phalanx.dialects.groupspec import ONCE_SATISFIED_ANNOTATION
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.standing import Standing
from phalanx.model.gang import Gang, GangCounts, GroupRef
from phalanx.model.verdict import Verdict

_OPTIONS = DialectOptions()


class StatusChange(msgspec.Struct, frozen=True):
    """A patch of one group object. `body` carries the uid, so that a namesake created meanwhile is left alone.

    `replaces_lists` is True where the patch writes a whole list (custom resources know no strategic merge): then
    the writer should add the resourceVersion that the change was computed from.
    """

    ref: GroupRef
    patch: Literal["merge", "strategic"]
    body: dict[str, Any]
    subresource: Literal["status", ""] = "status"
    replaces_lists: bool = False


def desired_status(
    ref: GroupRef,
    current_status: Mapping[str, Any],
    gang: Gang,
    counts: GangCounts,
    occupied_by: str = "",
    verdict: Verdict | None = None,
    ever_scheduled: bool = False,
    now: int = 0,
    *,
    role_counts: Mapping[str, GangCounts] | None = None,
    generation: int = 0,
    options: DialectOptions = _OPTIONS,
) -> StatusChange | None:
    """The change that makes the object's status true, None where it is true already or not ours to write.

    `role_counts` are the counts per role of a gang with per-role minima; `generation` is that of the object.
    """
    standing = Standing(
        ref=ref,
        current=current_status,
        gang=gang,
        counts=counts,
        roles=role_counts or {},
        occupied_by=occupied_by,
        verdict=verdict,
        ever_scheduled=ever_scheduled,
        now=now,
        generation=generation,
        fail_on_any_member=options.fail_on_any_member,
    )
    if ref.group == native.GROUP:
        condition = native.condition_of(standing) if ref.plural == "podgroups" else None
        return _change(ref, {"conditions": [condition]}, "strategic") if condition is not None else None
    desired = _STATUS[ref.group](standing) or {}
    changed = {name: value for name, value in desired.items() if (current_status.get(name) or _ZERO[name]) != value}
    return _change(ref, changed, "merge") if changed else None


def admission_status(ref: GroupRef, current_status: Mapping[str, Any]) -> StatusChange | None:
    """Lets the controller of a Volcano group make its pods; None where it may already."""
    if current_status.get("phase") not in (None, "", "Pending"):
        return None
    return _change(ref, {"phase": "Inqueue"}, "merge")


def once_satisfied_mark(gang: Gang) -> StatusChange | None:
    """Writes down that a gang has had its quorum; None where that is known, or said by the status itself."""
    ref = gang.source
    if ref is None or gang.once_satisfied or ref.group == native.GROUP:
        return None
    metadata = {"annotations": {ONCE_SATISFIED_ANNOTATION: "true"}, **_identity(ref)}
    return StatusChange(ref, "merge", {"metadata": metadata}, subresource="")


_STATUS: Mapping[str, Callable[[Standing], dict[str, Any] | None]] = {
    scheduler_plugins.GROUP: scheduler_plugins.status_of,
    scheduler_plugins.OLD_GROUP: scheduler_plugins.status_of,
    volcano.GROUP: volcano.status_of,
    kube_batch.GROUP: kube_batch.status_of,
    kube_batch.DESIGN_GROUP: kube_batch.status_of,
    kube_batch.LAST_GROUP: kube_batch.status_of,
}

# What an absent field means: Go leaves out zeros.
_ZERO: Mapping[str, object] = {
    "phase": "",
    "running": 0,
    "succeeded": 0,
    "failed": 0,
    "scheduled": 0,
    "admitted": 0,
    "occupiedBy": "",
    "scheduleStartTime": "",
    "conditions": [],
}


def _change(ref: GroupRef, status: dict[str, Any], patch: Literal["merge", "strategic"]) -> StatusChange:
    body: dict[str, Any] = {"status": status}
    if identity := _identity(ref):
        body["metadata"] = identity
    return StatusChange(ref, patch, body, replaces_lists=patch == "merge" and "conditions" in status)


def _identity(ref: GroupRef) -> dict[str, str]:
    return {"uid": ref.uid} if ref.uid else {}

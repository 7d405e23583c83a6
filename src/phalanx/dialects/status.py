"""Status of objects that declare gangs, in the terms of each dialect.

A patch contains only fields that differ, so a steady state writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from phalanx.dialects.dialect import GroupKind
from phalanx.dialects.gangs.status_input import GroupStatusInput
from phalanx.dialects.options import DialectOptions
from phalanx.model.gang import Gang, GangCounts, GroupRef
from phalanx.model.verdict import Verdict

_OPTIONS = DialectOptions()


class StatusChange(msgspec.Struct, frozen=True):
    """Pending write of status or annotations to one PodGroup.

    `patch` is the body for the status subresource ({} if only annotations change). It is sent as a strategic merge
    patch if `strategic` is set, else as a merge patch: custom resources support no strategic one, so a list of
    conditions is written whole. It contains the uid, so that a new object of the same name is not changed.
    `annotations` are written to the object itself.
    """

    ref: GroupRef
    patch: dict[str, Any] = {}
    strategic: bool = False
    annotations: Mapping[str, str] = {}


def desired_status(
    kind: GroupKind,
    ref: GroupRef,
    current_status: Mapping[str, Any],
    gang: Gang,
    counts: GangCounts,
    *,
    roles: Mapping[str, GangCounts] | None = None,
    occupied_by: str = "",
    verdict: Verdict | None = None,
    ever_scheduled: bool = False,
    admitted: bool = False,
    now: int = 0,
    generation: int = 0,
    options: DialectOptions = _OPTIONS,
    exceeded: str = "",
    undecided: bool = False,
    withdrawn: bool = False,
) -> StatusChange | None:
    """Return the change that corrects the object's status; None if it is correct already.

    `roles` are the counts per role. `verdict` is the last verdict about pending members. `ever_scheduled` is True
    once the quorum has been placed. `admitted` allows the controller of a Volcano group to create its pods. `now`
    is in seconds since the epoch, `generation` that of the object. `exceeded` reports members that exceed their run
    time. `withdrawn` takes the admission back.
    """
    group = GroupStatusInput(
        ref=ref,
        current=current_status,
        gang=gang,
        counts=counts,
        roles=roles or {},
        occupied_by=occupied_by,
        verdict=verdict,
        ever_scheduled=ever_scheduled,
        admitted=admitted,
        now=now,
        generation=generation,
        fail_on_any_member=options.fail_on_any_member,
        exceeded=exceeded,
        undecided=undecided,
        withdrawn=withdrawn,
    )
    desired = (kind.status(group) if kind.status is not None else None) or {}
    changed = {
        name: value for name, value in desired.items() if (current_status.get(name) or _ZERO.get(name)) != value
    }
    return StatusChange(ref, _patch(ref, changed), strategic=kind.strategic) if changed else None


# Value that an absent field stands for: Go omits zero values.
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


def _patch(ref: GroupRef, status: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"uid": ref.uid}, "status": status} if ref.uid else {"status": status}

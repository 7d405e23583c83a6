"""The door back: the status of the object that declares a gang, in its own vocabulary.

A change is computed only where something differs, so a steady state writes nothing.
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
    """What to write to one group object.

    `patch` is the body for the status subresource ({} where only annotations change), to be sent as a strategic
    merge patch where `strategic` is set and as a merge patch otherwise: custom resources know no strategic one, so
    there a list of conditions is written whole. It carries the uid, so that a namesake created meanwhile is left
    alone. `annotations` are for the object itself.
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
) -> StatusChange | None:
    """The change that makes the object's status true, None where it is true already.

    `roles` are the counts per role. `verdict` is the last word about pending members. `ever_scheduled` is True once
    the quorum has been placed. `admitted` lets the controller of a Volcano group make its pods. `now` is in seconds
    since the epoch, `generation` that of the object. `exceeded` says that its members run longer than they may.
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
    )
    desired = (kind.status(group) if kind.status is not None else None) or {}
    changed = {
        name: value for name, value in desired.items() if (current_status.get(name) or _ZERO.get(name)) != value
    }
    return StatusChange(ref, _patch(ref, changed), strategic=kind.strategic) if changed else None


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


def _patch(ref: GroupRef, status: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"uid": ref.uid}, "status": status} if ref.uid else {"status": status}

"""Time of an admission in the status of a Volcano PodGroup: members that are older do not show it."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.model.gang import Gang, GangCounts, GangKey, GroupRef

from .objects import EPOCH, VOLCANO, desired_status, read_group

REF = GroupRef(VOLCANO.group, VOLCANO.version, VOLCANO.kind, VOLCANO.plural, "default", "g", "u1")
WAITING = GangCounts(pending=2)


def status_at(
    now: int, current: dict[str, Any], counts: GangCounts, *, admitted: bool = True, withdrawn: bool = False
) -> dict[str, Any]:
    """Return the status after the write of `now`."""
    gang = Gang(GangKey("default", "g"), source=REF, min_member=2)
    change = desired_status(REF, current, gang, counts, admitted=admitted, withdrawn=withdrawn, now=now)
    return {**current, **(change.patch["status"] if change is not None else {})}


def admitted_at(status: dict[str, Any]) -> int:
    """Return the time of the admission as the next process reads it."""
    document = {"metadata": {"name": "g", "namespace": "default", "uid": "u1"}, "spec": {}, "status": status}
    (spec,) = read_group(VOLCANO, document)
    return spec.admitted_at


@pytest.mark.parametrize("counts", [WAITING, GangCounts(gated=2)])
def test_admission_of_a_group_with_waiting_members_is_dated(counts: GangCounts) -> None:
    assert admitted_at(status_at(EPOCH, {"phase": "Pending"}, counts)) == EPOCH


@pytest.mark.parametrize("counts", [GangCounts(), GangCounts(bound=2), GangCounts(bound=1, pending=1)])
def test_admission_of_a_group_without_waiting_members_or_with_placed_ones_is_not_dated(counts: GangCounts) -> None:
    assert admitted_at(status_at(EPOCH, {"phase": "Pending"}, counts)) == 0


def test_group_that_awaits_its_admission_has_no_time() -> None:
    assert admitted_at(status_at(EPOCH, {"phase": "Pending"}, WAITING, admitted=False)) == 0


def test_time_of_an_admission_stays_until_a_member_has_a_node() -> None:
    status = status_at(EPOCH, {"phase": "Pending"}, WAITING)
    for later, counts, time in ((10, WAITING, EPOCH), (20, GangCounts(running=2), 0), (30, WAITING, 0)):
        status = status_at(EPOCH + later, status, counts)
        assert admitted_at(status) == time


def test_withdrawn_admission_has_no_time() -> None:
    status = status_at(EPOCH, {"phase": "Pending"}, WAITING)
    status = status_at(EPOCH + 10, status, WAITING, admitted=False, withdrawn=True)
    assert admitted_at(status) == 0
    assert admitted_at(status_at(EPOCH + 20, status, WAITING)) == EPOCH + 20


def test_next_admission_of_a_group_that_became_pending_again_has_its_own_time() -> None:
    status = status_at(EPOCH, {"phase": "Pending"}, WAITING)
    assert admitted_at(status_at(EPOCH + 10, {**status, "phase": "Pending"}, WAITING)) == EPOCH + 10


@pytest.mark.parametrize("odd", [None, 5, "yesterday"])
def test_admission_with_an_unreadable_time_has_none(odd: object) -> None:
    entry = {"type": "phalanx.dev/Admitted", "status": "True", "lastTransitionTime": odd}
    assert admitted_at({"phase": "Inqueue", "conditions": [entry]}) == 0

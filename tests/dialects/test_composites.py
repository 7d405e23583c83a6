"""CompositePodGroups: decoding, and their status."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.dialects.enricher import no_changes
from phalanx.dialects.families.composites import (
    CompositeObjects,
    CompositeStatusInput,
    composite_conditions,
    read_composite,
)
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.warnings import ObjectWarnings
from phalanx.model.composite import Composite
from phalanx.model.events import CompositeRemoved, CompositeUpdated
from phalanx.model.gang import GangKey

from .objects import EPOCH, group

KIND = ServedKind("scheduling.k8s.io", "v1alpha3", "compositepodgroups", "CompositePodGroup")
KEY = GangKey("default", "g")
NOW, NOW_TEXT = 1_900_000_000, "2030-03-17T17:46:40Z"
SCHEDULED = "CompositePodGroupInitiallyScheduled"


def document(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    reference = {"workloadName": "w", "templateName": "t"}
    return group(status=status, **{"workloadRef": reference, "schedulingPolicy": {"basic": {}}, **spec})


def read(**spec: Any) -> Composite:
    return read_composite(KIND, document(**spec))


def test_every_field_of_a_composite_is_read() -> None:
    found = read(
        parentCompositePodGroupName="top",
        schedulingPolicy={"gang": {"minGroupCount": 3}},
        disruptionMode={"all": {}},
        priority=7,
        preemptionPolicy="Never",
        status={"conditions": [{"type": SCHEDULED, "status": "True"}]},
    )
    assert (found.key, found.min_groups, found.parent) == (KEY, 3, GangKey("default", "top"))
    assert (found.workload, found.priority, found.preempts, found.unit) == ("w", 7, False, True)
    assert (found.initiated, found.created, found.problem) == (True, EPOCH, None)


def test_basic_composite_requires_nothing() -> None:
    found = read()
    assert (found.min_groups, found.parent, found.priority) == (0, None, None)
    assert (found.preempts, found.unit, found.initiated) == (True, False, False)


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ({"ring": {}}, "UnknownPolicy"),
        ({}, "InvalidComposite"),
        ({"gang": {"minGroupCount": 0}}, "InvalidComposite"),
        ({"gang": {"minCount": 2}}, "InvalidComposite"),
    ],
)
def test_unsupported_policy_holds_the_groups_below(policy: object, code: str) -> None:
    problem = read(schedulingPolicy=policy).problem
    assert problem is not None
    assert problem.code == code


def test_composites_are_created_changed_and_deleted() -> None:
    objects = CompositeObjects(ObjectWarnings())
    ((first,), _) = objects.updated(KIND, document())
    assert isinstance(first, CompositeUpdated)
    assert objects.updated(KIND, document()) == no_changes()
    ((changed,), _) = objects.updated(KIND, document(priority=3))
    assert isinstance(changed, CompositeUpdated)
    assert changed.composite.priority == 3
    assert objects.unserved(KIND) == ([CompositeRemoved(KEY)], set())
    assert objects.removed(KIND, "default", "g") == no_changes()


def test_system_priority_is_for_system_namespaces_only() -> None:
    notices = ObjectWarnings()
    objects = CompositeObjects(notices)
    ((found,), _) = objects.updated(KIND, document(priority=2_000_000_000))
    assert isinstance(found, CompositeUpdated)
    assert found.composite.priority is None
    objects.updated(KIND, document(priority=2_000_000_000))
    assert [notice.reason for notice in notices.drain()] == ["SystemPriority"]
    objects.updated(KIND, document(priority=7))
    assert notices.drain() == []


def test_undecodable_composite_is_reported_and_does_not_dissolve_its_tree() -> None:
    notices = ObjectWarnings()
    ((told,), _) = CompositeObjects(notices).malformed(KIND, "default", "g", "u", "odd")
    assert isinstance(told, CompositeUpdated)
    assert told.composite.unit
    assert told.composite.problem is not None
    assert [notice.reason for notice in notices.drain()] == ["InvalidComposite"]


def written(standing: CompositeStatusInput, told: list[dict[str, Any]] | None = None) -> dict[str, tuple[str, str]]:
    fresh = composite_conditions(told or [], standing, NOW)
    return {entry["type"]: (entry["status"], entry["reason"]) for entry in fresh}


def test_condition_has_the_reason_of_waiting_and_the_time_of_placement() -> None:
    (waits,) = composite_conditions([], CompositeStatusInput(4, False, "Unschedulable", "1 of 2"), NOW)
    assert waits == {
        "type": SCHEDULED,
        "status": "False",
        "reason": "Unschedulable",
        "message": "1 of 2",
        "observedGeneration": 4,
        "lastTransitionTime": NOW_TEXT,
    }
    assert written(CompositeStatusInput(4, False, "Unschedulable", "1 of 2"), [waits]) == {}
    assert written(CompositeStatusInput(4, placed=True), [waits]) == {SCHEDULED: ("True", "Scheduled")}


def test_condition_true_is_final() -> None:
    told = [{"type": SCHEDULED, "status": "True", "reason": "Scheduled"}]
    assert written(CompositeStatusInput(1, False, "Invalid", "a cycle"), told) == {}


def test_quota_block_is_written_as_a_condition_of_ours() -> None:
    held = CompositeStatusInput(0, False, "QuotaExceeded", "queue q is full", held=True)
    assert written(held) == {"phalanx.dev/Admitted": ("False", "QuotaExceeded")}
    told = composite_conditions([], held, NOW)
    assert written(CompositeStatusInput(placed=True), told) == {
        SCHEDULED: ("True", "Scheduled"),
        "phalanx.dev/Admitted": ("True", "Admitted"),
    }

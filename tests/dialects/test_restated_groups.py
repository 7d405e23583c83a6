"""PodGroups with another status, and changes of which another status is not all."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.model.gang import Gang, GangKey
from tests.dialects.objects import (
    DIALECTS,
    KUBE_BATCH,
    KUBE_BATCH_DESIGN,
    KUBE_BATCH_LAST,
    NATIVE,
    SIGS,
    VOLCANO,
    X_K8S,
    group,
)

KEY = GangKey("default", "g")
KINDS = [X_K8S, SIGS, VOLCANO, KUBE_BATCH, KUBE_BATCH_DESIGN, KUBE_BATCH_LAST, NATIVE]
ADMITTED = {"type": "phalanx.dev/Admitted", "status": "True", "lastTransitionTime": "2026-11-28T12:00:00Z"}
STATUSES: list[Any] = [
    {"phase": "Pending"},
    {"phase": "Inqueue", "conditions": [ADMITTED]},
    {"phase": "Running", "running": 2},
    {"phase": "Completed", "succeeded": 2},
    {"phase": 7, "conditions": "none"},
    None,
    "no object",
]


def stated(intake: Intake, kind: ServedKind, document: dict[str, Any]) -> tuple[Gang | None, object]:
    """Return the gang and the status that follow from an object."""
    intake.group(kind, document)
    record = intake.group_record(KEY)
    return intake._gangs.gang(KEY), (record.status, record.generation) if record is not None else None


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.group)
def test_group_with_another_status_is_as_if_read_for_the_first_time(kind: ServedKind) -> None:
    known = Intake(["phalanx"])
    for number, status in enumerate([*STATUSES, *reversed(STATUSES)]):
        document = group(minMember=2, minResources={"cpu": "4"}, queue="q") | {"status": status}
        document["metadata"] |= {"resourceVersion": str(number), "generation": number}
        assert stated(known, kind, document) == stated(Intake(["phalanx"]), kind, document)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not NATIVE], ids=lambda kind: kind.group)
def test_group_is_read_again_only_if_more_than_its_status_has_changed(
    kind: ServedKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    intake, reads = Intake(["phalanx"]), []
    rules = DIALECTS.groups[kind.group, kind.plural]

    def read(resource: ServedKind, document: Any) -> Any:
        reads.append(document)
        return rules.read(resource, document)

    kinds = {**intake.group_objects._kinds, (kind.group, kind.plural): msgspec.structs.replace(rules, read=read)}
    monkeypatch.setattr(intake.group_objects, "_kinds", kinds)
    for change in (
        {"minMember": 2},
        {"minMember": 2, "status": {"phase": "Running"}},
        {"minMember": 2, "status": {"phase": "Running"}, "annotations": {"a": "b"}},
        {"minMember": 3, "status": {"phase": "Running"}, "annotations": {"a": "b"}},
        {"minMember": 3, "annotations": {"a": "b"}},
        {"minMember": 3, "annotations": {"a": "b"}, "uid": "another"},
    ):
        intake.group(kind, group(**change))
    assert len(reads) == 4
    gang = intake._gangs.gang(KEY)
    assert gang is not None
    assert gang.min_member == 3
    assert gang.source is not None
    assert gang.source.uid == "another"


def test_group_that_could_not_be_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    intake, fails = Intake(["phalanx"]), True
    rules = DIALECTS.groups[VOLCANO.group, VOLCANO.plural]

    def read(resource: ServedKind, document: Any) -> Any:
        if fails:
            raise ValueError("a fault")
        return rules.read(resource, document)

    kinds = {
        **intake.group_objects._kinds,
        (VOLCANO.group, VOLCANO.plural): msgspec.structs.replace(rules, read=read),
    }
    monkeypatch.setattr(intake.group_objects, "_kinds", kinds)
    intake.group(VOLCANO, group(minMember=2))
    fails = False
    intake.group(VOLCANO, group(minMember=2, status={"phase": "Running"}))
    gang = intake._gangs.gang(KEY)
    assert gang is not None
    assert (gang.problem, gang.min_member) == (None, 2)

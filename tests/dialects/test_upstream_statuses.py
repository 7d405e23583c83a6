"""Written statuses against the definitions of the upstream projects."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.quotas.usage_status import QuotaUsage
from phalanx.model.gang import Gang, GangCounts, GangKey, GroupRef, Problem
from phalanx.model.verdict import Verdict
from phalanx_local.schema.structural import StructuralSchema
from tests.dialects.objects import desired_status, read_account, usage_status
from tests.upstream import SHAPES, Shape

GROUPS = [shape for shape in SHAPES if shape.name.startswith("podgroups")]
ACCOUNTS = [shape for shape in SHAPES if not shape.name.startswith("podgroups")]
COUNTS = [
    GangCounts(),
    GangCounts(pending=2),
    GangCounts(gated=2),
    GangCounts(bound=2),
    GangCounts(running=1, pending=1),
    GangCounts(running=2, failed=1),
    GangCounts(running=1, terminating=1),
    GangCounts(failed=2),
    GangCounts(succeeded=2),
]


def kind_of(shape: Shape) -> ServedKind:
    definition = shape.definition()["spec"]
    names = definition["names"]
    return ServedKind(definition["group"], definition["versions"][0]["name"], names["plural"], names["kind"])


@cache
def _schema(shape_id: str) -> StructuralSchema:
    """Compiling a schema takes longer than a thousand validations."""
    (shape,) = (shape for shape in SHAPES if shape.id == shape_id)
    return StructuralSchema({"type": "object", "properties": {"status": shape.status()}})


def faults(shape: Shape, status: dict[str, Any]) -> list[str]:
    """Return the errors of an API server with the project's definition about a status, including dropped fields."""
    structural = _schema(shape.id)
    document = {"status": status}
    return [*structural.prune(document), *map(str, structural.validate(document))]


@pytest.mark.parametrize("shape", GROUPS, ids=lambda shape: shape.id)
@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_status_of_a_group_is_accepted_upstream(shape: Shape, counts: GangCounts) -> None:
    kind = kind_of(shape)
    ref = GroupRef(kind.group, kind.version, kind.kind, kind.plural, "default", "g", "u")
    for problem in (None, Problem("InvalidPodGroup", "bad")):
        gang = Gang(GangKey("default", "g"), source=ref, min_member=2, problem=problem)
        for verdict in (None, Verdict("NotEnoughResources", "0/4 nodes are available")):
            for admitted in (False, True):
                change = desired_status(
                    ref, {}, gang, counts, verdict=verdict, occupied_by="default/job", admitted=admitted, now=1
                )
                assert faults(shape, change.patch["status"] if change else {}) == []


HELD = {"cpu": 1500, "memory": 3 * 2**30, "nvidia.com/gpu": 2, "pods": 7}
PHASES = {"Pending": 1, "Inqueue": 2, "Running": 3, "Completed": 4, "Unknown": 5, "odd": 6}


@pytest.mark.parametrize("shape", ACCOUNTS, ids=lambda shape: shape.id)
@pytest.mark.parametrize("holdings", [QuotaUsage({}, {}), QuotaUsage(HELD, HELD, PHASES)], ids=["empty", "full"])
@pytest.mark.parametrize("state", ["", "Open", "Closing", "Closed"])
def test_status_of_a_queue_or_quota_is_accepted_upstream(shape: Shape, holdings: QuotaUsage, state: str) -> None:
    said = {"state": state} if state and "state" in shape.fields else {}
    metadata = {"name": "q", "namespace": "team-a"}
    document = {"metadata": metadata, "spec": {"max": {"pods": 9}}, "status": said}
    (account,) = read_account(kind_of(shape), document).accounts
    for tell_state in (True, False):
        change = usage_status(said, account, holdings, tell_state=tell_state)
        if change:
            assert faults(shape, {**said, **change}) == []


def test_upstream_schemas_distinguish_good_from_bad_statuses() -> None:
    by_id = {shape.id: shape for shape in SHAPES}
    queue, group = (by_id[f"{kind}.scheduling.volcano.sh of Volcano 1.14"] for kind in ("queues", "podgroups"))
    assert faults(by_id["queues.scheduling.volcano.sh of Volcano 1.7"], {"state": "Open"})
    assert faults(queue, {"state": "Shut"})
    assert faults(queue, {"running": -1})
    assert faults(queue, {"used": {}})
    assert faults(group, {"phase": "Finished"})
    assert faults(group, {"conditions": [{"lastTransitionTime": 3}]})

"""Hostile fields in a tenant's objects: each is named, and affects only the tenant's own objects."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from phalanx.cluster.state import ClusterState
from phalanx.dialects.core import decode_namespace, decode_node
from phalanx.dialects.intake import Intake
from phalanx.dialects.reader import decode_group, decode_object
from phalanx.model.events import AccountUpdated
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler
from tests.dialects.objects import QUOTA, VOLCANO, VOLCANO_QUEUE, X_K8S, decode, group, pod_document

LONG = "9" * 5_000
DEEP = "[" * 100_000
SPEC = "gang.scheduling.koordinator.sh/network-topology-spec"
GANG = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "1"}


class Cluster:
    def __init__(self) -> None:
        self.intake = Intake(["phalanx"])
        self.state = ClusterState()
        self.scheduler = Scheduler(self.state, load_policy())
        status = {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}}
        self.take(self.intake.node(decode_node(msgspec.json.encode({"metadata": {"name": "a"}, "status": status}))))

    def take(self, events: list[Any]) -> None:
        for event in events:
            self.state.apply(event)

    def pod(self, name: str, **details: Any) -> None:
        self.take(self.intake.pod(decode(pod_document(name, **details))))

    def bound(self) -> list[str]:
        plan = self.scheduler.cycle(0.0)
        assert list(self.state.ledger.discrepancies(self.state.pods.values())) == []
        return [bind.uid for bind in plan.binds]

    def told(self) -> str:
        return "\n".join(notice.message for notice in self.intake.drain_warnings())


@pytest.mark.parametrize("place", ["annotations", "labels"])
def test_weight_of_thousands_of_digits_is_refused_by_name(place: str) -> None:
    cluster = Cluster()
    metadata = {"name": "team", place: {"volcano.sh/namespace.weight": LONG}}
    cluster.take(cluster.intake.namespace(decode_namespace(msgspec.json.encode({"metadata": metadata}))))
    assert "volcano.sh/namespace.weight" in cluster.told()
    cluster.pod("p", namespace="team")
    assert cluster.bound() == ["uid-p"]


@pytest.mark.parametrize(
    "text", [DEEP, LONG, '{"gatherStrategy":' + DEEP, "\ufffd", '{"gatherStrategy":[{"podCountMultiple":1e99}]}']
)
def test_unreadable_topology_is_skipped_in_every_cycle(text: str) -> None:
    cluster = Cluster()
    cluster.pod("p", annotations={**GANG, SPEC: text})
    cluster.pod("q", annotations={**GANG, SPEC: text})
    cluster.pod("other")
    assert cluster.bound() == ["uid-p", "uid-q", "uid-other"]
    assert SPEC in cluster.told()
    cluster.take(cluster.intake.pod_removed("default", "q", "uid-q"))
    cluster.take(cluster.intake.pod_removed("default", "p", "uid-p"))
    assert "uid-p" not in cluster.state.pods


@pytest.mark.parametrize(
    "text", [DEEP, LONG, '{"window":"' + LONG + 'h"}', '{"window":"1h","hours":{"cpu":"' + LONG + '"}}']
)
def test_unreadable_budget_is_ignored(text: str) -> None:
    cluster = Cluster()
    queue = {"metadata": {"name": "q", "uid": "u", "annotations": {"phalanx.dev/budget": text}}, "spec": {}}
    cluster.take(cluster.intake.account(VOLCANO_QUEUE, queue))
    cluster.take(cluster.intake.account_removed(VOLCANO_QUEUE, "", "q"))
    cluster.take(cluster.intake.account(VOLCANO_QUEUE, queue))
    assert "phalanx.dev/budget" in cluster.told()
    cluster.pod("p")
    assert cluster.bound() == ["uid-p"]


@pytest.mark.parametrize(
    ("resource", "field"), [(X_K8S, "minMember"), (VOLCANO, "minMember"), (VOLCANO_QUEUE, "weight")]
)
@pytest.mark.parametrize("value", [LONG, "1e999", "[" * 1000 + "]" * 1000], ids=["digits", "exponent", "deep"])
def test_field_beyond_all_limits_is_named(resource: Any, field: str, value: str) -> None:
    cluster = Cluster()
    document = msgspec.json.encode({**group(), "spec": {field: "HERE"}}).replace(b'"HERE"', value.encode())
    read = (decode_object if resource is VOLCANO_QUEUE else decode_group)(document)
    take = cluster.intake.account if resource is VOLCANO_QUEUE else cluster.intake.group
    cluster.take(take(resource, read))
    if resource is VOLCANO_QUEUE:
        assert f"spec.{field}" in cluster.told()
    else:
        (gang,) = cluster.state.gangs.values()
        assert gang.spec is not None
        assert gang.spec.problem is not None
        assert f"spec.{field}" in gang.spec.problem.message
    cluster.pod("p")
    assert cluster.bound() == ["uid-p"]


@pytest.mark.parametrize("amount", [LONG, "1e" + LONG, "0." + LONG])
def test_amount_of_thousands_of_digits_is_named(amount: str) -> None:
    cluster = Cluster()
    document = {
        "metadata": {"name": "q", "namespace": "default", "uid": "u"},
        "spec": {"min": {"cpu": amount}, "max": {}},
    }
    (told,) = cluster.intake.account(QUOTA, document)
    assert isinstance(told, AccountUpdated)
    assert told.account.problem is not None
    assert "spec.min.cpu" in told.account.problem.message

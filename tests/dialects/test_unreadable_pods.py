"""Pending pods with an unreadable field: held until the correction, not placed without the field."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from phalanx.cluster.state import ClusterState
from phalanx.dialects.core import decode_node
from phalanx.dialects.intake import Intake
from phalanx.model.decisions import Plan
from phalanx.model.pod import MemberState
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler
from tests.dialects.objects import X_K8S, container, decode, group, pod, pod_document

BROKEN_SPECS: list[tuple[str, Any]] = [
    ("nodeSelector", ["a"]),
    ("nodeSelector", "a"),
    ("affinity", 7),
    ("affinity", {"nodeAffinity": "x"}),
    ("affinity", {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": "x"}}),
    ("tolerations", "x"),
    ("tolerations", ["x"]),
    ("containers", "what"),
    ("containers", [7]),
    ("initContainers", {}),
    ("topologySpreadConstraints", "x"),
    ("schedulingGates", "x"),
    ("volumes", "x"),
    ("volumes", ["x"]),
    ("resourceClaims", "x"),
    ("schedulingGroup", "x"),
    ("schedulingGroup", {"podGroupName": ["g"]}),
    ("workloadRef", 7),
    ("overhead", "x"),
    ("hostNetwork", "perhaps"),
]


class Cluster:
    def __init__(self) -> None:
        self.intake = Intake(["phalanx"])
        self.state = ClusterState()
        status = {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}}
        node = {"metadata": {"name": "a", "labels": {"disk": "ssd"}}, "status": status}
        self.take(self.intake.node(decode_node(msgspec.json.encode(node))))

    def take(self, events: list[Any]) -> None:
        for event in events:
            self.state.apply(event)

    def pod(self, document: dict[str, Any]) -> None:
        self.take(self.intake.pod(decode(document)))

    def plan(self) -> Plan:
        return Scheduler(self.state, load_policy()).cycle(0.0)


def held(plan: Plan, uid: str = "uid-p") -> str:
    """Return the message of the one verdict, which refuses the pod."""
    assert uid not in [bind.uid for bind in plan.binds]
    (verdict,) = [entry.verdict for entry in plan.pods if entry.uid == uid]
    assert verdict is not None
    assert verdict.code == "UnreadablePod"
    return verdict.message


@pytest.mark.parametrize("requests", [{"cpu": "1"}, {}], ids=["allocate", "backfill"])
@pytest.mark.parametrize(("field", "value"), BROKEN_SPECS)
def test_single_pod_with_an_unreadable_field_is_held_and_the_field_is_named(
    field: str, value: Any, requests: dict[str, Any]
) -> None:
    cluster = Cluster()
    spec: dict[str, Any] = {"containers": [container(**requests)], field: value}
    cluster.pod(pod_document(**spec))
    assert f"spec.{field}" in held(cluster.plan())


@pytest.mark.parametrize("field", ["labels", "annotations"])
@pytest.mark.parametrize("value", ["x", ["x"], 7])
def test_pod_with_an_unreadable_gang_does_not_start_alone(field: str, value: Any) -> None:
    cluster = Cluster()
    document = pod_document()
    document["metadata"][field] = value
    cluster.pod(document)
    assert f"metadata.{field}" in held(cluster.plan())


@pytest.mark.parametrize(("value", "text"), [("much", "'much'"), ("-1", "'-1'"), (True, "true"), (["1"], '["1"]')])
def test_unreadable_amount_is_named_with_its_container_and_value(value: Any, text: str) -> None:
    cluster = Cluster()
    cluster.pod(pod_document(containers=[container(cpu="1"), container("side", cpu=value)]))
    message = held(cluster.plan())
    assert "spec.containers[1].resources.requests.cpu" in message
    assert text in message


def test_other_pods_of_the_same_class_are_placed() -> None:
    cluster = Cluster()
    cluster.pod(pod_document("good", nodeSelector={}))
    cluster.pod(pod_document("p", nodeSelector=["a"]))
    cluster.pod(pod_document("well", nodeSelector={}))
    plan = cluster.plan()
    held(plan)
    assert sorted(bind.uid for bind in plan.binds) == ["uid-good", "uid-well"]


def test_corrected_pod_is_placed() -> None:
    cluster = Cluster()
    cluster.pod(pod_document(nodeSelector=["a"]))
    held(cluster.plan())
    cluster.pod(pod_document(nodeSelector={"disk": "ssd"}))
    assert [bind.node for bind in cluster.plan().binds] == ["a"]


def test_unreadable_member_is_held_with_its_quorum() -> None:
    cluster = Cluster()
    cluster.take(cluster.intake.group(X_K8S, group(minMember=2)))
    labels = {"scheduling.x-k8s.io/pod-group": "g"}
    cluster.pod(pod_document("p", labels=labels, tolerations="x"))
    cluster.pod(pod_document("q", labels=labels))
    plan = cluster.plan()
    assert plan.binds == []
    (verdict,) = [entry.verdict for entry in plan.gangs]
    assert verdict is not None
    assert (verdict.code, "spec.tolerations" in verdict.message) == ("UnreadablePod", True)


@pytest.mark.parametrize(("field", "value"), BROKEN_SPECS)
def test_unreadable_bound_pod_still_occupies_its_node(field: str, value: Any) -> None:
    cluster = Cluster()
    cluster.pod(pod_document(node="a", phase="Running", **{field: value}))
    assert cluster.state.pods["uid-p"].state is MemberState.RUNNING
    assert [record.pod.name for record in cluster.state.pods.on(cluster.state.nodes.row("a"))] == ["p"]


LONG = "9" * 5_000


@pytest.mark.parametrize("amount", [LONG, "much", "-1", True, ["1"], "1e" + LONG])
def test_unreadable_bound_pod_leaves_the_remaining_room_of_its_node_usable(amount: Any) -> None:
    cluster = Cluster()
    cluster.pod(pod_document("p", node="a", phase="Running", containers=[container(cpu=amount, memory="1Gi")]))
    cluster.pod(pod_document("q", containers=[container(cpu="4", memory="4Gi")]))
    assert [bind.uid for bind in cluster.plan().binds] == ["uid-q"]
    held = cluster.state.pods["uid-p"]
    assert dict(held.pod.usage) == {"memory": 2**30}
    assert not held.pod.preemptable
    assert [notice.about.name for notice in cluster.intake.drain_warnings()] == ["p"]


def test_bound_pod_with_invalid_json_keeps_its_known_usage() -> None:
    cluster = Cluster()
    cluster.pod(pod_document("p", node="a", phase="Running", containers=[container(cpu="2")]))
    cluster.take(cluster.intake.malformed_pod("default", "p", "uid-p", "it is no JSON", b"{"))
    assert dict(cluster.state.pods["uid-p"].pod.usage) == {"cpu": 2000}
    cluster.take(cluster.intake.malformed_pod("default", "x", "uid-x", "it is no JSON", b'"nodeName":"a"'))
    cluster.pod(pod_document("q", containers=[container(cpu="6")]))
    assert [bind.uid for bind in cluster.plan().binds] == ["uid-q"]


def test_labels_of_other_types_are_read_as_text_and_hold_no_pod() -> None:
    cluster = Cluster()
    cluster.pod(pod_document(labels={"step": 7, "on": True}))
    assert [bind.uid for bind in cluster.plan().binds] == ["uid-p"]


def test_unreadable_preference_holds_no_pod() -> None:
    cluster = Cluster()
    cluster.take(cluster.intake.pod(pod(annotations={"volcano.sh/resource-strategy-weight": "{"})))
    assert [bind.uid for bind in cluster.plan().binds] == ["uid-p"]

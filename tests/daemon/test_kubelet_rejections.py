"""Pods that their kubelet rejected: which of them count, and from when."""

from __future__ import annotations

import json
from typing import Any

import pytest

from phalanx.cluster.state import ClusterState
from phalanx.daemon.kubelet_rejections import KubeletRejections
from phalanx.dialects.core import decode_pod
from phalanx.dialects.gangs.plan_marks import PLAN_ANNOTATION, encode_mark
from phalanx.dialects.intake import Intake
from phalanx.dialects.pods.binding_marks import BINDING_ANNOTATION, encode_binding
from phalanx.dialects.signatures import Signer
from phalanx.model.decisions import Bind
from phalanx.model.events import PodRejected
from phalanx.model.gang import GangKey
from phalanx.model.pod import PlanMark

BOUND, NOW = 1_799_999_990, 1_800_000_000
OURS, THEIRS = Signer((("k1", b"secret"),)), Signer((("k1", b"guess"),))


class World:
    """Pods of one node as a scheduler process observes them. The process has bound those in `bound`."""

    def __init__(self, bound: tuple[str, ...] = ("p",), signer: Signer = OURS) -> None:
        self.state, self.intake = ClusterState(), Intake(["phalanx"], signer=signer)
        self.rejected: list[PodRejected] = []
        self.rejections = KubeletRejections(self.state, self.rejected.append, lambda: NOW + 0.5)
        self.rejections.pods_bound([Bind(uid, "ns", uid, "n1") for uid in bound])

    def see(
        self,
        phase: str,
        reason: str = "",
        scheduler: str = "phalanx",
        uid: str = "p",
        node: str = "n1",
        **metadata: Any,
    ) -> None:
        """Pass a pod to the check as the process does."""
        requests = {"cpu": "1", "nvidia.com/gpu": "1"}
        document: dict[str, Any] = {
            "metadata": {"name": uid, "namespace": "ns", "uid": uid, **metadata},
            "spec": {
                "schedulerName": scheduler,
                "nodeName": node,
                "containers": [{"name": "main", "resources": {"requests": requests}}],
            },
            "status": {"phase": phase, "reason": reason},
        }
        pod = decode_pod(json.dumps(document).encode())
        self.rejections.pod_seen(pod)
        for event in self.intake.pod(pod):
            self.state.apply(event)
        assert list(self.rejections.report()) == []

    @property
    def reported(self) -> list[tuple[str, str, str, int]]:
        return [(event.node, event.reason, event.namespace, event.at) for event in self.rejected]


@pytest.mark.parametrize("reason", ["OutOfcpu", "OutOfnvidia.com/gpu", "UnexpectedAdmissionError", "NodeAffinity"])
def test_rejected_pod_is_reported_once(reason: str) -> None:
    world = World()
    world.see("Pending")
    world.see("Failed", reason)
    world.see("Failed", reason)
    assert world.reported == [("n1", reason, "ns", NOW)]


@pytest.mark.parametrize("reason", ["", "Evicted", "DeadlineExceeded", "NodeLost"])
def test_pod_that_fails_otherwise_is_not_reported(reason: str) -> None:
    world = World()
    world.see("Running")
    world.see("Failed", reason)
    assert world.reported == []


@pytest.mark.parametrize("reason", ["OutOf", "OutOfexample.com/card", "OutOf" + "x" * 100_000])
def test_reason_is_reported_without_a_resource_that_the_pod_does_not_request(reason: str) -> None:
    world = World()
    world.see("Pending")
    world.see("Failed", reason)
    assert world.reported == [("n1", "OutOf", "ns", NOW)]


def test_pod_with_a_node_that_the_user_chose_is_not_reported() -> None:
    world = World(bound=())
    world.see("Pending")
    world.see("Failed", "NodeAffinity")
    assert world.reported == []


def test_pod_that_was_bound_to_another_node_than_planned_is_not_reported() -> None:
    world = World()
    world.see("Pending", node="n2")
    world.see("Failed", "NodeAffinity", node="n2")
    assert world.reported == []


def test_running_pod_with_the_status_of_a_rejection_is_not_reported_without_a_mark() -> None:
    world = World()
    world.see("Pending")
    world.see("Running")
    world.see("Failed", "OutOfcpu")
    assert world.reported == []


def test_pod_of_an_earlier_process_counts_by_the_mark_of_its_binding() -> None:
    world = World(bound=())
    annotations = encode_binding(OURS, "p", "n1", BOUND)
    world.see("Pending", annotations=annotations)
    world.see("Failed", "OutOfcpu", annotations=annotations)
    assert world.reported == [("n1", "OutOfcpu", "ns", NOW)]


def test_rejection_while_no_process_ran_counts_from_the_time_of_the_binding() -> None:
    world = World(bound=())
    world.see("Failed", "OutOfcpu", annotations=encode_binding(OURS, "p", "n1", BOUND))
    assert world.reported == [("n1", "OutOfcpu", "ns", BOUND)]


def test_pod_that_was_bound_longer_ago_than_any_back_off_is_not_reported() -> None:
    world = World(bound=())
    world.see("Failed", "OutOfcpu", annotations=encode_binding(OURS, "p", "n1", NOW - 480))
    assert world.reported == []


def test_member_of_an_earlier_process_counts_by_the_mark_of_its_plan() -> None:
    world = World(bound=())
    mark = encode_mark(PlanMark("c1", 2, BOUND), OURS, "p", GangKey("ns", "g"))
    world.see(
        "Failed",
        "OutOfcpu",
        annotations={PLAN_ANNOTATION: mark},
        labels={
            "pod-group.scheduling.sigs.k8s.io/name": "g",
            "pod-group.scheduling.sigs.k8s.io/min-available": "2",
        },
    )
    assert world.reported == [("n1", "OutOfcpu", "ns", BOUND)]


@pytest.mark.parametrize(
    "mark",
    [
        encode_binding(THEIRS, "p", "n1", BOUND)[BINDING_ANNOTATION],
        encode_binding(OURS, "another pod", "n1", BOUND)[BINDING_ANNOTATION],
        encode_binding(OURS, "p", "n2", BOUND)[BINDING_ANNOTATION],
        encode_binding(OURS, "p", "n1", BOUND)[BINDING_ANNOTATION].replace("1799", "1899"),
        f"{BOUND}/",
        "",
    ],
    ids=["other key", "other pod", "other node", "other time", "unsigned", "empty"],
)
def test_mark_that_is_not_of_this_binding_does_not_count(mark: str) -> None:
    world = World(bound=())
    world.see("Pending", annotations={BINDING_ANNOTATION: mark})
    world.see("Failed", "OutOfcpu", annotations={BINDING_ANNOTATION: mark})
    assert world.reported == []


def test_rejection_without_a_mark_before_the_scheduler_started_is_not_reported() -> None:
    world = World(bound=())
    world.see("Failed", "OutOfcpu")
    assert world.reported == []


def test_pods_of_other_schedulers_are_not_reported() -> None:
    world = World()
    world.see("Pending", scheduler="default-scheduler")
    world.see("Failed", "OutOfcpu", scheduler="default-scheduler")
    assert world.reported == []


def test_deleted_pods_leave_no_trace() -> None:
    world = World()
    world.see("Pending")
    world.rejections.pod_gone("p")
    assert not world.rejections._bound

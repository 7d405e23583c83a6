"""Pods that their kubelet rejected."""

from __future__ import annotations

import json
from typing import Any

import pytest

from phalanx.cluster.state import ClusterState
from phalanx.daemon.kubelet_rejections import KubeletRejections
from phalanx.dialects.core import decode_pod
from phalanx.dialects.intake import Intake


class World:
    def __init__(self) -> None:
        self.state, self.intake = ClusterState(), Intake(["phalanx"])
        self.told: list[tuple[str, str]] = []
        self.refusals = KubeletRejections(self.state, lambda node, reason: self.told.append((node, reason)))

    def see(self, phase: str, reason: str = "", scheduler: str = "phalanx") -> None:
        """Pass a pod to the check as the observer does."""
        document: dict[str, Any] = {
            "metadata": {"name": "p", "namespace": "ns", "uid": "p"},
            "spec": {"schedulerName": scheduler, "nodeName": "n1", "containers": [{"name": "main"}]},
            "status": {"phase": phase, "reason": reason},
        }
        pod = decode_pod(json.dumps(document).encode())
        self.refusals.pod_seen(pod)
        for event in self.intake.pod(pod):
            self.state.apply(event)


@pytest.mark.parametrize("reason", ["OutOfcpu", "OutOfnvidia.com/gpu", "UnexpectedAdmissionError", "NodeAffinity"])
def test_rejected_pod_is_reported_once(reason: str) -> None:
    world = World()
    world.see("Pending")
    world.see("Failed", reason)
    world.see("Failed", reason)
    assert world.told == [("n1", reason)]


@pytest.mark.parametrize("reason", ["", "Evicted", "DeadlineExceeded", "NodeLost"])
def test_a_pod_that_fails_otherwise_is_none(reason: str) -> None:
    world = World()
    world.see("Running")
    world.see("Failed", reason)
    assert world.told == []


def test_rejection_before_the_scheduler_started_is_not_reported() -> None:
    world = World()
    world.see("Failed", "OutOfcpu")
    assert world.told == []


def test_pods_of_other_schedulers_are_theirs() -> None:
    world = World()
    world.see("Pending", scheduler="default-scheduler")
    world.see("Failed", "OutOfcpu", scheduler="default-scheduler")
    assert world.told == []

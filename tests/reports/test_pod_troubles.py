"""Reasons of pods with a node that do not run, read from their status."""

from __future__ import annotations

import json
from typing import Any

import pytest

from phalanx.reports.pod_troubles import PodTrouble, pod_trouble

BROKEN = {"name": "main", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}}
STARTING = {"name": "side", "state": {"waiting": {"reason": "ContainerCreating"}}}
VOLUMES = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "WaitingForVolumes",
    "message": "waits for claim data",
}


def found(node: str = "n1", **status: Any) -> PodTrouble | None:
    pod = {"metadata": {"name": "p", "uid": "u"}, "spec": {"nodeName": node}, "status": status}
    answer = pod_trouble(json.dumps(pod).encode())
    assert answer is None or answer[0] == "u"
    return answer[1] if answer is not None else None


def test_first_container_with_another_reason_than_its_start_counts() -> None:
    assert found(containerStatuses=[STARTING, BROKEN]) == PodTrouble("CrashLoopBackOff", "back-off", "main")
    assert found(initContainerStatuses=[BROKEN], containerStatuses=[STARTING]) is not None
    assert found(containerStatuses=[STARTING]) is None


def test_pod_that_waits_for_its_volumes_has_no_node() -> None:
    assert found("", conditions=[VOLUMES]) == PodTrouble("WaitingForVolumes", "waits for claim data")
    assert found("n1", conditions=[VOLUMES]) is None


@pytest.mark.parametrize(
    "status",
    [{"containerStatuses": "waiting"}, {"containerStatuses": [{"state": "waiting"}]}, {"containerStatuses": [7]}],
)
def test_status_of_another_type_counts_as_none(status: dict[str, Any]) -> None:
    assert found(**status) is None

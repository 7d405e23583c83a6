"""Ranks and leaders of members, from the annotations of different controllers."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.dialects.gangs.declaration import TASK_SPEC
from phalanx.dialects.intake import Intake
from phalanx.dialects.pods.ranks import NO_INDEX, index_of, leads
from phalanx.model.events import GangUpdated, PodUpdated
from tests.dialects.objects import pod

GANG = {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "1"}


@pytest.mark.parametrize(
    ("labels", "annotations", "index"),
    [
        ({}, {"volcano.sh/task-index": "3"}, 3),
        ({"batch.kubernetes.io/job-completion-index": "7"}, {}, 7),
        ({"training.kubeflow.org/replica-index": "0"}, {}, 0),
        ({"leaderworkerset.sigs.k8s.io/worker-index": "2"}, {}, 2),
        ({"apps.kubernetes.io/pod-index": "5"}, {}, 5),
        ({"batch.kubernetes.io/job-completion-index": "first"}, {}, NO_INDEX),
        ({}, {}, NO_INDEX),
    ],
)
def test_rank_of_a_member_is_read_from_every_source(
    labels: dict[str, str], annotations: dict[str, str], index: int
) -> None:
    assert index_of(pod("p", labels=labels, annotations=annotations).metadata) == index


@pytest.mark.parametrize(
    ("labels", "leader"),
    [
        ({TASK_SPEC: "master"}, True),
        ({TASK_SPEC: "worker"}, False),
        ({"training.kubeflow.org/job-role": "master", "training.kubeflow.org/replica-type": "worker"}, True),
        ({"training.kubeflow.org/replica-type": "Launcher"}, True),
        ({"training.kubeflow.org/replica-type": "chief"}, True),
        ({"ray.io/node-type": "head"}, True),
        ({"ray.io/node-type": "worker"}, False),
        ({"spark-role": "driver"}, True),
        ({"spark-role": "executor"}, False),
        ({"component": "jobmanager", "type": "flink-native-kubernetes"}, True),
        ({"component": "taskmanager"}, False),
        ({"dask.org/component": "scheduler"}, True),
        ({}, False),
    ],
)
def test_leader_of_a_gang_is_read_from_every_source(labels: dict[str, str], leader: bool) -> None:
    assert leads(pod("p", labels=labels).metadata) is leader


def told(kind: type[Any], **details: Any) -> Any:
    intake = Intake(["phalanx"])
    events = intake.pod(pod("p", **details))
    (found,) = [event for event in events if isinstance(event, kind)]
    return found, intake


def test_single_pod_is_no_leader() -> None:
    assert not told(PodUpdated, labels={"spark-role": "driver"})[0].pod.leads
    assert told(PodUpdated, labels={**GANG, "spark-role": "driver"})[0].pod.leads


def test_scale_up_delay_of_a_gang_is_read() -> None:
    said = {"phalanx.dev/scale-up-delay": "3m"}
    assert told(GangUpdated, labels=GANG, annotations=said)[0].gang.scale_up_delay == 180


def test_former_annotation_of_scale_up_delay_counts_with_a_notice() -> None:
    event, intake = told(GangUpdated, labels=GANG, annotations={"phalanx.dev/growth-delay": "3m"})
    assert event.gang.scale_up_delay == 180
    (warning,) = intake.drain_warnings()
    assert warning.reason == "FormerAnnotation"
    assert "phalanx.dev/growth-delay is called phalanx.dev/scale-up-delay now" in warning.message


def test_new_annotation_of_scale_up_delay_wins_over_the_former() -> None:
    both = {"phalanx.dev/growth-delay": "3m", "phalanx.dev/scale-up-delay": "5m"}
    event, intake = told(GangUpdated, labels=GANG, annotations=both)
    assert event.gang.scale_up_delay == 300
    assert intake.drain_warnings() == []


@pytest.mark.parametrize("text", ["soon", "-1s", "48h"])
def test_unreadable_delay_is_named_and_delays_nothing(text: str) -> None:
    event, intake = told(GangUpdated, labels=GANG, annotations={"phalanx.dev/scale-up-delay": text})
    assert event.gang.scale_up_delay == 0
    (warning,) = intake.drain_warnings()
    assert warning.reason == "InvalidScaleUpDelay"
    assert repr(text) in warning.message

"""Suspended owners: their groups give their admission back at once."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.dialects.kinds import ServedKind
from tests.dialects.objects import VOLCANO, group
from tests.workloads.played import JOB, JOBSET, RAY_CLUSTER, Played

RAY_JOB = ServedKind("ray.io", "v1", "rayjobs", "RayJob")
SPARK = ServedKind("sparkoperator.k8s.io", "v1beta2", "sparkapplications", "SparkApplication")
PYTORCH = ServedKind("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
SUSPENDED: list[tuple[ServedKind, dict[str, Any]]] = [
    (RAY_JOB, {"suspend": True}),
    (RAY_CLUSTER, {"suspend": True}),
    (SPARK, {"suspend": True}),
    (PYTORCH, {"runPolicy": {"suspend": True}}),
    (JOB, {"suspend": True}),
]
IDS = [kind.kind for kind, _ in SUSPENDED]


def admitted(play: Played) -> list[str]:
    """Return the groups that were admitted."""
    return play.admissions


def world(kind: ServedKind, **spec: Any) -> Played:
    """An admitted group of an owner has announced all CPUs, and another group waits for its admission."""
    play = Played().room(4).owner(kind, "first", **spec)
    of = f"{kind.group}/{kind.version}/{kind.kind}/first"
    play.pod_group(VOLCANO, "first-pg", of, minMember=4, minResources={"cpu": 4})
    return play.pod_group(VOLCANO, "second", phase="Pending", minMember=4, minResources={"cpu": 4})


@pytest.mark.parametrize(("kind", "suspension"), SUSPENDED, ids=IDS)
def test_group_of_a_suspended_owner_gives_its_admission_back_at_once(
    kind: ServedKind, suspension: dict[str, Any]
) -> None:
    play = world(kind).run()
    assert admitted(play) == []
    play.owner(kind, "first", **suspension).run()
    assert admitted(play) == ["second"]


@pytest.mark.parametrize(("kind", "suspension"), SUSPENDED, ids=IDS)
def test_group_of_a_resumed_owner_counts_again(kind: ServedKind, suspension: dict[str, Any]) -> None:
    play = world(kind, **suspension).owner(kind, "first").run()
    assert admitted(play) == []


def test_group_is_not_admitted_while_its_owner_is_suspended() -> None:
    play = Played().room(4).owner(RAY_JOB, "first", suspend=True)
    play.pod_group(VOLCANO, "first-pg", "ray.io/v1/RayJob/first", phase="Pending", minResources={"cpu": 4}).run()
    assert admitted(play) == []
    play.owner(RAY_JOB, "first").run()
    assert admitted(play) == ["first-pg"]


@pytest.mark.parametrize(("held", "admissions"), [("false", ["first-pg"]), ("true", [])])
def test_admission_of_a_job_that_waits_suspended_in_a_queue_resumes_it(held: str, admissions: list[str]) -> None:
    """Its group must be admitted while it is suspended, unless it is held."""
    play = Played().room(4)
    document = group("first", namespace="ns", uid="first", annotations={"phalanx.dev/hold": held}, suspend=True)
    document["metadata"]["labels"] = {"phalanx.dev/queue": "default"}
    play._take(play.intake.owners.updated(JOB, document))
    play.pod_group(VOLCANO, "first-pg", "batch/v1/Job/first", phase="Pending", minResources={"cpu": 4}).run()
    assert admitted(play) == admissions


def test_suspended_job_set_of_a_train_job_does_not_block_the_group_of_the_train_job() -> None:
    """The TrainJob can wait in a queue, and its JobSet is suspended until then."""
    jobs = [{"name": "node", "replicas": 1, "template": {"spec": {"parallelism": 2, "completions": 2}}}]
    play = Played().room(4)
    play.owner(JOBSET, "t-set", of="trainer.kubeflow.org/v1/TrainJob/t", suspend=True, replicatedJobs=jobs)
    of = "trainer.kubeflow.org/v1/TrainJob/t"
    play.pod_group(VOLCANO, "t-pg", of, phase="Pending", minMember=2, minResources={"cpu": 2}).run()
    assert admitted(play) == ["t-pg"]


def test_suspended_owner_does_not_affect_groups_of_another_uid() -> None:
    play = world(RAY_JOB).owner(RAY_JOB, "other", suspend=True).run()
    assert admitted(play) == []


def test_kind_of_an_owner_is_watched_once_a_group_needs_it() -> None:
    play = Played().pod_group(VOLCANO, "g", "sparkoperator.k8s.io/v1beta2/SparkApplication/first")
    assert (SPARK.group, SPARK.plural) in play.intake.workloads.wanted

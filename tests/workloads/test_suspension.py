"""Suspended owners: their groups give their admission back at once."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.dialects.kinds import ServedKind
from tests.dialects.objects import VOLCANO
from tests.workloads.played import JOB, RAY_CLUSTER, Played

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


def test_suspended_owner_does_not_affect_groups_of_another_uid() -> None:
    play = world(RAY_JOB).owner(RAY_JOB, "other", suspend=True).run()
    assert admitted(play) == []


def test_kind_of_an_owner_is_watched_once_a_group_needs_it() -> None:
    play = Played().pod_group(VOLCANO, "g", "sparkoperator.k8s.io/v1beta2/SparkApplication/first")
    assert (SPARK.group, SPARK.plural) in play.intake.workloads.wanted

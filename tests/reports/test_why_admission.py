"""`phalanx why` of a group that waits for its admission names the groups that hold the room."""

from __future__ import annotations

from phalanx.model.events import GangUpdated
from phalanx.model.gang import Gang, GangKey
from phalanx.model.resources import requests_of

from .test_why import KEY, Cluster


def cluster(*held: int) -> Cluster:
    """Return ten cpu whose admitted groups use these amounts, and gang g that waits for admission with ten."""
    made = Cluster(10, 1)
    for number, cpus in enumerate(held):
        size = requests_of({"cpu": cpus * 1000})
        admitted = Gang(GangKey("ns", f"a{number}"), admission=True, min_resources=size, created=number)
        made.snapshot.state.apply(GangUpdated(admitted))
    size = requests_of({"cpu": 10_000})
    made.snapshot.state.apply(
        GangUpdated(Gang(KEY, admission=True, admitted=False, min_resources=size, created=100))
    )
    return made


def test_group_that_waits_for_admission_names_the_groups_and_amounts_before_it() -> None:
    answer = cluster(4, 6).gang()
    assert answer.reason == "AwaitingAdmission"
    assert answer.message.endswith("; admitted and not placed yet: gang ns/a1 (6 cpu), gang ns/a0 (4 cpu)")


def test_many_holders_are_counted() -> None:
    answer = cluster(1, 2, 3, 2, 1).gang()
    assert answer.message.endswith("gang ns/a2 (3 cpu), gang ns/a1 (2 cpu), gang ns/a3 (2 cpu), 2 more")


def test_group_that_waits_only_for_nodes_names_no_group() -> None:
    made = cluster()
    size = requests_of({"cpu": 13_000})
    made.snapshot.state.apply(
        GangUpdated(Gang(KEY, admission=True, admitted=False, min_resources=size, created=100))
    )
    answer = made.gang()
    assert answer.reason == "AwaitingAdmission"
    assert "admitted and not placed" not in answer.message


def test_slots_for_pods_are_not_told_of_holders() -> None:
    made = cluster()
    for key, admitted, cpus in ((GangKey("ns", "a"), True, 9), (KEY, False, 10)):
        size = requests_of({"cpu": cpus * 1000, "pods": 2})
        declared = Gang(key, admission=True, admitted=admitted, min_resources=size, created=cpus)
        made.snapshot.state.apply(GangUpdated(declared))
    assert made.gang().message.endswith("; admitted and not placed yet: gang ns/a (9 cpu)")

"""Domains of JobSets and LeaderWorkerSets: one for each part, as their operators and users request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.workloads.played import Played
from tests.workloads.test_jobsets import EXCLUSIVE, jobset, part, words_of
from tests.workloads.test_leader_workers import KEY, lws

RACK = "example.com/rack"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"


def racks(**nodes: int) -> Played:
    """Return nodes of one CPU each, with a number of nodes per rack."""
    play = Played()
    for rack, count in nodes.items():
        for number in range(count):
            play.node(f"{rack}-{number}", cpu=1, labels={RACK: rack, "kubernetes.io/hostname": f"{rack}-{number}"})
    return play


def racks_of(play: Played, names: Iterable[str]) -> set[str]:
    """Return the racks of pods; waiting ones are in ""."""
    return {play.where(name).partition("-")[0] for name in names}


def exclusive(key: str, value: str) -> dict[str, Any]:
    """Return the affinity that both operators' webhooks set on the first pod: near its own part, apart from all
    other ones.
    """

    def terms(*expressions: dict[str, Any]) -> dict[str, Any]:
        selector = {"matchExpressions": list(expressions)}
        return {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": selector, "topologyKey": RACK}]
        }

    own = {"key": key, "operator": "In", "values": [value]}
    others = ({"key": key, "operator": "Exists"}, {"key": key, "operator": "NotIn", "values": [value]})
    return {"affinity": {"podAffinity": terms(own), "podAntiAffinity": terms(*others)}}


def test_each_replicated_job_is_in_one_rack_where_its_pods_require_it() -> None:
    play = jobset(racks(a=3, b=3), part("left", 3), part("right", 2))
    for name, pods in (("left", 3), ("right", 2)):
        for number in range(pods):
            words = words_of(name, number)
            words["annotations"][REQUIRED] = RACK
            play.create(f"{name}-{number}", of=f"batch/v1/Job/js-{name}-0", **words)
    play.run()
    left, right = (racks_of(play, play.placed(name)) for name in ("left", "right"))
    assert len(play.placed()) == 5
    assert (len(left), len(right)) == (1, 1)
    assert left != right


def test_a_job_set_of_which_one_part_finds_no_rack_takes_no_room() -> None:
    play = jobset(racks(a=3, b=1), part("left", 3), part("right", 2))
    for name, pods in (("left", 3), ("right", 2)):
        for number in range(pods):
            words = words_of(name, number)
            words["annotations"][REQUIRED] = RACK
            play.create(f"{name}-{number}", of=f"batch/v1/Job/js-{name}-0", **words)
    assert play.run().placed() == []


def test_jobs_with_exclusive_racks_take_one_each() -> None:
    play = jobset(racks(a=2, b=2), part("w", 2, jobs=2), annotations={EXCLUSIVE: RACK})

    def create(job: int, number: int, **spec: Any) -> None:
        words = words_of("w", number, job, exclusive=RACK)
        words["labels"]["jobset.sigs.k8s.io/job-key"] = f"key-{job}"
        play.create(f"w-{job}-{number}", of=f"batch/v1/Job/js-w-{job}", **words, **spec)

    for job in (0, 1):
        create(job, 0, **exclusive("jobset.sigs.k8s.io/job-key", f"key-{job}"))
    play.run()
    leaders = [play.where(f"w-{job}-0").partition("-")[0] for job in (0, 1)]
    assert sorted(leaders) == ["a", "b"]
    for job in (0, 1):
        create(job, 1, nodeSelector={RACK: leaders[job]})
    play.run()
    assert [racks_of(play, [f"w-{job}-0", f"w-{job}-1"]) for job in (0, 1)] == [{leaders[0]}, {leaders[1]}]


def member(play: Played, group: int, worker: int, size: int = 4, **details: Any) -> Played:
    """A pod of subgroups of two."""
    index = worker // 2
    labels = {
        f"{KEY}name": "serve",
        f"{KEY}group-index": str(group),
        f"{KEY}worker-index": str(worker),
        f"{KEY}template-revision-hash": "r",
        f"{KEY}group-key": f"group-{group}",
        f"{KEY}subgroup-index": str(index),
        f"{KEY}subgroup-key": f"group-{group}-{index}",
    }
    notes = {f"{KEY}size": str(size), f"{KEY}subgroup-size": "2", **details.pop("annotations", {})}
    of = "apps/v1/StatefulSet/serve" + (f"-{group}" if worker else "")
    return play.create(f"s{group}-{worker}", of=of, labels=labels, annotations=notes, **details)


def test_the_subgroups_of_a_leader_worker_set_start_with_their_group_each_in_a_rack_of_its_own() -> None:
    """By the affinities that its webhook writes for `subgroup-exclusive-topology`."""
    play = lws(racks(a=2, b=2, c=1))
    for worker in range(3):
        member(play, 0, worker, **exclusive(f"{KEY}subgroup-key", f"group-0-{worker // 2}"))
    assert play.run().placed() == []
    member(play, 0, 3, **exclusive(f"{KEY}subgroup-key", "group-0-1")).run()
    assert len(play.placed()) == 4
    first, second = (racks_of(play, [f"s0-{2 * each}", f"s0-{2 * each + 1}"]) for each in (0, 1))
    assert {len(first), len(second)} == {1}
    assert first != second


def test_the_workers_of_a_group_are_in_one_rack_where_they_require_it() -> None:
    """The leader is a part of its own, as Kueue has it: racks with room for some of the workers will not do."""
    play = lws(racks(c=2, b=2, a=3))
    for worker in range(4):
        member(play, 0, worker, annotations={REQUIRED: RACK})
    play.run()
    assert len(play.placed()) == 4
    assert racks_of(play, ["s0-1", "s0-2", "s0-3"]) == {"a"}


def test_leaders_with_exclusive_racks_start_first_and_their_workers_follow() -> None:
    notes = {f"{KEY}exclusive-topology": RACK}
    play = lws(racks(a=4, b=4), annotations=notes)
    for group in (0, 1):
        member(play, group, 0, annotations=notes, **exclusive(f"{KEY}group-key", f"group-{group}"))
    play.run()
    leaders = [play.where(f"s{group}-0").partition("-")[0] for group in (0, 1)]
    assert sorted(leaders) == ["a", "b"]
    for group in (0, 1):
        for worker in (1, 2, 3):
            member(play, group, worker, annotations=notes, nodeSelector={RACK: leaders[group]})
    play.run()
    for group in (0, 1):
        assert racks_of(play, [f"s{group}-{worker}" for worker in range(4)]) == {leaders[group]}

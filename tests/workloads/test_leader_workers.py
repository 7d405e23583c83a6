"""LeaderWorkerSets: each group starts whole, unless its leader must run first."""

from __future__ import annotations

from typing import Any

from tests.workloads.played import LWS, Played

KEY = "leaderworkerset.sigs.k8s.io/"


def member(
    play: Played, group: int, worker: int, size: int = 4, revision: str = "r1", **annotations: str
) -> Played:
    labels = {
        f"{KEY}name": "serve",
        f"{KEY}group-index": str(group),
        f"{KEY}worker-index": str(worker),
        f"{KEY}template-revision-hash": revision,
    }
    name = f"serve-{group}" + (f"-{worker}" if worker else "")
    of = "apps/v1/StatefulSet/serve" + (f"-{group}" if worker else "")
    return play.create(name, of=of, labels=labels, annotations={f"{KEY}size": str(size), **annotations})


def lws(play: Played, size: int = 4, **spec: Any) -> Played:
    return play.owner(LWS, "serve", replicas=2, leaderWorkerTemplate={"size": size}, **spec)


def test_a_group_starts_whole_and_the_next_one_on_its_own() -> None:
    play = lws(Played().room(6))
    for group in range(2):
        for worker in range(4):
            member(play, group, worker)
    play.run()
    assert sorted(len([name for name in play.placed() if name.startswith(f"serve-{each}")]) for each in (0, 1)) == [
        0,
        4,
    ]


def test_the_leader_waits_for_its_workers() -> None:
    play = member(lws(Played().room(8)), 0, 0).run()
    assert play.placed() == []
    for worker in (1, 2, 3):
        member(play, 0, worker)
    assert len(play.run().placed()) == 4


def test_workers_that_come_only_when_their_leader_is_ready_are_not_waited_for() -> None:
    play = member(lws(Played().room(8), startupPolicy="LeaderReady"), 0, 0).run()
    assert play.placed() == ["serve-0"]
    assert play.gang_of("serve-0").later == "3 workers are created only after their leader is ready"
    member(play, 0, 1)
    member(play, 0, 2).run()
    assert play.placed() == ["serve-0"]
    assert len(member(play, 0, 3).run().placed()) == 4


def test_workers_that_come_only_when_their_leader_has_a_node_are_not_waited_for() -> None:
    exclusive: dict[str, Any] = {f"{KEY}exclusive-topology": "rack"}
    play = lws(Played().room(8), annotations=exclusive)
    assert member(play, 0, 0, **exclusive).run().placed() == ["serve-0"]


def test_without_the_object_the_sizes_on_pods_count_and_the_leader_starts_first() -> None:
    """It is unknown whether the leader must run before its workers exist, so it does not wait for them."""
    play = member(Played().room(8).not_readable(LWS), 0, 0)
    play.not_readable(LWS).run()
    assert play.placed() == ["serve-0"]
    member(play, 0, 1)
    member(play, 0, 2).run()
    assert play.placed() == ["serve-0"]
    assert len(member(play, 0, 3).run().placed()) == 4


def test_pods_of_an_older_revision_keep_their_own_size() -> None:
    play = lws(Played().room(8), size=4)
    member(play, 0, 0, size=2, revision="old")
    member(play, 0, 1, size=2, revision="old").run()
    assert len(play.placed()) == 2

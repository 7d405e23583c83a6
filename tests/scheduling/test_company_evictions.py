"""Pods that are kept out by others, not by a lack of room, have those others evicted."""

from __future__ import annotations

from phalanx.model.peers import Peers, PeerTerm
from phalanx.model.pod import PodClass

from .scenario import Scenario
from .test_company import HOST, ZONE, even, far, labelled, meaning, placements, pods, world

EVICTING = """
actions: "enqueue, allocate, preempt, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: nodeorder}]}]
"""


def busy(cpu: object = 1) -> Scenario:
    """A pod of app old on every node, and room beside it."""
    found = world(policy=EVICTING)
    for number, node in enumerate(("x1", "x2", "y1", "y2", "z1", "z2")):
        found.pod(f"old-{number}", node=node, more=labelled("old"), cpu=cpu)
    return found


def test_one_of_those_whom_a_pod_avoids_has_to_go() -> None:
    found = busy()
    pods(found, "vip", 1, "vip", far("old"), cpu=1, priority=9).run()
    assert len(found.evicted) == 1
    assert found.where("vip-0")


def test_everybody_in_a_zone_goes_for_a_pod_that_wants_it_free_of_them() -> None:
    found = busy().gone("old-4")
    pods(found, "vip", 1, "vip", far("old", ZONE), cpu=1, priority=9).run()
    assert found.evicted == ["old-5"]
    assert found.where("vip-0").startswith("z")


def test_who_avoids_the_newcomer_has_to_go() -> None:
    found = world(policy=EVICTING)
    for zone in "xyz":
        cls = PodClass(peers=Peers(anti=(PeerTerm(meaning("vip"), ZONE),)))
        found.pod(f"guard-{zone}", node=f"{zone}1", pod_class=cls, priority=5 if zone != "y" else 1, cpu=1)
    pods(found, "vip", 1, "vip", Peers(), cpu=1, priority=9).run()
    assert found.evicted == ["guard-y"]
    assert found.where("vip-0").startswith("y")


def test_an_even_spread_makes_room_in_the_zone_that_is_too_empty() -> None:
    found = world(per_zone=1, policy=EVICTING)
    found.pod("vip-x", node="x1", more=labelled("vip"), cpu=1, priority=9)
    found.pod("vip-y", node="y1", more=labelled("vip"), cpu=1, priority=9)
    for number in range(4):
        found.pod(f"small-{number}", node="z1", cpu=1)
    found.pod("small-4", node="x1", cpu=1)
    pods(found, "vip-new", 1, "vip", even("vip"), cpu=1, priority=9).run()
    assert len(found.evicted) == 1
    assert found.where("vip-new-0") == "z1"


def test_nobody_goes_who_does_not_matter() -> None:
    found = busy()
    for number in range(12):
        found.pod(f"other-{number}", node=f"{'xyz'[number % 3]}1", more=labelled("other"), cpu="100m")
    pods(found, "vip", 1, "vip", far("old"), cpu=1, priority=9).run()
    assert [name for name in found.evicted if not name.startswith("old")] == []
    assert len(found.evicted) == 1


def test_a_gang_that_wants_nodes_of_its_own_gets_as_many_as_it_needs() -> None:
    found = busy()
    found.gang("job", 3, priority=9)
    pods(found, "job", 3, "job", Peers(anti=(*far("old").anti, *far("job").anti)), gang="job", cpu=1).run()
    assert len(found.evicted) == 3
    assert len({placements(found)[f"job-{number}"] for number in range(3)}) == 3


def test_nobody_is_evicted_in_vain_for_who_has_to_be_near_to_nobody() -> None:
    found = busy()
    pods(found, "vip", 1, "vip", Peers(affinity=(PeerTerm(meaning("absent"), HOST),)), cpu=1, priority=9).run()
    assert found.evicted == []
    assert "didn't match pod affinity rules" in found.why_pod("vip-0").message

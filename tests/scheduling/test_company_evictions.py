"""Preemption for pods that anti-affinity or spread blocks, not a lack of room."""

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
    """A pod of app old on every node, with free room beside it."""
    found = world(policy=EVICTING)
    for number, node in enumerate(("x1", "x2", "y1", "y2", "z1", "z2")):
        found.pod(f"old-{number}", node=node, more=labelled("old"), cpu=cpu)
    return found


def test_one_pod_of_a_nodes_anti_affinity_is_evicted() -> None:
    found = busy()
    pods(found, "vip", 1, "vip", far("old"), cpu=1, priority=9).run()
    assert len(found.evicted) == 1
    assert found.where("vip-0")


def test_all_pods_of_a_zone_are_evicted_for_zone_anti_affinity() -> None:
    found = busy().gone("old-4")
    pods(found, "vip", 1, "vip", far("old", ZONE), cpu=1, priority=9).run()
    assert found.evicted == ["old-5"]
    assert found.where("vip-0").startswith("z")


def test_pod_with_anti_affinity_against_the_preemptor_is_evicted() -> None:
    found = world(policy=EVICTING)
    for zone in "xyz":
        cls = PodClass(peers=Peers(anti=(PeerTerm(meaning("vip"), ZONE),)))
        found.pod(f"guard-{zone}", node=f"{zone}1", pod_class=cls, priority=5 if zone != "y" else 1, cpu=1)
    pods(found, "vip", 1, "vip", Peers(), cpu=1, priority=9).run()
    assert found.evicted == ["guard-y"]
    assert found.where("vip-0").startswith("y")


def test_spread_evicts_in_the_zone_with_too_few_matching_pods() -> None:
    found = world(per_zone=1, policy=EVICTING)
    found.pod("vip-x", node="x1", more=labelled("vip"), cpu=1, priority=9)
    found.pod("vip-y", node="y1", more=labelled("vip"), cpu=1, priority=9)
    for number in range(4):
        found.pod(f"small-{number}", node="z1", cpu=1)
    found.pod("small-4", node="x1", cpu=1)
    pods(found, "vip-new", 1, "vip", even("vip"), cpu=1, priority=9).run()
    assert len(found.evicted) == 1
    assert found.where("vip-new-0") == "z1"


def test_pods_outside_of_the_anti_affinity_are_not_evicted() -> None:
    found = busy()
    for number in range(12):
        found.pod(f"other-{number}", node=f"{'xyz'[number % 3]}1", more=labelled("other"), cpu="100m")
    pods(found, "vip", 1, "vip", far("old"), cpu=1, priority=9).run()
    assert [name for name in found.evicted if not name.startswith("old")] == []
    assert len(found.evicted) == 1


def test_gang_with_anti_affinity_frees_one_node_per_member() -> None:
    found = busy()
    found.gang("job", 3, priority=9)
    pods(found, "job", 3, "job", Peers(anti=(*far("old").anti, *far("job").anti)), gang="job", cpu=1).run()
    assert len(found.evicted) == 3
    assert len({placements(found)[f"job-{number}"] for number in range(3)}) == 3


def test_unmet_affinity_evicts_no_pod() -> None:
    found = busy()
    pods(found, "vip", 1, "vip", Peers(affinity=(PeerTerm(meaning("absent"), HOST),)), cpu=1, priority=9).run()
    assert found.evicted == []
    assert "didn't match pod affinity rules" in found.why_pod("vip-0").message


def test_victim_of_zone_anti_affinity_that_terminates_slowly_is_awaited_and_not_replaced() -> None:
    found = busy().gone("old-4")
    pods(found, "vip", 1, "vip", far("old", ZONE), cpu=1, priority=9).work()
    (node,) = found.held().values()
    for _ in range(5):
        found.now += 100
        found.scheduler.activate_due(found.now)
        found.work()
        assert found.evicted == ["old-5"]
        assert found.held() == {"vip-0": node}
    assert found.depart().run().where("vip-0").startswith("z")

"""Units that cannot run on the present nodes hold no admission and no share of their queue."""

from __future__ import annotations

import pytest

from phalanx.model.account import AccountKey, Tree
from phalanx.model.events import PodRejected
from phalanx.model.pod import PodClass
from phalanx.model.topology import TopologyRule

from .scenario import Scenario, amounts
from .test_composites import World

pytestmark = pytest.mark.feature("unplaceable-units")
SSD = PodClass(node_selector=(("disk", "ssd"),))


def cluster() -> Scenario:
    """Two nodes of 8 cpu in two racks, and two queues."""
    world = Scenario().queue("a").queue("b")
    for number in (1, 2):
        world.node(f"n{number}", cpu=8, labels={"rack": f"r{number}"})
    return world


def admitted(world: Scenario, name: str, minimum: int, cpu: int, **pods: object) -> Scenario:
    """Declare an admitted gang in queue a with its pods."""
    size = amounts(cpu=cpu * minimum)
    world.gang(name, minimum, queue="a", min_resources=size, admission=True, created=world.now)
    return world.pods(name, minimum, gang=name, **{"cpu": cpu, **pods})


def fine(world: Scenario, name: str = "fine", cpu: int = 16) -> Scenario:
    """Declare a gang in queue b that waits for its admission."""
    fields = {"admission": True, "admitted": False, "created": world.now, "queue": "b"}
    return world.gang(name, 1, min_resources=amounts(cpu=cpu), **fields)


def full(world: Scenario) -> Scenario:
    """Let pods of another scheduler occupy both nodes."""
    for number in (1, 2):
        world.pod(f"busy-{number}", cpu=8, node=f"n{number}", scheduler="another")
    return world


def inqueue_cpu(world: Scenario) -> int:
    return world.state.gangs.inqueue.total().get("cpu", 0)


class TestAdmission:
    def test_gang_with_a_selector_that_no_node_has_holds_no_admission(self) -> None:
        world = fine(admitted(cluster(), "typo", 4, 4, pod_class=SSD)).run()
        assert world.admissions == ["fine"]
        assert world.waiting("typo") == ["typo-0", "typo-1", "typo-2", "typo-3"]

    @pytest.mark.parametrize(
        ("minimum", "cpu"),
        [(1, 9), (3, 6), (5, 4)],
        ids=["pod above a node", "few per node", "gang above the cluster"],
    )
    def test_gang_that_empty_nodes_do_not_hold_holds_no_admission(self, minimum: int, cpu: int) -> None:
        world = fine(admitted(cluster(), "large", minimum, cpu)).run()
        assert world.admissions == ["fine"]

    def test_gang_whose_roles_exceed_the_cluster_together_holds_no_admission(self) -> None:
        world = cluster().gang("two", 4, queue="a", min_resources=amounts(cpu=24), admission=True)
        world.pods("large", 2, gang="two", cpu=7).pods("small", 2, gang="two", cpu=5)
        assert fine(world).run().admissions == ["fine"]

    def test_gang_larger_than_its_domain_holds_no_admission(self) -> None:
        world = admitted(cluster(), "near", 3, 4).gang("near", 3, topology=TopologyRule(required=("rack",)))
        assert fine(world).run().admissions == ["fine"]
        assert fine(admitted(cluster(), "fits", 4, 4)).run().admissions == []

    def test_gang_group_that_empty_nodes_do_not_hold_together_holds_no_admission(self) -> None:
        world = admitted(admitted(cluster(), "one", 3, 4), "two", 2, 4)
        for name, minimum in (("one", 3), ("two", 2)):
            world.gang(name, minimum, gang_group=["one", "two"])
        assert fine(world).run().admissions == ["fine"]

    def test_gang_above_the_capability_of_its_queue_holds_no_admission(self) -> None:
        world = cluster().queue("a", capability={"cpu": 6})
        world = fine(admitted(world, "large", 2, 4)).run()
        assert world.admissions == ["fine"]
        world = cluster().queue("a", capability={"cpu": 8}).pod("other", queue="a", cpu=8, node="n1")
        assert fine(admitted(world, "later", 2, 4), cpu=10).run().admissions == []

    def test_gang_with_fitting_members_beside_an_unplaceable_one_counts_once_placed(self) -> None:
        world = cluster().gang("mixed", 1, queue="a", min_resources=amounts(cpu=12), admission=True)
        world.pod("huge", gang="mixed", cpu=11).pod("small", gang="mixed", cpu=1).run()
        assert world.placed() == ["small"]
        assert inqueue_cpu(world) == 0
        assert fine(world, cpu=15).run().admissions == ["fine"]

    def test_gang_counts_again_when_a_node_is_labelled(self) -> None:
        world = admitted(full(cluster()), "typo", 4, 4, pod_class=SSD).run()
        assert inqueue_cpu(world) == 0
        for number in (1, 2):
            world.node(f"n{number}", cpu=8, labels={"disk": "ssd"})
        assert fine(world.run(), cpu=10).run().admissions == []
        assert inqueue_cpu(world) == 16_000

    def test_gang_counts_again_when_a_larger_node_is_added(self) -> None:
        world = admitted(cluster(), "large", 1, 12).run()
        assert inqueue_cpu(world) == 0
        world.node("n3", cpu=12).pod("first", node="n3", scheduler="another", cpu=12).run()
        assert inqueue_cpu(world) == 12_000

    def test_gang_counts_again_when_the_capability_is_raised(self) -> None:
        world = cluster().queue("a", capability={"cpu": 6})
        world = admitted(full(world), "large", 2, 4).run()
        assert inqueue_cpu(world) == 0
        world.queue("a", capability={"cpu": 8}).run()
        assert inqueue_cpu(world) == 8_000

    def test_gang_counts_again_when_its_pods_are_made_smaller(self) -> None:
        world = admitted(full(cluster()), "large", 1, 12).run()
        assert inqueue_cpu(world) == 0
        world.gone("large-0").pod("large-0b", gang="large", cpu=2).run()
        assert inqueue_cpu(world) == 12_000

    @pytest.mark.feature("rejecting-nodes")
    def test_gang_that_waits_for_a_node_in_back_off_keeps_its_admission(self) -> None:
        world = admitted(cluster(), "large", 4, 4)
        spec = world.state.pods["large-0"].pod
        world.observe("rejection", PodRejected("n1", "OutOfcpu", spec.namespace, spec.pod_class, int(world.now)))
        world.cycle()
        assert world.waiting("large") == ["large-0", "large-1", "large-2", "large-3"]
        assert inqueue_cpu(world) == 16_000

    def test_gang_on_cordoned_nodes_counts_again_when_they_are_opened(self) -> None:
        world = admitted(full(cluster()), "large", 4, 4).run()
        assert inqueue_cpu(world) == 16_000
        world.node("n1", cpu=8, unschedulable=True).run()
        assert inqueue_cpu(world) == 0
        world.node("n1", cpu=8).run()
        assert inqueue_cpu(world) == 16_000

    def test_restart_preserves_the_admission_of_placeable_gangs(self) -> None:
        world = fine(admitted(cluster(), "typo", 4, 4, pod_class=SSD)).run()
        world.restart().run()
        assert inqueue_cpu(world) == 16_000  # of gang fine
        fine(world, "more", cpu=3).run()
        assert world.admissions == ["fine", "more"]

    def test_deleted_gang_leaves_no_mark_for_its_successor(self) -> None:
        world = admitted(full(cluster()), "large", 1, 12).run()
        world.no_gang("large").gone("large-0").run()
        admitted(world, "large", 1, 4).run()
        assert inqueue_cpu(world) == 4_000


class TestShares:
    def test_pod_that_no_node_can_hold_lowers_the_share_of_no_other_queue(self) -> None:
        world = cluster().pods("mine", 4, queue="b", cpu=4).run()
        world.pod("huge", queue="a", cpu=99).run()
        assert world.waiting() == ["huge"]
        world.pod("urgent", queue="b", cpu=4, priority=100).settle()
        assert len(world.evicted) == 1
        assert "urgent" in world.placed()

    def test_pod_with_a_wrong_selector_lowers_no_share_until_a_node_has_the_label(self) -> None:
        world = cluster().pods("wrong", 4, queue="a", cpu=4, pod_class=SSD).run()
        world.pods("mine", 4, queue="b", cpu=4).run()
        assert len(world.placed("mine")) == 4
        world = cluster().pods("right", 4, queue="a", cpu=4, pod_class=SSD).run()
        world.node("n1", cpu=8, labels={"disk": "ssd"}).node("n2", cpu=8, labels={"disk": "ssd"})
        world.pods("mine", 4, queue="b", cpu=4).run()
        assert len(world.placed("mine")) == 2

    def test_unplaceable_gang_of_a_composite_lowers_no_share(self) -> None:
        world = World().queue("a").queue("b").node("n1", cpu=8).composite("c", 1)
        world.group("large", 2, "c", cpu=99).gang("large", 2, queue="a").run()
        world.pods("mine", 4, queue="b", cpu=2).run()
        assert len(world.placed("mine")) == 4

    def test_gang_without_a_node_since_a_node_left_lowers_no_share(self) -> None:
        world = cluster().node("n3", cpu=64).pod("busy", node="n3", cpu=64, scheduler="another")
        world.job("large", 1, queue="a", cpu=20).run()
        world.gone("busy").no_node("n3").pods("mine", 4, queue="b", cpu=4).run()
        assert len(world.placed("mine")) == 4

    def test_surplus_that_no_node_can_hold_lowers_no_share(self) -> None:
        world = cluster().gang("job", 1, queue="a").pod("small", gang="job", cpu=1).pod("huge", gang="job", cpu=99)
        world.run().pods("mine", 3, queue="b", cpu=5).run()
        assert len(world.placed("mine")) == 2
        world = world.pods("last", 2, queue="b", cpu=2).run()
        assert len(world.placed("last")) == 2

    def test_request_of_an_unplaceable_pod_stays_visible(self) -> None:
        world = cluster().pod("huge", queue="a", cpu=99).run()
        world.state.ledger.refresh_sums()
        account = world.state.ledger.accounts[AccountKey(Tree.QUEUE, "a")]
        assert (account.pending, account.unallocated["cpu"]) == ({}, 99_000)
        world.gone("huge").run()
        assert account.unallocated == {}


RECLAIMING = """
actions: "enqueue, allocate, reclaim"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: proportion}, {name: predicates}]}]
"""


def test_next_process_evicts_nothing_for_shares_that_count_an_impossible_gang() -> None:
    world = Scenario(RECLAIMING).queue("a").queue("b").queue("c").node("n1", cpu=8).node("n2", cpu=8)
    world.pod("b1", node="n1", cpu=6, queue="b").pod("b2", node="n2", cpu=5, queue="b")
    world.pod("a1", node="n2", cpu=1, queue="a")
    world.job("impossible", 4, cpu=4, queue="c", pod_class=SSD).run()
    world.pod("a2", cpu=4, queue="a").run()
    assert not world.evicted
    world.restart().run()
    assert not world.evicted
    assert world.waiting() == ["a2", *(f"impossible-{number}" for number in range(4))]


def test_unit_that_fits_again_has_its_runtime_quota_in_the_same_cycle() -> None:
    """Its requests count again before its turn; without rechecks no later cycle would look again."""
    policy = """
actions: "enqueue, allocate, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: capacity}, {name: predicates}]}]
"""
    world = Scenario(policy).node("n1", cpu=4).node("n2", cpu=4)
    world.scheduler._refresh_verdicts = False
    root = AccountKey(Tree.KOORDINATOR, "root")
    world.account(root, label="quota root", parental=True)
    shares = {"deserved": {"cpu": 2}, "capability": {"cpu": 40}, "lends": True}
    world.account(AccountKey(Tree.KOORDINATOR, "k"), label="quota k", parent=root, **shares)
    world.job("gang", 3, quota="k", cpu=1, pod_class=SSD).settle()
    assert world.waiting() == ["gang-0", "gang-1", "gang-2"]
    world.node("n1", cpu=4, labels={"disk": "ssd"}).settle()
    assert len(world.placed("gang")) == 3

"""`proportion`: queues share their requests by weight."""

from __future__ import annotations

import random

import pytest

from phalanx.model.account import AccountState
from phalanx.model.gang import Problem
from phalanx.model.pod import PodClass
from phalanx.model.selectors import Taint, Toleration
from phalanx.scheduling.plugins.queues.proportion import deserved_shares

from ..extent import examples
from .desk import Desk, policy, queue
from .scenario import Scenario, amounts, key

PROPORTION = policy("name: proportion")
STRICT = policy("name: proportion, arguments: {proportion.borrow: false}")


def cluster(gpus: int = 10, text: str = PROPORTION) -> Scenario:
    return Scenario(text).node("n", gpu=gpus)


def deserved(scenario: Scenario, *names: str) -> list[int | None]:
    """Return the limit in GPUs; None where the queue can have its whole request, or only the nodes limit it."""
    desk = Desk(scenario)
    return [(desk.limits("proportion", queue(name)) or {}).get("gpu") for name in names]


class TestDeserved:
    def test_full_requests_are_shared_by_weight(self) -> None:
        world = cluster(12).queue("a", weight=1).queue("b", weight=3)
        world.pods("a", 12, queue="a", gpu=1).pods("b", 12, queue="b", gpu=1)
        assert deserved(world, "a", "b") == [3, 9]
        world.run()
        assert (len(world.placed("a-")), len(world.placed("b-"))) == (3, 9)
        # The cluster is full: more nodes would help, and autoscalers must see that.
        verdict = world.why_pod(world.waiting("a-")[0])
        assert (verdict.code, verdict.unschedulable) == ("NotEnoughResources", True)

    def test_verdict_names_the_share_where_free_room_is_deserved_by_another_queue(self) -> None:
        world = cluster(12, STRICT).queue("a").queue("b").pods("a", 12, queue="a", gpu=1)
        world.job("b", 3, queue="b", gpu=4).run()  # all need more than b deserves, which stays free
        assert len(world.placed("a-")) == 6
        verdict = world.why_pod(world.waiting("a-")[0])
        assert verdict.message == "queue a: 6 nvidia.com/gpu in use, deserved share 6; 1 more would exceed it"
        assert not verdict.unschedulable

    def test_verdict_of_a_gang_larger_than_the_cluster_names_the_cluster_not_the_share(self) -> None:
        world = cluster(12, STRICT).queue("a").queue("b").pods("a", 12, queue="a", gpu=1)
        world.job("b", 3, queue="b", gpu=4).job("big", 13, queue="a", gpu=1).run()
        verdict = world.why("big")
        assert (verdict.code, verdict.unschedulable) == ("NotEnoughResources", True)
        assert "needs 13 nvidia.com/gpu; all nodes together offer 12; also, queue a: " in verdict.message
        assert verdict.change == "add nodes that offer at least 1 more nvidia.com/gpu"

    def test_unrequested_share_is_divided_among_the_remaining_queues(self) -> None:
        world = cluster(10).queue("a", weight=1).queue("b", weight=1)
        world.pods("a", 10, queue="a", gpu=1).pods("b", 2, queue="b", gpu=1)
        assert deserved(world, "a", "b") == [8, None]  # b deserves its whole request

    def test_single_queue_deserves_the_cluster_and_its_verdict_names_nodes(self) -> None:
        world = cluster(2).queue("a").queue("idle", weight=100).pods("a", 3, queue="a", gpu=1).run()
        assert deserved(world, "a") == [None]
        assert world.why_pod(world.waiting()[0]).code == "NotEnoughResources"

    def test_guarantee_is_the_minimum_of_the_deserved_amount(self) -> None:
        world = cluster(10).queue("a", guarantee={"gpu": 6}).queue("b").queue("c")
        for name in "abc":
            world.pods(name, 10, queue=name, gpu=1)
        assert deserved(world, "a", "b", "c") == [6, 2, 2]

    def test_guarantee_of_a_queue_without_requests_is_reserved(self) -> None:
        world = cluster(10).queue("idle", guarantee={"gpu": 4}).queue("b").queue("c")
        world.pods("b", 10, queue="b", gpu=1).pods("c", 10, queue="c", gpu=1)
        assert deserved(world, "b", "c") == [3, 3]

    def test_capability_is_the_maximum_of_the_deserved_amount(self) -> None:
        world = cluster(10).queue("a", capability={"gpu": 2}).queue("b")
        world.pods("a", 10, queue="a", gpu=1).pods("b", 10, queue="b", gpu=1)
        assert deserved(world, "a", "b") == [2, 8]

    def test_children_share_the_deserved_amount_of_their_parent(self) -> None:
        world = cluster(12).queue("eng", weight=2).queue("sci", weight=1)
        world.queue("dev", parent="eng", weight=3).queue("prod", parent="eng", weight=1)
        for name in ("dev", "prod", "sci"):
            world.pods(name, 12, queue=name, gpu=1)
        assert deserved(world, "eng", "sci", "dev", "prod") == [8, 4, 6, 2]

    def test_parent_requests_at_most_the_sum_of_its_children_capabilities(self) -> None:
        world = cluster(12).queue("eng").queue("sci").queue("dev", parent="eng", capability={"gpu": 2})
        world.pods("dev", 12, queue="dev", gpu=1).pods("sci", 12, queue="sci", gpu=1)
        assert deserved(world, "eng", "dev", "sci") == [2, 2, 10]

    def test_broken_queue_does_not_reduce_other_queues(self) -> None:
        world = cluster(10).queue("a").queue("broken", weight=9, guarantee={"gpu": 5}, problem=Problem("X", "x"))
        world.queue("orphan", parent="nobody", weight=9).queue("child", parent="broken", weight=9)
        for name in ("a", "broken", "orphan", "child"):
            world.pods(name, 10, queue=name, gpu=1)
        assert deserved(world, "a", "broken", "orphan", "child") == [None, None, None, None]
        world.run()
        assert len(world.placed("a-")) == 10

    def test_closed_queue_counts_with_its_present_usage(self) -> None:
        world = cluster(10).queue("shut").queue("a").pods("shut", 3, queue="shut", gpu=1, node="n")
        world.queue("shut", state=AccountState.CLOSING, weight=9).pods("a", 10, queue="a", gpu=1)
        world.pods("more", 5, queue="shut", gpu=1)
        assert deserved(world, "shut", "a") == [None, 7]

    def test_nodes_with_negative_idle_amounts_do_not_count_against_a_queue(self) -> None:
        world = cluster(0).node("m", gpu=4).queue("a").queue("b").pods("old", 2, queue="a", gpu=1, node="n")
        world.pods("a", 4, queue="a", gpu=1).pods("b", 4, queue="b", gpu=1)
        assert deserved(world, "a", "b") == [3, 3]


BY_PRIORITY = policy("name: proportion, arguments: {proportion.priorityFirst: true}")


class TestPriorityFirst:
    def test_siblings_are_filled_by_priority_and_weights_divide_within_one(self) -> None:
        world = cluster(12, BY_PRIORITY).queue("high", priority=10).queue("a", weight=1).queue("b", weight=2)
        world.pods("high", 6, queue="high", gpu=1).pods("a", 12, queue="a", gpu=1).pods("b", 12, queue="b", gpu=1)
        assert deserved(world, "high", "a", "b") == [None, 2, 4]

    def test_lowest_priority_gets_nothing_once_all_is_requested_above(self) -> None:
        world = cluster(12, BY_PRIORITY).queue("high", priority=10).queue("low", weight=100)
        world.pods("high", 20, queue="high", gpu=1).pods("low", 12, queue="low", gpu=1)
        assert deserved(world, "high", "low") == [None, 0]
        world.run()
        assert (len(world.placed("high-")), len(world.placed("low-"))) == (12, 0)

    def test_guarantees_of_lower_priorities_are_served_first(self) -> None:
        world = cluster(12, BY_PRIORITY).queue("high", priority=10).queue("low", guarantee={"gpu": 3})
        world.pods("high", 20, queue="high", gpu=1).pods("low", 12, queue="low", gpu=1)
        assert deserved(world, "high", "low") == [9, 3]

    def test_priorities_count_among_the_children_of_one_queue_only(self) -> None:
        world = cluster(12, BY_PRIORITY).queue("eng").queue("sci")
        world.queue("prod", parent="eng", priority=10).queue("dev", parent="eng")
        for name in ("prod", "dev", "sci"):
            world.pods(name, 12, queue=name, gpu=1)
        assert deserved(world, "eng", "sci", "prod", "dev") == [6, 6, 6, 0]

    def test_capability_of_a_higher_priority_leaves_the_rest(self) -> None:
        world = cluster(12, BY_PRIORITY).queue("high", priority=10, capability={"gpu": 5}).queue("low")
        world.pods("high", 20, queue="high", gpu=1).pods("low", 12, queue="low", gpu=1)
        assert deserved(world, "high", "low") == [5, 7]

    def test_priorities_do_not_change_shares_by_default(self) -> None:
        world = cluster(12).queue("high", priority=10).queue("low")
        world.pods("high", 20, queue="high", gpu=1).pods("low", 12, queue="low", gpu=1)
        assert deserved(world, "high", "low") == [6, 6]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(examples(25)))
def test_shares_add_up_on_every_level_of_any_tree(seed: int) -> None:
    choice = random.Random(seed)
    world = cluster(choice.randint(5, 60), STRICT)
    names: list[str] = []
    for number in range(choice.randint(2, 14)):
        cap = {"gpu": choice.randint(3, 30)} if choice.random() < 0.3 else {}
        least = {"gpu": choice.randint(1, 2)} if choice.random() < 0.2 else {}
        above = choice.choice(["", *names])
        names.append(f"q{number}")
        world.queue(names[-1], parent=above, weight=choice.randint(1, 5), capability=cap, guarantee=least)
    accounts = [Desk(world).account(queue(name)) for name in names]
    leaves = [account.key.name for account in accounts if not account.children]
    for name in leaves:
        world.pods(name, choice.choice([0, 1, 5, 20]), queue=name, gpu=1)
    desk = Desk(world)
    shares = {key: dict(amounts) for key, amounts in deserved_shares(desk.session).items()}
    gpu = "nvidia.com/gpu"
    for account in [desk.account(queue("root")), *(desk.account(queue(name)) for name in names)]:
        children = [child for child in account.children.values() if child.key in shares]
        own = shares.get(account.key, {}).get(gpu, 0)
        floors = sum(dict(child.spec.guarantee).get(gpu, 0) for child in account.children.values() if child.spec)
        assert sum(shares[child.key][gpu] for child in children) <= max(own, floors)
        if account.spec is not None and account.key in shares:
            declared = account.spec
            limit = max(dict(declared.capability).get(gpu, 10**9), dict(declared.guarantee).get(gpu, 0))
            assert own <= limit
        if not account.children and account.spec is not None and account.key in shares:
            assert own <= max(account.pending.get(gpu, 0), dict(account.spec.guarantee).get(gpu, 0))
    world.run()
    for name in leaves:
        share = shares.get(queue(name))
        assert len(world.placed(f"{name}-")) <= (share[gpu] if share is not None else 0)


class TestQueueOrder:
    def test_queue_with_the_smaller_part_of_its_deserved_amount_is_first(self) -> None:
        world = cluster(12).queue("a", weight=1).queue("b", weight=3)
        world.pods("a", 12, queue="a", gpu=1).pods("b", 12, queue="b", gpu=1)
        world.pods("held-a", 1, queue="a", gpu=1, node="n").pods("held-b", 2, queue="b", gpu=1, node="n")
        desk = Desk(world)
        shares = [desk.plugin("proportion").queue_order(desk.session, desk.account(queue(name))) for name in "ab"]
        assert shares == [(0, 1 / 3), (0, 2 / 9)]
        assert desk.order("proportion", "a", "b") == ["b", "a"]

    def test_queue_of_higher_priority_is_first_whatever_its_usage(self) -> None:
        world = cluster(10).queue("a", priority=1).queue("b")
        world.pods("held", 3, queue="a", gpu=1, node="n").pods("b", 10, queue="b", gpu=1)
        assert Desk(world).order("proportion", "b", "a") == ["a", "b"]

    def test_usage_above_a_deserved_amount_of_zero_counts_as_full(self) -> None:
        world = cluster(1).queue("a", weight=1).queue("b", weight=60000).queue("c")
        world.pods("a", 1, queue="a", gpu=1, node="n").pods("b", 1, queue="b", gpu=1)
        desk = Desk(world)
        assert deserved(world, "a", "b") == [0, None]
        assert desk.plugin("proportion").queue_order(desk.session, desk.account(queue("a"))) == (0, 1)
        assert desk.plugin("proportion").queue_order(desk.session, desk.account(queue("c"))) == (0, 0)

    def test_queues_fill_in_step(self) -> None:
        world = cluster(6, policy("name: proportion, enabledAllocatable: false")).queue("a", weight=1)
        world.queue("b", weight=2).pods("a", 6, queue="a", gpu=1).pods("b", 6, queue="b", gpu=1).run()
        assert (len(world.placed("a-")), len(world.placed("b-"))) == (2, 4)


class TestSwitches:
    @pytest.mark.parametrize("switch", ["enabledAllocatable", "enabledOverused"])
    def test_without_the_limit_one_queue_can_use_the_whole_cluster(self, switch: str) -> None:
        world = cluster(4, policy(f"name: proportion, {switch}: false, enableQueueOrder: false"))
        world.queue("a").queue("b").pods("a", 4, queue="a", gpu=1, created=1).pods("b", 4, queue="b", gpu=1).run()
        assert len(world.placed("a-")) == 4


class TestAdmission:
    def admitted(self, world: Scenario) -> list[str]:
        return world.run().admissions

    def group(self, world: Scenario, name: str, gpus: int, queue: str = "a", **fields: object) -> Scenario:
        sizes = {"admission": True, "admitted": False, "min_resources": amounts(gpu=gpus)}
        return world.gang(name, 1, queue=queue, **(sizes | fields))

    def test_groups_are_admitted_up_to_the_real_capability(self) -> None:
        world = cluster(10).queue("a").queue("b", guarantee={"gpu": 4})
        for name in ("one", "two", "three"):
            self.group(world, name, 3)
        assert self.admitted(world) == ["one", "three"]  # 6 of 10 - 4; the third in order must wait

    def test_usage_of_pods_counts_against_admission(self) -> None:
        world = cluster(10).queue("a", capability={"gpu": 5}).pods("held", 3, queue="a", gpu=1, node="n")
        self.group(self.group(world, "big", 3), "small", 2)
        assert self.admitted(world) == ["small"]

    def test_elastic_members_do_not_count_against_admission(self) -> None:
        world = cluster(10).queue("a", capability={"gpu": 5})
        world.gang("elastic", 1, queue="a", min_resources=amounts(gpu=1))
        world.pods("held", 4, gang="elastic", gpu=1, node="n")
        self.group(world, "next", 4)
        assert self.admitted(world) == ["next"]

    def test_admitted_amounts_of_the_queue_count_until_its_members_use_them(self) -> None:
        world = cluster(10).queue("a", capability={"gpu": 4}).queue("b")
        self.group(self.group(self.group(world, "one", 3), "other", 3, queue="b"), "two", 2)
        assert self.admitted(world) == ["one", "other"]
        world.pods("one", 3, gang="one", gpu=1).run()
        assert world.admissions == ["one", "other"]
        world.finishes("one-0", "one-1", "one-2").no_gang("one").run()
        assert world.admissions == ["one", "other", "two"]

    def test_group_is_admitted_only_if_every_parent_queue_has_room(self) -> None:
        world = (
            cluster(10).queue("eng", capability={"gpu": 4}).queue("dev", parent="eng").queue("prod", parent="eng")
        )
        self.group(self.group(self.group(world, "one", 3, "dev"), "two", 2, "prod"), "three", 1, "prod")
        assert self.admitted(world) == ["one", "three"]

    def test_group_of_a_closed_or_missing_queue_is_not_admitted(self) -> None:
        world = cluster(10).queue("shut", state=AccountState.CLOSED)
        self.group(self.group(world, "one", 1, "shut"), "two", 1, "missing")
        self.group(world, "unsized", 1, "shut", min_resources=None)
        assert self.admitted(world) == []
        world.queue("shut", state=AccountState.OPEN).run()
        assert world.admissions == ["one", "unsized"]

    def test_verdict_names_the_queue_without_room(self) -> None:
        world = cluster(10).queue("eng", capability={"gpu": 4}).queue("dev", parent="eng")
        self.group(self.group(world, "one", 3, "dev"), "two", 2, "dev")
        desk = Desk(world.run())
        assert desk.plugin("proportion").why_not_admitted(desk.session, world.state.gangs[key("two")]) == (
            "its minResources request 2 nvidia.com/gpu; queue dev has 1 left of its real capability 4",
            "wait until groups of queue dev finish, lower minResources, raise its capability, "
            "or lower the guarantees of its siblings",
        )

    def test_without_an_admission_limit_overcommit_decides(self) -> None:
        world = cluster(10, policy("name: overcommit", "name: proportion")).queue("a")
        self.group(self.group(world, "one", 12), "two", 13)
        assert self.admitted(world) == ["one"]


def test_room_that_no_queue_can_use_is_deserved_by_none() -> None:
    """Two queues share the room beside another scheduler's pods and nodes that none of their pods tolerates."""
    taint = Taint("dedicated", "others", "NoSchedule")
    world = Scenario(PROPORTION).node("kept", gpu=8, taints=[taint]).node("n", gpu=12).queue("a").queue("b")
    world.pod("foreign", scheduler="another", node="n", gpu=4)
    world.pods("a", 12, queue="a", gpu=1).pods("b", 12, queue="b", gpu=1)
    assert deserved(world, "a", "b") == [4, 4]
    # A pod that tolerates the taint arrives; then the other scheduler's pod ends.
    world.pod("bold", queue="a", gpu=1, pod_class=PodClass(tolerations=(Toleration("dedicated", "Exists"),)))
    assert deserved(world, "a", "b") == [8, 8]
    world.gone("foreign")
    assert deserved(world, "a", "b") == [10, 10]

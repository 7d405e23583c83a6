"""`capacity`: queues have a deserved amount and are limited by the guarantees of other queues."""

from __future__ import annotations

import pytest

from phalanx.model.gang import Problem
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.policy.loader import load_policy

from .desk import Desk, policy, queue
from .scenario import Scenario, amounts

CAPACITY = policy("name: capacity")


def cluster(gpus: int = 10) -> Scenario:
    return Scenario(CAPACITY).node("n", gpu=gpus)


def real(scenario: Scenario, *names: str) -> list[int | None]:
    """Return the limit of GPUs; None where it adds nothing to the nodes' and the capability's own."""
    desk = Desk(scenario)
    return [(desk.limits("capacity", queue(name)) or {}).get("gpu") for name in names]


def key(scenario: Scenario, name: str) -> object:
    desk = Desk(scenario)
    return desk.plugin("capacity").queue_order(desk.session, desk.account(queue(name)))


class TestRealCapability:
    def test_real_capability_excludes_the_guarantees_of_other_queues(self) -> None:
        world = cluster(10).queue("a", guarantee={"gpu": 3}).queue("b", guarantee={"gpu": 4}).queue("c")
        assert real(world, "a", "b", "c") == [6, 7, 3]
        assert Desk(world).limit("capacity", queue("c")) == ("real capability", {"gpu": 3})

    def test_capability_below_the_real_capability_is_the_limit(self) -> None:
        world = cluster(10).queue("a", guarantee={"gpu": 3}).queue("c", capability={"gpu": 5})
        assert real(world, "c") == [None]
        assert Desk(world).limits("quotas", queue("c")) == {"gpu": 5}

    def test_without_guarantees_only_the_nodes_limit_a_queue(self) -> None:
        world = cluster(2).queue("a").pods("a", 3, queue="a", gpu=1).run()
        assert real(world, "a") == [None]
        assert world.why_pod(world.waiting()[0]).code == "NotEnoughResources"

    def test_child_queue_inherits_unset_amounts(self) -> None:
        world = cluster(10).queue("eng", capability={"gpu": 6}).queue("dev", parent="eng")
        world.queue("prod", parent="eng", guarantee={"gpu": 2})
        assert real(world, "eng", "dev", "prod") == [None, 4, 6]

    def test_guarantees_count_among_siblings_on_every_level(self) -> None:
        world = cluster(12).queue("eng", guarantee={"gpu": 4}).queue("sci", guarantee={"gpu": 2})
        world.queue("dev", parent="eng", guarantee={"gpu": 3}).queue("prod", parent="eng")
        assert real(world, "eng", "sci", "dev", "prod") == [10, 8, 10, 7]

    def test_guarantee_of_a_broken_queue_reserves_nothing(self) -> None:
        world = cluster(10).queue("a").queue("broken", guarantee={"gpu": 8}, problem=Problem("X", "x"))
        assert real(world, "a", "broken") == [None, None]

    def test_pods_above_the_real_capability_wait(self) -> None:
        world = cluster(10).queue("a", guarantee={"gpu": 4}).queue("b").pods("b", 8, queue="b", gpu=1).run()
        assert len(world.placed()) == 6
        assert world.why_pod(world.waiting()[0]).message == (
            "queue root: 6 nvidia.com/gpu in use, capacity without the guarantees of other queues 6; "
            "1 more would exceed it"
        )

    def test_limits_of_every_level_apply(self) -> None:
        world = cluster(10).queue("eng", capability={"gpu": 3}).queue("dev", parent="eng")
        world.queue("prod", parent="eng").pods("dev", 2, queue="dev", gpu=1).pods("prod", 2, queue="prod", gpu=1)
        assert len(world.run().placed()) == 3


class TestQueueOrder:
    def test_queue_with_the_smaller_part_of_its_deserved_amount_is_first(self) -> None:
        world = cluster(10).queue("a", deserved={"gpu": 4}).queue("b", deserved={"gpu": 6})
        world.pods("a", 2, queue="a", gpu=1, node="n").pods("b", 2, queue="b", gpu=1, node="n")
        assert (key(world, "a"), key(world, "b")) == (
            (0, 1 / 2, False),
            (0, 1 / 3, False),
        )
        assert Desk(world).order("capacity", "a", "b") == ["b", "a"]

    def test_queue_of_higher_priority_is_first(self) -> None:
        world = cluster(10).queue("a", deserved={"gpu": 1}, priority=2).queue("b", deserved={"gpu": 6}, priority=1)
        world.pods("a", 1, queue="a", gpu=1, node="n")
        assert Desk(world).order("capacity", "b", "a") == ["a", "b"]

    def test_queue_that_deserves_nothing_has_a_share_of_one_and_is_ordered_last(self) -> None:
        world = cluster(10).queue("none").queue("full", deserved={"gpu": 2}).queue("over", deserved={"gpu": 1})
        world.pods("full", 2, queue="full", gpu=1, node="n").pods("over", 2, queue="over", gpu=1, node="n")
        assert key(world, "none") == (0, 1, True)
        assert Desk(world).order("capacity", "over", "none", "full") == ["full", "none", "over"]

    def test_deserved_amount_is_clamped_between_guarantee_and_real_capability(self) -> None:
        world = cluster(10).queue("a", deserved={"gpu": 20}, guarantee={"gpu": 5}).queue("b", guarantee={"gpu": 2})
        world.pods("a", 4, queue="a", gpu=1, node="n").pods("b", 1, queue="b", gpu=1, node="n")
        assert key(world, "a") == (0, 4 / 8, False)
        assert key(world, "b") == (0, 1 / 2, False)

    def test_resources_without_a_deserved_amount_do_not_count(self) -> None:
        world = cluster(10).queue("a", deserved={"gpu": 8}).pods("a", 2, queue="a", gpu=1, cpu=30, node="n")
        assert key(world, "a") == (0, 1 / 4, False)

    def test_queue_that_uses_a_resource_with_a_deserved_amount_of_zero_is_full(self) -> None:
        world = cluster(10).queue("a", deserved={"gpu": 0}).pods("a", 1, queue="a", gpu=1, node="n")
        assert key(world, "a") == (0, 1, False)

    def test_siblings_are_compared_under_their_common_parent(self) -> None:
        world = cluster(10).queue("eng", deserved={"gpu": 2}).queue("sci", deserved={"gpu": 8})
        world.queue("dev", parent="eng", deserved={"gpu": 2}).queue("lab", parent="sci", deserved={"gpu": 1})
        world.pods("eng", 1, queue="dev", gpu=1, node="n").pods("lab", 1, queue="lab", gpu=1, node="n")
        world.node("m", gpu=1).no_node("m")
        desk = Desk(world)
        assert desk.order("capacity", "eng", "sci") == ["sci", "eng"]  # 1/2 and 1/8
        assert desk.order("capacity", "lab", "dev") == ["dev", "lab"]  # though lab is full


class TestAdmission:
    def test_group_is_admitted_only_if_it_fits_its_queue_and_all_parents(self) -> None:
        world = cluster(10).queue("sci", guarantee={"gpu": 4}).queue("eng").queue("dev", parent="eng")
        for name, size in (("big", 7), ("fits", 4), ("rest", 3), ("last", 2)):
            fields = {"admission": True, "admitted": False, "min_resources": amounts(gpu=size)}
            world.gang(name, 1, queue="dev", created=size, **fields)
        assert sorted(world.run().admissions) in (["fits", "last"], ["last", "rest"])
        assert "big" not in world.admissions


class TestArguments:
    def test_keys_of_volcanos_capacity_plugin_are_accepted_and_reported(self) -> None:
        text = (
            "name: capacity, arguments: {ancestorReclaimLevel: 1, capacity.DynamicResourceAllocationEnable: true}"
        )
        loaded = load_policy(policy(text))
        key = "capacity.DynamicResourceAllocationEnable"
        told = f"plugin capacity: argument {key} is accepted but has no effect in this version"
        assert [line for line in loaded.inactive if "capacity" in line] == [told]

    @pytest.mark.parametrize(
        "argument",
        ["ancestorReclaimLevel: -1", "capacity.DRAConsumableCapacityEnable: maybe", "ancestorReclaimLevels: 1"],
    )
    def test_wrong_values_of_arguments_are_errors(self, argument: str) -> None:
        with pytest.raises(PolicyError, match=argument.split(":")[0]):
            load_policy(policy(f"name: capacity, arguments: {{{argument}}}"))

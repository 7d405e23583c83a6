"""Requests for nodes: one gang per queue has its pods although no node has room for them."""

from __future__ import annotations

import pytest

from phalanx.model.account import ResourceQuota
from phalanx.model.events import ResourceQuotaUpdated
from phalanx.model.gang import GangOwner
from phalanx.model.node_request import NodeRequest
from phalanx.model.verdict import PodShape
from phalanx.scheduling.features.node_requests import LONGEST_PAUSE, WAIT
from phalanx.scheduling.whatif.start_forecasts import forecast_starts

from .scenario import Scenario, amounts, key

pytestmark = pytest.mark.feature("node-requests")

POLICY = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: overcommit}, {name: proportion}, {name: predicates}]
phalanx: {autoscaler: cluster-autoscaler}
"""
GPU = "nvidia.com/gpu"


def world(policy: str = POLICY) -> Scenario:
    scenario = Scenario(policy)
    scenario.now = 1_000_000
    return scenario


def group(world: Scenario, name: str, members: int = 2, gpus: int = 8, **fields: object) -> Scenario:
    known = {"admission": True, "admitted": False, "created": world.now, "uid": f"uid-{name}"}
    size = amounts(gpu=members * gpus)
    return world.gang(name, members, min_resources=size, **(known | fields))


def pods(world: Scenario, name: str, members: int = 2, gpus: int = 8) -> Scenario:
    """Create the pods of a gang, as its controller does once the gang is admitted."""
    for number in range(members):
        world.pod(f"{name}-{number}", gang=name, gpu=gpus, created=world.now)
    return world


def later(world: Scenario, seconds: int) -> Scenario:
    world.now += seconds
    world.scheduler.activate_due(world.now)
    return world.settle()


def requests(world: Scenario) -> dict[str, NodeRequest]:
    return {entry.name: entry for entry in world.state.gangs.node_requests}


def opened(world: Scenario) -> list[str]:
    return sorted(name for name, entry in requests(world).items() if entry.open)


def test_gang_without_nodes_is_admitted_and_counts_for_no_other_admission() -> None:
    scenario = group(world(), "train").settle()
    assert scenario.admissions == ["train"]
    assert opened(scenario) == ["train"]
    assert scenario.state.gangs.inqueue.total().get(GPU, 0) == 0


def test_verdict_of_the_pods_is_unschedulable_and_counts_pods_per_shape() -> None:
    scenario = pods(group(world(), "train").settle(), "train").settle()
    verdict = scenario.why("train")
    assert verdict.code == "WaitingForNodes"
    assert verdict.unschedulable
    assert verdict.message.startswith("waiting for nodes: 2 × 8 nvidia.com/gpu; 0 of the 2 required pods")
    assert verdict.pod_shapes == (PodShape(2, ((GPU, "8"),)),)
    assert scenario.held() == {}


def test_gang_starts_on_the_nodes_that_come_and_its_request_is_over() -> None:
    scenario = pods(group(world(), "train").settle(), "train").settle()
    later(scenario.node("g1", gpu=8), 60)
    assert scenario.placed() == []
    later(scenario.node("g2", gpu=8), 60)
    assert scenario.placed() == ["train-0", "train-1"]
    assert requests(scenario) == {}


def test_second_gang_of_a_queue_waits_and_a_gang_of_another_queue_does_not() -> None:
    scenario = world().queue("other")
    group(scenario, "first")
    scenario.now += 1
    group(scenario, "second")
    group(scenario, "elsewhere", queue="other").settle()
    assert opened(scenario) == ["elsewhere", "first"]
    assert scenario.why("second").code == "AwaitingAdmission"


def test_gang_of_higher_priority_requests_nodes_first() -> None:
    scenario = group(world(), "low", priority=1)
    scenario.now += 1
    group(scenario, "high", priority=5).settle()
    assert opened(scenario) == ["high"]


def test_gang_above_the_capability_of_its_queue_requests_no_nodes() -> None:
    scenario = group(world().queue("small", capability={"gpu": 8}), "train", queue="small").settle()
    assert scenario.admissions == []
    assert opened(scenario) == []


def test_gang_within_a_capability_that_exceeds_the_cluster_requests_nodes() -> None:
    scenario = group(world().queue("team", capability={"gpu": 16}), "train", queue="team").settle()
    assert opened(scenario) == ["train"]


def test_suspended_gang_requests_no_nodes() -> None:
    scenario = group(world(), "train", suspended=True).settle()
    assert opened(scenario) == []
    group(scenario, "train", suspended=False).settle()
    assert opened(scenario) == ["train"]


def test_policy_without_autoscaler_requests_no_nodes() -> None:
    scenario = group(world(POLICY.replace("cluster-autoscaler", "none")), "train").settle()
    assert scenario.admissions == []


class TestNoNodeComes:
    def scenario(self) -> Scenario:
        scenario = group(world(), "first")
        scenario.now += 1
        group(scenario, "second").settle()
        return pods(scenario, "first").settle()

    def test_admission_is_withdrawn_after_the_wait_and_the_next_gang_has_its_turn(self) -> None:
        scenario = later(self.scenario(), WAIT - 10)
        assert opened(scenario) == ["first"]
        later(scenario, 10)
        assert opened(scenario) == ["second"]
        assert [entry.gang.name for plan in scenario.plans for entry in plan.withdrawals] == ["first"]
        verdict = scenario.why("first")
        assert verdict.code == "AwaitingAdmission"
        assert not verdict.unschedulable
        assert "1 request for nodes ended without a node after 15 min" in verdict.message
        assert not scenario.state.gangs[key("first")].may_create_pods

    def test_node_that_lets_more_members_fit_prolongs_the_request(self) -> None:
        scenario = later(self.scenario(), WAIT - 10)
        later(scenario.node("g1", gpu=8), 5)
        later(scenario, WAIT - 10)
        assert opened(scenario) == ["first"]
        later(scenario, 10)
        assert opened(scenario) == ["second"]

    def test_node_that_helps_no_member_does_not_prolong_the_request(self) -> None:
        scenario = later(self.scenario(), WAIT - 10)
        later(scenario.node("cpu", cpu=8), 10)
        assert opened(scenario) == ["second"]

    def test_gang_requests_nodes_again_after_its_pause_which_doubles(self) -> None:
        scenario = group(world(), "train").settle()
        later(scenario, WAIT)
        assert opened(scenario) == []
        later(scenario, WAIT - 1)
        assert opened(scenario) == []
        later(scenario, 1)
        assert opened(scenario) == ["train"]
        later(scenario, WAIT)
        later(scenario, 2 * WAIT - 1)
        assert opened(scenario) == []
        later(scenario, 1)
        assert opened(scenario) == ["train"]

    def test_pause_has_a_longest_length(self) -> None:
        scenario = group(world(), "train").settle()
        for _ in range(12):
            later(scenario, WAIT)
            entry = requests(scenario)["train"]
            assert not entry.open
            assert entry.until - scenario.now <= LONGEST_PAUSE
            later(scenario, entry.until - scenario.now)

    def test_withdrawn_gang_is_admitted_when_nodes_have_come_later(self) -> None:
        scenario = later(group(world(), "train").settle(), WAIT)
        later(scenario.nodes(2, gpu=8), 1)
        assert scenario.admissions == ["train", "train"]
        assert requests(scenario) == {}

    def test_new_group_of_the_same_job_inherits_the_failures(self) -> None:
        owner = GangOwner("job", "train", "uid-job")
        scenario = later(group(world(), "run-1", owner=owner).settle(), WAIT)
        scenario.no_gang("run-1")
        group(scenario, "run-2", owner=owner)
        scenario.now += 1
        group(scenario, "fresh").settle()
        assert opened(scenario) == ["fresh"]


class TestRestart:
    def restarted(self, scenario: Scenario, entries: list[NodeRequest]) -> Scenario:
        scenario.restart()
        scenario.state.gangs.node_requests.restore(entries)
        return scenario.settle()

    def test_open_request_ends_at_the_same_time(self) -> None:
        scenario = later(pods(group(world(), "train").settle(), "train").settle(), 600)
        self.restarted(scenario, scenario.state.gangs.node_requests.entries())
        assert scenario.state.gangs.inqueue.total().get(GPU, 0) == 0
        assert scenario.why("train").code == "WaitingForNodes"
        assert opened(later(scenario, 299)) == ["train"]
        assert opened(later(scenario, 1)) == []

    def test_withdrawal_that_was_not_written_is_decided_again(self) -> None:
        scenario = pods(group(world(), "train").settle(), "train").settle()
        scenario.now += WAIT
        scenario.scheduler.activate_due(scenario.now)
        scenario.cycle()  # the process ends before the phase is written
        self.restarted(scenario, scenario.state.gangs.node_requests.entries())
        assert [entry.gang.name for plan in scenario.plans for entry in plan.withdrawals] == ["train", "train"]
        assert opened(scenario) == []


def test_pod_above_a_deserved_share_is_unschedulable_since_nodes_raise_the_share() -> None:
    scenario = world().queue("a").queue("b").node("g1", gpu=8)
    for queue in ("a", "b"):
        scenario.pod(f"{queue}-0", queue=queue, gpu=4).settle()
    scenario.pod("a-1", queue="a", gpu=4).pod("b-1", queue="b", gpu=4).settle()
    assert scenario.why_pod("a-1").unschedulable


def test_gang_group_requests_nodes_for_all_its_gangs_together() -> None:
    scenario = world()
    for name in ("ps", "worker"):
        group(scenario, name, gang_group=["ps", "worker"])
    scenario.settle()
    assert opened(scenario) == ["ps", "worker"]
    later(scenario, WAIT)
    assert opened(scenario) == []


def test_forecast_of_a_gang_that_no_present_node_fits_does_not_exclude_new_nodes() -> None:
    scenario = pods(group(world().node("small"), "train").settle(), "train").settle()
    (start,) = forecast_starts(scenario.scheduler, scenario.now)
    assert start.forecast.message.startswith("no start is known: the 1 present nodes have no room")


def test_open_request_is_at_rest_and_publishes_nothing() -> None:
    pods(group(world(), "train").settle(), "train").run()


def test_both_gangs_of_a_gang_group_are_unschedulable() -> None:
    scenario = world()
    for name in ("ps", "worker"):
        group(scenario, name, gang_group=["ps", "worker"])
    scenario.settle()
    for name in ("ps", "worker"):
        pods(scenario, name)
    scenario.settle()
    assert scenario.why("ps").unschedulable
    assert scenario.why("worker").unschedulable
    assert "WaitingForNodes" in {scenario.why("ps").code, scenario.why("worker").code}


@pytest.mark.parametrize("by_policy", [False, True])
def test_fifo_queue_requests_nodes_for_its_first_unit_only(by_policy: bool) -> None:
    policy = POLICY.replace("phalanx: {", "phalanx: {queues: {line: {order: fifo}}, ") if by_policy else POLICY
    scenario = world(policy).queue("line", fifo=not by_policy)
    group(scenario, "first", queue="line")
    scenario.now += 1
    group(scenario, "second", queue="line").settle()
    assert opened(scenario) == ["first"]
    later(scenario, WAIT)
    assert opened(scenario) == []
    later(scenario, WAIT)
    assert opened(scenario) == ["first"]


def test_gang_that_borrows_above_its_deserved_share_requests_nodes_within_its_capability() -> None:
    scenario = world().queue("a").queue("b").node("g1", gpu=8)
    for queue in ("a", "b"):
        scenario.pod(f"{queue}-0", queue=queue, gpu=4).settle()
    group(scenario, "train", members=1, gpus=4, queue="a").settle()
    pods(scenario, "train", members=1, gpus=4).settle()
    assert opened(scenario) == ["train"]
    assert scenario.why("train").code == "WaitingForNodes"
    later(scenario.node("g2", gpu=8), 1)
    assert scenario.placed("train") == ["train-0"]


def test_gang_with_a_request_is_promised_no_start_that_closes_nodes() -> None:
    scenario = world(POLICY.replace("allocate, backfill", "allocate, reserve, backfill")).node("g1", gpu=8)
    pods(group(scenario, "train").settle(), "train").settle()
    assert scenario.why("train").code == "WaitingForNodes"
    scenario.pod("single", gpu=8).settle()
    assert scenario.placed() == ["single"]


@pytest.mark.parametrize(("most", "requests_nodes"), [(8, False), (16, True)])
def test_gang_above_the_max_of_its_elastic_quota_requests_no_nodes(most: int, requests_nodes: bool) -> None:
    scenario = world().elastic_quota("ns", min={"gpu": most}, max={"gpu": most})
    group(scenario, "train").settle()
    assert opened(scenario) == (["train"] if requests_nodes else [])


def test_gang_above_a_resource_quota_of_its_namespace_requests_no_nodes() -> None:
    scenario = world()
    quota = ResourceQuota("ns", "team", (("requests.nvidia.com/gpu", 8),))
    scenario.observe("quota", ResourceQuotaUpdated(quota))
    group(scenario, "train").settle()
    assert opened(scenario) == []

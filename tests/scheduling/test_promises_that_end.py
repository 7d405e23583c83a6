"""A start stays reserved only while its unit could start: whatever else refuses the unit frees the node."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from phalanx.model.account import AccountKey, AccountState, Tree
from phalanx.model.events import PodRejected
from phalanx.model.gang import Problem
from phalanx.model.pod import PodClass
from phalanx.model.promise_records import SlipCause, decode, encode
from phalanx.model.run_time import RunTime
from phalanx.model.selectors import HostPort

from .features import starts
from .scenario import Scenario, amounts
from .test_reserve import busy, node_of, plan_of, restarted, start_of, waiting

pytestmark = pytest.mark.feature("start-reservations")

POLICY = """
actions: "enqueue, allocate, reserve, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: capacity}, {name: binpack}]}]
configurations: [{name: reserve, arguments: {startDelaySeconds: 0, forecastSeconds: 0}}]
"""


def promised_gang(members: int = 1) -> Scenario:
    """Return a cluster in which gang `g` has a promised start at 100 on the whole of the only node."""
    world = Scenario(POLICY).queue("q", capability={"cpu": 4}).queue("default").node("n1", cpu=4)
    busy(world, "r1", "n1", 100, cpu=3)
    world.gang("g", members, created=1001, queue="q", uid="u")
    for number in range(members):
        waiting(world, f"p{number + 1}", 0, gang="g", queue="q", cpu=4 // members)
    world.settle()
    assert start_of(world, "g") == 100
    world.now += 1
    world.pod("s1", cpu=1).settle()
    assert not node_of(world, "s1")
    return world


def _blocked(world: Scenario) -> None:
    world.gang("g", 1, problem=Problem.of("InvalidPodGroup", "minMember is no number", "correct it"))


OBSTACLES: dict[str, tuple[Callable[[Scenario], object], str]] = {
    "a raised minimum": (lambda world: world.gang("g", 3), "NotEnoughMembers"),
    "a deleted member": (lambda world: world.gone("p2"), "NotEnoughMembers"),
    "a gated member": (lambda world: world.becomes("p2", gated=True), "NotEnoughMembers"),
    "a deleted PodGroup": (lambda world: world.no_gang("g"), ""),
    "an unreadable minimum": (_blocked, "InvalidPodGroup"),
    "an unreadable member": (lambda world: world.becomes("p2", problem="odd"), "UnreadablePod"),
    "a withdrawn admission": (
        lambda world: world.gang("g", 2, admission=True, admitted=False),
        "AwaitingAdmission",
    ),
    "a closed queue": (lambda world: world.queue("q", state=AccountState.CLOSED), "QueueClosed"),
    "a deleted queue": (lambda world: world.no_account(AccountKey(Tree.QUEUE, "q")), "QueueNotFound"),
    "a lowered quota": (lambda world: world.queue("q", capability={"cpu": 3}), ""),
}


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_promise_ends_with_an_obstacle_and_frees_the_node(obstacle: str) -> None:
    world = promised_gang(2)
    change, code = OBSTACLES[obstacle]
    change(world)
    world.settle()
    assert start_of(world, "g") is None
    assert node_of(world, "s1") == "n1"
    world.now = 1150
    world.gone("r1").settle()
    assert start_of(world, "g") is None
    if "PodGroup" not in obstacle:
        message = world.why("g").message
        assert "it starts no later" not in message.lower()
        assert "was lost at 1970-01-01T00:16:41Z: " in message
        assert code in message


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_restart_restores_no_promise_with_an_obstacle(obstacle: str) -> None:
    world = promised_gang(2)
    told = encode(starts(world.scheduler).promised()[1])
    OBSTACLES[obstacle][0](world)
    again = Scenario(POLICY)
    again.now = 1150
    for event in world.events:
        again.state.apply(event)
    again.gone("r1")
    starts(again.scheduler).load(decode(told)[0])
    again.settle()
    assert start_of(again, "g") is None
    assert node_of(again, "s1") == "n1"


def test_unit_gets_another_start_once_the_obstacle_is_gone() -> None:
    world = promised_gang(2)
    world.gang("g", 3).settle()
    assert start_of(world, "g") is None
    world.gang("g", 2).settle()
    assert start_of(world, "g") is None, "s1 has no end, and its node has no room beside it"
    world.gone("s1").pod("s2", cpu=1, queue="q").settle()
    assert start_of(world, "g") == 100
    assert not node_of(world, "s2")
    assert len(plan_of(world).all()[0].slips) == 1


def test_turn_that_fails_at_the_promised_time_frees_the_node_at_once() -> None:
    """Ports, volumes and spread are checked only at the start."""
    world = Scenario(POLICY).node("n1", cpu=4)
    busy(world, "r1", "n1", 100, cpu=3)
    ports = PodClass(run_limit=50, host_ports=(HostPort(80),))
    world.pod("other", node="n1", pod_class=PodClass(host_ports=(HostPort(80),)), cpu=0)
    world.pod("head", pod_class=ports, cpu=4).settle()
    assert start_of(world, "head") == 100
    world.pod("s1", cpu=1).settle()
    assert not node_of(world, "s1")
    world.now = 1100
    world.gone("r1")
    world.scheduler.activate_due(world.now)
    world.settle()
    assert node_of(world, "s1") == "n1"
    assert start_of(world, "head") is None
    assert "NotPlaceable" in world.why_pod("head").message
    world.now += 1
    world.gone("other", "s1").settle()
    assert node_of(world, "head") == "n1"


def test_turn_that_fails_beside_a_pod_of_higher_priority_frees_the_node_at_once() -> None:
    """The pod is placed before it in the same cycle, so only the next one decides whether the window must move."""
    world = Scenario(POLICY).node("n1", cpu=5)
    busy(world, "r1", "n1", 100, cpu=3)
    ports = PodClass(run_limit=50, host_ports=(HostPort(80),))
    world.pod("other", node="n1", pod_class=PodClass(host_ports=(HostPort(80),)), cpu=0)
    world.pod("head", pod_class=ports, cpu=4).settle()
    world.pod("s1", cpu=1).pod("s2", cpu=1, created=world.now + 1).settle()
    assert (node_of(world, "s1"), node_of(world, "s2")) == ("n1", "")
    world.now = 1100
    world.gone("r1", "s1").pod("vip", cpu=1, priority=10)
    world.scheduler.activate_due(world.now)
    world.settle()
    assert (node_of(world, "vip"), node_of(world, "s2")) == ("n1", "n1")
    assert "NotPlaceable" in world.why_pod("head").message


def test_start_that_is_reserved_for_now_has_its_turn_in_the_next_cycle() -> None:
    """Amounts alone would let the unit start at once, but its port is in use."""
    world = Scenario(POLICY).node("n1", cpu=4)
    world.pod("other", node="n1", pod_class=PodClass(host_ports=(HostPort(80),)), cpu=0)
    world.pod("head", pod_class=PodClass(run_limit=50, host_ports=(HostPort(80),)), cpu=4).settle()
    assert start_of(world, "head") is None
    world.pod("s1", cpu=1).settle()
    assert node_of(world, "s1") == "n1"


def test_unit_whose_turn_failed_rests_in_the_next_process_too() -> None:
    world = Scenario(POLICY).node("n1", cpu=4)
    world.pod("other", node="n1", pod_class=PodClass(host_ports=(HostPort(80),)), cpu=0)
    busy(world, "short", "n1", 100, cpu=3)
    world.pod("head", pod_class=PodClass(run_limit=50, host_ports=(HostPort(80),)), cpu=4).settle()
    world.now = 1100
    world.gone("short")
    world.scheduler.activate_due(world.now)
    world.settle()
    assert [slip.cause for slip in plan_of(world).starts.losses()["head"]] == [SlipCause.NOT_PLACEABLE]
    again = restarted(world, encode(*starts(world.scheduler).promised()[1:]), POLICY)
    assert plan_of(again).starts.losses() == plan_of(world).starts.losses()
    assert again.scheduler.next_recheck == world.scheduler.next_recheck == 1130


def test_limit_of_a_running_pod_gives_a_waiting_unit_a_start_in_the_next_cycle() -> None:
    world = Scenario(POLICY).node("n1", cpu=4).pod("r1", node="n1", cpu=3)
    waiting(world, "p1", 50, cpu=4).settle()
    assert "No start is known" in world.why_pod("p1").message
    world.now += 10
    world.becomes("r1", run_time=RunTime(600), grace=0, started=1000, bound=1000)
    assert not world.scheduler.idle
    world.settle()
    assert start_of(world, "p1") == 600
    assert "It starts no later than" in world.why_pod("p1").message


@pytest.mark.parametrize(
    ("pod", "change", "cause"),
    [
        ("early", {"run_time": RunTime(900)}, SlipCause.LIMIT_CHANGED),
        ("early", {"run_time": RunTime()}, SlipCause.LIMIT_CHANGED),
        ("early", {"terminating": True, "leaves": 1500}, SlipCause.OVERRUN),
        ("other", {"usage": amounts(cpu=3, pods=1)}, SlipCause.DISPLACED),
    ],
)
def test_changed_pod_that_uses_reserved_room_is_named_as_the_cause(
    pod: str, change: dict[str, object], cause: SlipCause
) -> None:
    world = Scenario(POLICY).node("n1", cpu=4)
    busy(world, "early", "n1", 50, cpu=2)
    busy(world, "other", "n1", 600, cpu=2)
    waiting(world, "p1", 50, cpu=2).settle()
    assert start_of(world, "p1") == 50
    world.becomes(pod, **change).settle()
    reservation = plan_of(world).get("p1")
    slip = reservation.slips[-1] if reservation is not None else plan_of(world).starts.lost("p1")
    assert slip is not None
    assert (slip.cause, slip.by) == (cause, f"pod ns/{pod}")


def test_pod_of_another_scheduler_is_named_before_its_kubelet_reports_it() -> None:
    world = busy(Scenario(POLICY).node("n1", cpu=4), "early", "n1", 50, cpu=3)
    waiting(world, "p1", 50, cpu=2).settle()
    assert start_of(world, "p1") == 50
    world.now += 10
    world.pod("stranger", node="n1", cpu=1, scheduler="other").settle()
    assert start_of(world, "p1") == 50
    world.pod("another", node="n1", cpu=2, scheduler="other").settle()
    slip = plan_of(world).starts.lost("p1")
    assert slip is not None
    assert (slip.cause, slip.by) == (SlipCause.DISPLACED, "pod ns/stranger")


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_unit_without_a_known_start_gets_one_when_a_pod_without_a_known_end_is_gone(depth: int) -> None:
    """The freed room alone does not fit the unit: no unit has its turn because of it."""
    world = Scenario(POLICY.replace("startDelaySeconds", f"depth: {depth}, startDelaySeconds")).node("n1", cpu=4)
    world.scheduler._refresh_verdicts = False
    world.pod("endless", node="n1", cpu=1)
    busy(world, "short", "n1", 100, cpu=3).pod("big", cpu=4).settle()
    assert start_of(world, "big") is None
    world.gone("endless").settle()
    assert start_of(world, "big") == 100


@pytest.mark.feature("rejecting-nodes")
def test_promise_moves_when_a_kubelet_on_its_node_rejects_a_pod_of_its_namespace() -> None:
    """Pods of that namespace have classes of their own from then on; the node is closed to these."""
    world = Scenario(POLICY).node("n1", cpu=4).node("n2", cpu=4)
    busy(world, "short", "n1", 100, cpu=4)
    waiting(busy(world, "long", "n2", 1000, cpu=4), "later", 0, cpu=4).settle()
    assert start_of(world, "later") == 100
    pod = world.state.pods["later"].pod
    world.state.apply(PodRejected("n1", "OutOfpods", pod.namespace, pod.pod_class, world.now))
    world.settle()
    assert start_of(world, "later") == 1000
    assert plan_of(world).all()[0].slips[-1].cause is SlipCause.NODE_CLOSED


def test_promise_does_not_move_while_the_api_has_not_confirmed_a_binding_before_it() -> None:
    world = waiting(Scenario(POLICY).node("n1", cpu=4), "first", 300, cpu=4).work()
    assert node_of(world, "first") == "n1"
    waiting(world, "later", 0, cpu=4).work()
    assert start_of(world, "later") == 300
    world.now += 10
    world.node("n1", cpu=4, labels={"changed": "yes"}).work()
    assert start_of(world, "later") == 300
    assert not plan_of(world).all()[0].slips


HEADS: dict[str, Callable[[Scenario], object]] = {
    "an older pod": lambda world: waiting(world, "head", 50, queue="q", cpu=4, created=900),
    "a pod of higher priority": lambda world: waiting(world, "head", 50, queue="q", cpu=4, priority=10),
    "an older gang that awaits admission": lambda world: world.gang(
        "head", 1, created=900, queue="q", admission=True, min_resources=amounts(cpu=9)
    ).pod("head", gang="head", queue="q", cpu=4),
}


@pytest.mark.parametrize("refreshes", [True, False], ids=["verdicts refreshed", "verdicts not refreshed"])
@pytest.mark.parametrize("head", HEADS)
def test_promise_of_a_unit_behind_a_new_head_of_its_fifo_queue_ends(head: str, refreshes: bool) -> None:
    """Its window would close the room that the head needs first."""
    world = Scenario(POLICY).queue("q", fifo=True, capability={"cpu": 8}).node("n1", cpu=4)
    world.scheduler._refresh_verdicts = refreshes
    busy(world, "r1", "n1", 100, cpu=4)
    world.pod("young", queue="q", cpu=4).settle()
    assert start_of(world, "young") == 100
    HEADS[head](world)
    world.settle()
    assert start_of(world, "young") is None
    assert world.why_pod("young").code == "BehindInQueue"
    assert "was lost at 1970-01-01T00:16:40Z: CannotStart (BehindInQueue)" in world.why_pod("young").message
    again = restarted(world, encode(*starts(world.scheduler).promised()[1:]), POLICY)
    assert (start_of(again, "head"), start_of(again, "young")) == (start_of(world, "head"), None)
    world.now = 1100
    world.gone("r1").settle()
    assert node_of(world, "head") == "n1"
    assert not node_of(world, "young")


@pytest.mark.parametrize("behind", ["a pod", "a gang", "two equal gangs"])
def test_unit_behind_a_borrowing_head_of_its_fifo_queue_gets_no_start_before_the_turn_of_the_head(
    behind: str,
) -> None:
    """Its window would close the room of the head, and end in the same cycle: again and again."""
    world = Scenario(POLICY).queue("q", fifo=True).node("n1", cpu=4)
    world.elastic_quota("ns", min={"cpu": 2}, max={"cpu": 40}).elastic_quota(
        "idle", min={"cpu": 2}, max={"cpu": 40}
    )
    busy(world, "r1", "n1", 100, cpu=1)
    world.settle()
    for name in ("g1", "g2") if behind == "two equal gangs" else ("g1",) if behind == "a gang" else ():
        world.gang(name, 1, queue="q", created=1002)
        waiting(world, name, 50, gang=name, queue="q", cpu=4, created=1002)
    if behind == "a pod":
        waiting(world, "p", 50, queue="q", cpu=4, created=1002)
    world.gang("head", 1, queue="q", created=1001).pod("head", gang="head", queue="q", cpu=3, created=1001)
    world.settle()
    assert node_of(world, "head") == "n1"


def test_unit_behind_the_head_of_another_fifo_queue_keeps_its_promise() -> None:
    world = Scenario(POLICY).queue("q", fifo=True).queue("other", fifo=True).node("n1", cpu=4)
    busy(world, "r1", "n1", 100, cpu=4)
    waiting(world, "young", 50, queue="q", cpu=4).settle()
    waiting(world, "old", 50, queue="other", cpu=4, created=900).settle()
    assert (start_of(world, "young"), start_of(world, "old")) == (100, 150)


def test_start_behind_an_evicted_pod_that_the_api_still_shows_waits_for_it_by_name() -> None:
    """The expected end of the pod does not move on with every second."""
    policy = POLICY.replace("reserve, backfill", "reserve, preempt, backfill").replace(
        "forecast", "depth: 0, forecast"
    )
    world = Scenario(policy).node("n1", cpu=4)
    world.pod("victim", node="n1", cpu=4, more={"grace": 30}).settle()
    world.pod("high", cpu=1, priority=10).work()
    assert world.state.pods["victim"].evicting
    world.now += 10
    waiting(world, "later", 0, cpu=3).work()
    assert start_of(world, "later") == 30
    world.now = 1029
    world.node("n1", cpu=4, labels={"changed": "yes"}).work()
    assert start_of(world, "later") == 30
    world.now = 1030
    world.scheduler.activate_due(world.now)
    world.work()
    assert start_of(world, "later") == 90
    slip = plan_of(world).all()[0].slips[-1]
    assert (slip.cause, slip.by) == (SlipCause.OVERRUN, "pod ns/victim")
    world.now += 5
    world.gone("victim").work()
    assert node_of(world, "later") == "n1"


def test_window_stays_beside_one_that_uses_the_guarantee_of_its_own_queue() -> None:
    """The limit of the first pod excludes the guarantee of queue c, which the window of the gang uses by then."""
    world = Scenario(POLICY).node("n1", gpu=6, cpu=20).queue("b").queue("c", guarantee={"nvidia.com/gpu": 1})
    busy(world, "r1", "n1", 100, gpu=6)
    world.settle()
    world.pod("first", queue="b", gpu=2, priority=9)
    world.gang("second", 4, queue="c").pods("second", 4, gang="second", queue="c", gpu=1).settle()
    plan = starts(world.scheduler).plan
    assert plan is not None
    standing = [reservation.window for reservation in plan.all()]
    world.node("n2", cpu=1).settle()
    assert [window.start for window in standing] == [1100, 1100]
    assert all(each.window is window for each, window in zip(plan.all(), standing, strict=True))

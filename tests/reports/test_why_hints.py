"""Fixes that `phalanx why` suggests: sufficient, minimal, and consistent with the reason."""

from __future__ import annotations

import msgspec

from phalanx.cli.explanation.why import render
from phalanx.cluster.state import ClusterState
from phalanx.dialects.intake import Intake
from phalanx.model.account import Account, AccountKey, Tree
from phalanx.model.events import AccountUpdated, GangUpdated, NodeUpdated, PodUpdated
from phalanx.model.gang import Gang, GangKey, Problem
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass, PodPhase
from phalanx.model.resources import requests_of
from phalanx.model.selectors import HostPort, Taint
from phalanx.reports.snapshot import Snapshot
from phalanx.reports.why import WhyReport
from phalanx.reports.why_answer import WhyAnswer
from phalanx.scheduling.policy.loader import DEFAULT_POLICY, load_policy


def asks(cpu: int, gpu: int = 0, node_selector: tuple[tuple[str, str], ...] = ()) -> PodClass:
    amounts = {"cpu": cpu * 1000, "nvidia.com/gpu": gpu}
    wanted = requests_of({name: amount for name, amount in amounts.items() if amount})
    return PodClass(requests=wanted, node_selector=node_selector)


class World:
    """Nodes of `cpu` cores (and `gpu` GPUs) each, with the built-in policy."""

    def __init__(self, nodes: int, cpu: int, gpu: int = 0) -> None:
        self.snapshot = Snapshot(ClusterState(), Intake(("phalanx",)))
        for number in range(nodes):
            self.node(f"n{number}", cpu, gpu)

    def node(self, name: str, cpu: int, gpu: int = 0, label: str = "", taints: tuple[Taint, ...] = ()) -> None:
        offered = requests_of({"cpu": cpu * 1000, "nvidia.com/gpu": gpu, "pods": 110})
        labels = ((label, "yes"),) if label else ()
        self.snapshot.state.apply(NodeUpdated(Node(name, allocatable=offered, labels=labels, taints=taints)))

    def cordoned(self, name: str, cpu: int, *taints: Taint) -> None:
        offered = requests_of({"cpu": cpu * 1000, "pods": 110})
        self.snapshot.state.apply(NodeUpdated(Node(name, allocatable=offered, unschedulable=True, taints=taints)))

    def queue(self, name: str, cpu: int = 0) -> None:
        limits = (("cpu", cpu * 1000),) if cpu else ()
        spec = Account(AccountKey(Tree.QUEUE, name), capability=limits, label=f"Queue {name}")
        self.snapshot.state.apply(AccountUpdated(spec))

    def gang(
        self, name: str, count: int, what: PodClass, queue: str = "default", *, on: str = "", problem: str = ""
    ) -> None:
        fault = Problem.of("PodGroupNotFound", problem, "create it") if problem else None
        spec = Gang(GangKey("ns", name), min_member=1 if problem else count, queue=queue, problem=fault)
        self.snapshot.state.apply(GangUpdated(spec))
        phase = PodPhase.RUNNING if on else PodPhase.PENDING
        for number in range(count):
            one = f"{name}-{number}"
            pod = Pod("ns", one, one, what, what.requests, "phalanx", on, phase, gang=name, queue=queue)
            self.snapshot.state.apply(PodUpdated(pod))

    def start(self, name: str) -> tuple[str, str]:
        """Return the reason for a missing start time."""
        start = WhyReport(self.snapshot, load_policy(), 1e9).start(GangKey("ns", name))
        assert start is not None
        return start.reason, start.message

    def why(self, name: str, policy: str = DEFAULT_POLICY) -> WhyAnswer:
        answer = WhyReport(self.snapshot, load_policy(policy), 1e9).gang(GangKey("ns", name))
        assert answer is not None
        return answer


def test_unused_resource_cannot_be_freed() -> None:
    world = World(1, 4, gpu=2)
    world.gang("gpu3", 3, asks(1, 1))
    assert world.why("gpu3").change == "add 1 nvidia.com/gpu"


def test_gang_too_large_for_the_cluster_suggests_to_free_only_used_amounts() -> None:
    world = World(4, 4)
    world.gang("other", 1, asks(1), on="n0")
    world.gang("big", 5, asks(4))
    answer = world.why("big")
    assert answer.change == "add 4 cpu and free or add 4 cpu more"
    assert answer.evictions is not None
    assert answer.evictions.missing.endswith("to fix: add 4 cpu")


def test_gang_that_fits_an_empty_cluster_suggests_to_free_or_add() -> None:
    world = World(2, 4)
    world.gang("other", 1, asks(1), on="n0")
    world.gang("big", 2, asks(4))
    assert world.why("big").change.startswith("free or add 4 cpu")


def test_gang_larger_than_the_cluster_names_the_amount_to_add_and_no_wait() -> None:
    world = World(4, 4)
    for queue in ("default", "busy"):
        world.queue(queue)
    world.gang("other", 1, asks(4), "busy", on="n0")
    world.gang("big", 5, asks(4))
    evictions = world.why("big").evictions
    assert evictions is not None
    assert "deserved share 12; 20 more would exceed it" in evictions.missing
    assert evictions.missing.endswith("to fix: add nodes that offer at least 4 more cpu")


def test_full_queue_names_the_sufficient_capability() -> None:
    answers = {}
    for capability in (4, 5):
        world = World(1, 16)
        world.queue("default")
        world.queue("small", capability)
        world.gang("runs", 3, asks(1), "small", on="n0")
        world.gang("waits", 1, asks(2), "small")
        answers[capability] = world.why("waits")
    change = "free 1 cpu charged to Queue small, or raise its capability to 5"
    assert answers[4].change.startswith(change)
    assert answers[5].forecast == "StartsNow"


def test_a_capability_is_not_named_where_other_queues_would_leave_no_share_above_it() -> None:
    """Of 8 cores each of two queues deserves 4, which equals the capability."""
    world = World(2, 4)
    world.queue("default")
    world.queue("small", 4)
    world.gang("runs", 3, asks(1), "small", on="n0")
    world.gang("busy", 8, asks(1))
    world.gang("waits", 1, asks(2), "small")
    answer = world.why("waits")
    assert answer.reason == "QuotaExceeded"
    assert "raise its capability" not in answer.change


def test_a_queue_that_does_not_exist_can_be_created() -> None:
    world = World(1, 4)
    world.gang("lost", 1, asks(1), "nosuch")
    assert world.why("lost").change == "create the queue, or name one that exists"


def test_toleration_of_a_requested_node_is_suggested_before_labels_on_further_nodes() -> None:
    world = World(3, 4)
    world.node("tainted", 4, label="ssd", taints=(Taint("team", "a", "NoSchedule"),))
    world.gang("picky", 1, asks(1, node_selector=(("ssd", "yes"),)))
    assert world.why("picky").change == (
        "tolerate the taint {team: a} or remove it (makes 1 node eligible), or "
        "label nodes to match the selector or affinity of the pod, or relax it (makes 3 nodes eligible)"
    )


def test_minimum_of_a_gang_without_its_pod_group_is_unknown() -> None:
    world = World(1, 4)
    world.gang("g", 2, asks(1), problem="PodGroup ns/g not found")
    answer = world.why("g")
    assert (answer.minimum, answer.missing, answer.size) == (0, 0, None)
    assert render(answer) == (
        "Gang ns/g: Pending (PodGroupNotFound)\n"
        "  gang ns/g cannot start: PodGroup ns/g not found\n"
        "  Gang ns/g: minimum unknown; members: 2 pending\n"
        "  Runs: no end known\n"
        "  Fix: create it"
    )


def test_share_limited_by_the_demand_of_another_queue_is_not_expected_to_grow() -> None:
    """The busy queue deserves half by its requests, whichever of its pods run."""
    world = World(4, 4)
    for queue in ("default", "busy"):
        world.queue(queue)
    world.gang("runs", 1, asks(4), "busy", on="n0")
    world.gang("waits", 5, asks(4), "busy")
    world.gang("mid", 3, asks(4))
    borrow = "name: proportion"
    answer = world.why(
        "mid", DEFAULT_POLICY.replace(borrow, f"{borrow}\n    arguments: {{proportion.borrow: false}}")
    )
    assert answer.evictions is not None
    assert answer.evictions.message == "evicting all other pods would not help"
    assert answer.change == "wait until other queues request less, or add nodes"


def test_cordoned_nodes_are_suggested_for_uncordon_with_and_without_the_cordon_taint() -> None:
    for taints in ((), (Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"),)):
        world = World(0, 0)
        for number in range(3):
            world.cordoned(f"n{number}", 8, *taints)
        world.gang("waits", 2, asks(4))
        answer = world.why("waits")
        assert answer.change == "uncordon nodes (makes 3 nodes eligible)"


def test_each_member_that_is_too_large_for_all_nodes_needs_room() -> None:
    answers = []
    for large in range(3):
        world = World(2, 16)
        for number in range(large):
            world.node(f"large{number}", 17)
        world.gang("waits", 2, asks(17))
        answers.append(world.why("waits"))
    assert "or add nodes that offer 17 cpu to each of 2 pods (the largest eligible" in answers[0].change
    assert answers[1].change.endswith("add 17 cpu")
    assert answers[2].forecast == "StartsNow"


def test_members_that_keep_each_other_off_by_a_port_need_nodes_not_another_port() -> None:
    one = PodClass(requests=requests_of({"cpu": 1000}), host_ports=(HostPort(8080),))
    answers = []
    for nodes in (2, 3):
        world = World(nodes, 16)
        world.gang("waits", 3, one)
        answers.append(world.why("waits"))
    assert answers[0].change == "add 1 node (each node takes 1 pod per host port), or lower the minimum"
    assert answers[1].forecast == "StartsNow"
    world = World(1, 16)
    world.gang("has", 1, one, on="n0")
    world.gang("waits", 1, one)
    assert world.why("waits").change.startswith("use another host port (makes 1 node eligible)")


def test_a_start_is_impossible_only_where_no_node_would_do() -> None:
    told = {}
    for cpu in (4, 9):
        world = World(0, 0)
        world.cordoned("n0", 8)
        world.gang("waits", 1, asks(cpu))
        told[cpu] = world.start("waits")
    room = "have no room for 1 of its pods even when they are empty"
    assert told[4] == ("NodesClosed", f"no start is known: the 0 nodes that are open to it now {room}")
    assert told[9] == ("CannotEverRun", f"cannot ever run: all 1 nodes {room}")


def test_gang_whose_members_are_all_gated_gets_no_suggestion_of_more_pods() -> None:
    world = World(1, 8)
    world.gang("g", 3, asks(1))
    for record in list(world.snapshot.state.pods.values()):
        world.snapshot.state.apply(PodUpdated(msgspec.structs.replace(record.pod, gated=True)))
    answer = world.why("g")
    assert answer.change == "remove the scheduling gates of 3 pods"
    assert "3 gated" in answer.message


def test_running_gang_above_the_share_of_its_queue_names_the_borrowed_room() -> None:
    world = World(1, 64, gpu=10)
    for queue in ("a", "b"):
        world.queue(queue)
    world.gang("runs", 6, asks(1, gpu=1), "a", on="n0")
    world.gang("waits", 6, asks(1, gpu=1), "b")
    sentence = "runs on borrowed room: 6 nvidia.com/gpu, deserved 5 (Queue a)"
    assert world.why("runs").message == f"6 pods are on nodes; the minimum is 6; {sentence}"
    pod = WhyReport(world.snapshot, load_policy(), 1e9).pod("ns", "runs-0")
    assert pod is not None
    assert pod.message.endswith(sentence)


def test_running_gang_within_the_share_of_its_queue_names_no_borrowed_room() -> None:
    world = World(1, 64, gpu=10)
    for queue in ("a", "b"):
        world.queue(queue)
    world.gang("runs", 5, asks(1, gpu=1), "a", on="n0")
    world.gang("waits", 6, asks(1, gpu=1), "b")
    assert "borrowed" not in world.why("runs").message

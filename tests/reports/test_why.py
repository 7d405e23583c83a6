"""`phalanx why`: its answers about pods and gangs, from the cluster state alone."""

from __future__ import annotations

import msgspec
import pytest

from phalanx.cli.explanation.why import render
from phalanx.cluster.state import ClusterState
from phalanx.dialects.intake import Intake
from phalanx.model.events import GangUpdated, NodeUpdated, PodUpdated
from phalanx.model.gang import ExpectedMembers, Gang, GangKey, GroupRef, MatchPolicy
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass, PodPhase
from phalanx.model.resources import requests_of
from phalanx.model.run_time import RunTime
from phalanx.model.topology import TopologyRule
from phalanx.reports.pod_troubles import PodTrouble
from phalanx.reports.snapshot import Snapshot
from phalanx.reports.why import WhyReport
from phalanx.reports.why_answer import WhyAnswer
from phalanx.scheduling.policy.loader import load_policy

KEY = GangKey("ns", "g")
ONE = PodClass(requests=requests_of({"cpu": 1000}))


class Cluster:
    def __init__(self, cpus: int, minimum: int, policy: MatchPolicy = MatchPolicy.WAITING_AND_RUNNING) -> None:
        self.snapshot = Snapshot(ClusterState(), Intake(("phalanx",)))
        state = self.snapshot.state
        state.apply(NodeUpdated(Node("n", allocatable=requests_of({"cpu": cpus * 1000, "pods": 110}))))
        state.apply(GangUpdated(Gang(KEY, min_member=minimum, match_policy=policy)))

    def pods(self, first: int, count: int, phase: PodPhase = PodPhase.PENDING, node: str = "") -> None:
        for number in range(first, first + count):
            pod = Pod("ns", f"g-{number}", f"u{number}", ONE, ONE.requests, "phalanx", node, phase, gang="g")
            self.snapshot.state.apply(PodUpdated(pod))

    def gang(self) -> WhyAnswer:
        answer = WhyReport(self.snapshot, load_policy(), 1e9).gang(KEY)
        assert answer is not None
        return answer

    def pod(self, number: int) -> WhyAnswer:
        answer = WhyReport(self.snapshot, load_policy(), 1e9).pod("ns", f"g-{number}")
        assert answer is not None
        return answer


def test_a_gang_without_room_names_counts_and_the_smallest_change() -> None:
    cluster = Cluster(cpus=2, minimum=3)
    cluster.pods(0, 3)
    answer = cluster.gang()
    assert (answer.state, answer.reason) == ("Pending", "NotEnoughResources")
    assert (answer.placeable, answer.missing) == (2, 1)
    assert [(part.reason, part.count) for part in answer.nodes] == [("Insufficient cpu", 1)]
    assert "1 cpu" in answer.change


def test_declaring_object_is_named_as_kubectl_accepts_it() -> None:
    cluster = Cluster(cpus=2, minimum=3)
    cluster.pods(0, 3)
    assert "Object:" not in render(cluster.gang())
    ref = GroupRef("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups", "ns", "g", "u")
    cluster.snapshot.state.apply(GangUpdated(Gang(KEY, min_member=3, source=ref)))
    answer = cluster.gang()
    assert answer.object == "podgroups.scheduling.x-k8s.io/g"
    assert "  Object: podgroups.scheduling.x-k8s.io/g\n" in render(answer)


def test_a_gang_that_would_start_says_where() -> None:
    cluster = Cluster(cpus=3, minimum=3)
    cluster.pods(0, 3)
    answer = cluster.gang()
    assert (answer.state, answer.forecast, answer.reason) == ("Pending", "StartsNow", "")
    assert answer.message.endswith("placed now on n")


def test_gang_whose_binding_fails_repeats_the_message_of_the_api_server() -> None:
    cluster = Cluster(cpus=3, minimum=3)
    cluster.pods(0, 3)
    cluster.snapshot.refused["u1"] = "binding to node n failed: 403 Forbidden"
    answer = cluster.gang()
    assert (answer.state, answer.reason) == ("Pending", "SchedulerError")
    assert "403 Forbidden" in answer.message


@pytest.mark.parametrize(
    ("trouble", "change"),
    [
        (PodTrouble("CrashLoopBackOff", "back-off 5m0s", "main"), "kubectl logs -n ns g-1 -c main --previous"),
        (PodTrouble("ImagePullBackOff", "no such image", "main"), "correct the image"),
    ],
    ids=["crash", "image"],
)
def test_pods_on_nodes_whose_containers_do_not_run_are_named(trouble: PodTrouble, change: str) -> None:
    cluster = Cluster(cpus=3, minimum=2)
    cluster.pods(0, 2, PodPhase.RUNNING, "n")
    cluster.snapshot.troubles["u1"] = trouble
    answer = cluster.gang()
    assert answer.reason == trouble.reason
    assert answer.message == (
        f"2 pods are on nodes; the minimum is 2; 1 pod does not run: g-1: container main: {trouble.reason}: "
        f"{trouble.message}"
    )
    assert change in answer.change
    member = cluster.pod(1)
    assert (member.reason, change in member.change) == (trouble.reason, True)
    assert cluster.pod(0).reason == ""


def test_gang_that_waits_for_its_volumes_is_said_to_wait_for_them() -> None:
    cluster = Cluster(cpus=3, minimum=2)
    cluster.pods(0, 2)
    text = "waits for claim data, which example.com/x has to provision"
    cluster.snapshot.troubles |= dict.fromkeys(("u0", "u1"), PodTrouble("WaitingForVolumes", text))
    answer = cluster.gang()
    assert (answer.reason, answer.message, answer.forecast) == ("WaitingForVolumes", text, "")
    assert "provisioner" in answer.change


def test_a_gang_that_lost_a_member_lacks_it() -> None:
    cluster = Cluster(cpus=3, minimum=3)
    cluster.pods(0, 2, PodPhase.RUNNING, "n")
    cluster.pods(2, 1, PodPhase.FAILED, "n")
    answer = cluster.gang()
    assert (answer.state, answer.reason, answer.missing) == ("Partial", "NotEnoughMembers", 1)
    assert answer.message.startswith("2 pods on nodes; only 2 of the 3 required pods of the gang exist")


@pytest.mark.parametrize("about", ["gang", "pod"])
def test_gang_with_its_quorum_shows_the_waiting_reason_of_its_surplus(about: str) -> None:
    cluster = Cluster(cpus=3, minimum=2)
    cluster.pods(0, 3, PodPhase.RUNNING, "n")
    cluster.pods(3, 1)
    answer = cluster.gang() if about == "gang" else cluster.pod(3)
    state = "Running" if about == "gang" else "Pending"
    assert (answer.state, answer.reason) == (state, "NotEnoughResources")
    if about == "gang":
        assert answer.message.startswith("it runs with 3 of 4 pods and has its minimum; 1 pending: ")


@pytest.mark.parametrize(("phase", "state"), [(PodPhase.RUNNING, "Running"), (PodPhase.SUCCEEDED, "Completed")])
def test_a_gang_that_has_all_it_needs(phase: PodPhase, state: str) -> None:
    cluster = Cluster(cpus=3, minimum=3, policy=MatchPolicy.WAITING_RUNNING_SUCCEEDED)
    cluster.pods(0, 3, phase, "n")
    assert cluster.gang().state == state


def test_missing_object_has_no_answer() -> None:
    cluster = Cluster(cpus=3, minimum=3)
    inquiry = WhyReport(cluster.snapshot, load_policy(), 1e9)
    assert inquiry.pod("ns", "nobody") is None
    assert inquiry.gang(GangKey("ns", "nobody")) is None


def test_a_gang_with_a_topology_says_in_which_domain_it_is_or_would_be() -> None:
    cluster = Cluster(cpus=1, minimum=2)
    state = cluster.snapshot.state
    for name in ("r1a", "r1b"):
        offered = requests_of({"cpu": 1000, "pods": 110})
        state.apply(NodeUpdated(Node(name, allocatable=offered, labels=(("rack", "r1"),))))
    state.apply(GangUpdated(Gang(KEY, min_member=2, topology=TopologyRule.by_label("rack"))))
    cluster.pods(0, 2)
    answer = cluster.gang()
    assert (answer.forecast, answer.domain) == ("StartsNow", "r1 (rack)")
    assert "  Domain: r1 (rack)" in render(answer)


@pytest.mark.parametrize("about", ["gang", "pod"])
def test_unused_minimum_is_mentioned(about: str) -> None:
    cluster = Cluster(cpus=3, minimum=3, policy=MatchPolicy.ONCE_SATISFIED)
    cluster.pods(0, 3, PodPhase.RUNNING, "n")
    cluster.pods(3, 1)
    answer = cluster.gang() if about == "gang" else cluster.pod(3)
    assert answer.message.endswith(
        "1 Insufficient cpu; the minimum of 3 was met in this run; match policy once-satisfied does not require it "
        "again while pods of the gang are on nodes (3 now)"
    )


def test_a_gang_that_could_be_larger_says_how_large_it_is_and_why_not_more() -> None:
    cluster = Cluster(cpus=4, minimum=2)
    cluster.pods(0, 4, PodPhase.RUNNING, "n")
    cluster.pods(4, 4)
    answer = cluster.gang()
    assert answer.state == "Running"
    assert answer.message.startswith("it runs with 4 of 8 pods and has its minimum; 4 pending: ")
    assert "Insufficient cpu" in answer.message
    text = render(answer)
    assert "Size: 4 of 8 members have nodes (minimum 2)" in text


def test_gang_as_large_as_its_minimum_shows_no_size() -> None:
    cluster = Cluster(cpus=4, minimum=2)
    cluster.pods(0, 2, PodPhase.RUNNING, "n")
    assert cluster.gang().size is None


def expected_members(cluster: Cluster, count: int, node: str, cpus: int = 1) -> None:
    requests = requests_of({"cpu": cpus * 1000})
    cluster.snapshot.state.apply(
        GangUpdated(Gang(KEY, min_member=1, expected=ExpectedMembers(count, requests, 300)))
    )
    for number in range(count):
        pod = Pod("ns", f"g-expected-{number}", f"e{number}", PodClass(requests=requests), requests, "phalanx")
        pod = msgspec.structs.replace(pod, gang="g", placeholder=True, nominated_node=node, index=number)
        cluster.snapshot.state.apply(PodUpdated(msgspec.structs.replace(pod, expires=1300 if node else 0)))


def test_room_reserved_for_expected_members_is_shown() -> None:
    cluster = Cluster(cpus=4, minimum=1)
    cluster.pods(0, 1, PodPhase.RUNNING, "n")
    expected_members(cluster, 3, "n")
    report = WhyReport(cluster.snapshot, load_policy(), 1200.0)
    answer = report.gang(KEY)
    assert answer is not None
    assert "Reserved: room for 3 members that its leader will create until 1970-01-01T00:21:40Z" in render(answer)


def test_leader_that_waits_for_room_of_its_workers_names_them() -> None:
    cluster = Cluster(cpus=4, minimum=1)
    cluster.pods(0, 1)
    expected_members(cluster, 3, "", cpus=2)
    answer = cluster.gang()
    assert answer.reason == "NotEnoughResources"
    assert "of the 4 required pods of gang ns/g (3 pods created once it runs) fit" in answer.message


def test_pod_shows_its_end_and_the_field_that_sets_it() -> None:
    cluster = Cluster(cpus=2, minimum=1)
    cluster.pods(0, 1)
    run_time = RunTime(
        3600, "Job train: spec.activeDeadlineSeconds", estimate=1800, estimate_source="annotation e", allowed=600,
        allowed_source="Queue lab: annotation q",
    )  # fmt: skip
    pod = msgspec.structs.replace(cluster.snapshot.state.pods["u0"].pod, run_time=run_time)
    cluster.snapshot.state.apply(PodUpdated(pod))
    text = render(cluster.pod(0))
    assert "  Runs: at most 1h (Job train: spec.activeDeadlineSeconds)\n" in text
    assert "  Expected to run: 30m (annotation e)\n" in text
    assert "  May run: 10m (Queue lab: annotation q); nothing enforces this limit" in text


def test_a_gang_ends_when_its_last_member_does() -> None:
    cluster = Cluster(cpus=2, minimum=2)
    cluster.pods(0, 3)
    assert "  Runs: no end known\n" in render(cluster.gang())
    for number, limit in enumerate((60, 3600)):
        pod = cluster.snapshot.state.pods[f"u{number}"].pod
        cluster.snapshot.state.apply(PodUpdated(msgspec.structs.replace(pod, run_time=RunTime(limit, "f"))))
    assert "  Runs: no end known: 1 of its pods have no limit" in render(cluster.gang())
    pod = msgspec.structs.replace(cluster.snapshot.state.pods["u2"].pod, run_time=RunTime(30, "f"))
    cluster.snapshot.state.apply(PodUpdated(pod))
    assert "  Runs: at most 1h (f)" in render(cluster.gang())

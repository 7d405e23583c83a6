"""`phalanx why` about evictions: victims and preemptors, potential victims, and changes that would help."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from phalanx.cli.explanation.why import render
from phalanx.cluster.state import ClusterState
from phalanx.dialects.intake import Intake
from phalanx.kube.errors import ApiError
from phalanx.model.account import Account, AccountKey, EvictionRate, Tree
from phalanx.model.decisions import EvictionReason
from phalanx.model.events import AccountUpdated, GangUpdated, NodeUpdated, PodUpdated
from phalanx.model.eviction_condition import ToldEviction
from phalanx.model.gang import Gang, GangKey
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass, PodPhase
from phalanx.model.resources import requests_of
from phalanx.reports.past_evictions import add_past_eviction
from phalanx.reports.snapshot import DisruptionTarget, Snapshot
from phalanx.reports.why import WhyReport
from phalanx.reports.why_answer import WhyAnswer
from phalanx.scheduling.policy.loader import load_policy
from phalanx.views.gang_state import GangState

NOW = 1_000_000.0
HOUR = 3600


def cpus(count: int) -> PodClass:
    return PodClass(requests=requests_of({"cpu": count * 1000}))


class Cluster:
    """One node with four CPUs, full of a gang of three and a pod on its own; both began an hour ago."""

    def __init__(self, priority: int = 0) -> None:
        self.snapshot = Snapshot(ClusterState(), Intake(("phalanx",)))
        self.state = self.snapshot.state
        self.state.apply(NodeUpdated(Node("n", allocatable=requests_of({"cpu": 4000, "pods": 110}))))
        self.gang("old", 3)
        for number in range(3):
            self.pod(f"old-{number}", gang="old", node="n", priority=priority)
        self.pod("lone", node="n", priority=priority)

    def gang(self, name: str, minimum: int) -> None:
        self.state.apply(GangUpdated(Gang(GangKey("ns", name), min_member=minimum)))

    def pod(self, name: str, *, gang: str = "", node: str = "", cpu: int = 1, **more: Any) -> None:
        cls, phase = cpus(cpu), PodPhase.RUNNING if node else PodPhase.PENDING
        began = int(NOW) - HOUR
        pod = Pod("ns", name, name, cls, cls.requests, "phalanx", node, phase, gang=gang, started=began, **more)
        self.state.apply(PodUpdated(pod))

    def becomes(self, name: str, **change: Any) -> None:
        self.state.apply(PodUpdated(msgspec.structs.replace(self.state.pods[name].pod, **change)))

    def ask(self, name: str) -> WhyAnswer:
        inquiry = WhyReport(self.snapshot, load_policy(), NOW)
        answer = inquiry.pod("ns", name) or inquiry.gang(GangKey("ns", name))
        assert answer is not None
        return answer


def test_victims_that_would_be_evicted_now_are_listed_with_their_cost() -> None:
    cluster = Cluster()
    cluster.pod("new", cpu=3, priority=10)
    answer = cluster.ask("new")
    assert (answer.state, answer.forecast) == ("Pending", "StartsAfterEvictions")
    assert answer.evictions is not None
    assert answer.evictions.state == "Due"
    assert [departure.pod for departure in answer.evictions.pods] == ["ns/old-0", "ns/old-1", "ns/old-2"]
    assert msgspec.to_builtins(answer.evictions.cost) == {
        "pods": 3,
        "gangs": 1,
        "priority": 0,
        "violations": 0,
        "pod_hours": 3.0,
    }
    assert "3  ns/old-0, ns/old-1, ns/old-2: priority 0 is below priority 10" in render(answer)
    assert "Cost: 3 pods, 1 gang below its minimum" in render(answer)


def test_running_pod_shows_that_it_would_be_evicted_now() -> None:
    cluster = Cluster()
    cluster.pod("new", cpu=1, priority=10)
    answer = cluster.ask("lone")
    assert answer.state == "Running"
    assert answer.message.endswith(
        "it would be evicted now: preempted by pod ns/new (priority 0 is below priority 10)"
    )


def test_preemptor_names_its_terminating_victims_and_their_grace() -> None:
    cluster = Cluster()
    cluster.becomes("lone", terminating=True, leaves=int(NOW) + 20)
    cluster.pod("new", cpu=1, priority=10, nominated_node="n")
    answer = cluster.ask("new")
    assert (answer.state, answer.reason) == ("Pending", "WaitingForEvictedPods")
    found = answer.evictions
    assert found is not None
    assert (found.state, found.message) == (
        "Leaving",
        "1 evicted pod terminating; the last grace period ends in 20s",
    )
    assert [(each.pod, each.since, each.until) for each in found.pods] == [
        ("ns/lone", "1970-01-12T13:46:30Z", "1970-01-12T13:47:00Z")
    ]
    assert [(room.node, room.pods) for room in found.rooms] == [("n", 1)]
    assert "ns/lone on n, evicted at 1970-01-12T13:46:30Z, grace period ends at 1970-01-12T13:47:00Z" in render(
        answer
    )


def test_pod_that_fits_after_terminating_pods_waits_without_a_reservation() -> None:
    cluster = Cluster()
    cluster.becomes("lone", terminating=True, leaves=int(NOW) + 20)
    cluster.pod("new", cpu=1)
    answer = cluster.ask("new")
    assert answer.reason == "NotEnoughResources"
    assert answer.evictions is not None
    assert (answer.evictions.state, answer.evictions.held) == ("Leaving", False)
    assert "Fits then on: n (1)" in render(answer)


def test_equal_pods_have_distinct_victims() -> None:
    cluster = Cluster()
    cluster.gang("old", 1)
    for name in ("new-a", "new-b"):
        cluster.pod(name, cpu=1, priority=10)
    inquiry = WhyReport(cluster.snapshot, load_policy(), NOW)
    answers = [inquiry.pod("ns", name) for name in ("new-a", "new-b")]
    founds = [answer.evictions for answer in answers if answer is not None and answer.evictions is not None]
    assert [found.state for found in founds] == ["Due", "Due"]
    assert sum(found.cost.pods for found in founds if found.cost is not None) == 2
    assert len({departure.pod for found in founds for departure in found.pods}) == 2


def test_pod_names_the_priority_that_it_has_to_exceed() -> None:
    cluster = Cluster(priority=10)
    cluster.pod("new", cpu=3, priority=10)
    answer = cluster.ask("new")
    assert (answer.state, answer.reason) == ("Pending", "NotEnoughResources")
    found = answer.evictions
    assert found is not None
    assert (found.state, found.message) == ("Vain", "3 pods would have to be evicted; all of them are protected")
    assert [(each.why, each.pods) for each in found.reasons] == [
        ("their priority 10 is not lower", ["ns/old-0", "ns/old-1", "ns/old-2"])
    ]
    assert found.changes == ["raise its priority above 10"]
    assert answer.change == "free or add 3 cpu, or raise its priority above 10"


def test_shortage_that_remains_after_all_evictions_is_shown() -> None:
    cluster = Cluster()
    cluster.gang("big", 3)
    for number in range(3):
        cluster.pod(f"big-{number}", gang="big", cpu=2, priority=10)
    found = cluster.ask("big").evictions
    assert found is not None
    assert found.state == "Vain"
    assert found.missing.startswith("only 2 of the 3 required pods of gang ns/big fit; ")
    assert found.missing.endswith("to fix: add 2 cpu")


def test_a_member_above_the_minimum_waits_without_evictions() -> None:
    cluster = Cluster()
    cluster.pod("old-3", gang="old", priority=10)
    found = cluster.ask("old-3").evictions
    assert found is not None
    assert found.message == "its gang has its minimum; the policy evicts no pods for additional members"


def test_terminating_pod_names_its_preemptor() -> None:
    cluster = Cluster()
    cluster.becomes("lone", terminating=True, leaves=int(NOW) + 20, condemned="phalanx")
    fields = ToldEviction("phalanx", EvictionReason.PREEMPTED, "pod ns/new", "priority 0 is below priority 10")
    told = "preempted by pod ns/new (priority 0 is below priority 10)"
    cluster.snapshot.disruption_targets["lone"] = DisruptionTarget("PreemptionByScheduler", "x", fields)
    answer = cluster.ask("lone")
    assert (answer.state, answer.reason) == ("Evicting", "PreemptionByScheduler")
    assert (
        answer.message
        == f"the pod is being evicted from node n: {told}; its grace period ends at 1970-01-12T13:47:00Z"
    )


class TestEvictionRates:
    """Two pods within ten minutes may be evicted from the default queue."""

    def world(self, pods: int = 2) -> Cluster:
        cluster = Cluster()
        key = AccountKey(Tree.QUEUE, "default")
        rate = EvictionRate(pods, 600)
        cluster.state.apply(AccountUpdated(Account(key, label="Queue default", eviction_rate=rate)))
        for name in ("old-0", "old-1", "old-2", "lone"):
            cluster.becomes(name, gang="")
        return cluster

    def gone(self, cluster: Cluster, seconds: int, by: str = "phalanx", grace: int = 30) -> None:
        """Mark two pods as evicted `ago` seconds ago."""
        for name in ("old-0", "old-1"):
            leaves = int(NOW) - seconds + grace
            cluster.becomes(name, terminating=True, leaves=leaves, grace=grace, condemned=by)

    def test_no_immediate_eviction_is_shown_where_a_rate_limit_decides_the_time(self) -> None:
        cluster = self.world()
        cluster.pod("new", priority=10)
        inquiry = WhyReport(cluster.snapshot, load_policy(), NOW)
        answer = inquiry.pod("ns", "new")
        assert answer is not None
        assert answer.evictions is not None
        assert (answer.state, answer.forecast) == ("Pending", "StartsAfterEvictions")
        assert answer.message.startswith(
            "1 pod would be evicted as soon as eviction rates permit, grace period at most"
        )
        assert answer.change == (
            "wait: Queue default allows at most 2 evictions within 10m; "
            "only the running scheduler knows all earlier evictions"
        )
        (departure,) = answer.evictions.pods
        victim = inquiry.pod(*departure.pod.split("/"))
        assert victim is not None
        assert "; it would be evicted as soon as eviction rates permit: preempted" in victim.message

    def test_terminating_pod_counts_from_the_time_of_its_condition(self) -> None:
        cluster = self.world()
        self.gone(cluster, seconds=20)
        cluster.pod("new", cpu=3, priority=10)
        answer = cluster.ask("new")
        assert answer.evictions is not None
        assert answer.state == "Pending"
        assert [(each.why, each.until) for each in answer.evictions.reasons] == [
            ("Queue default allows at most 2 evictions within 10m", "1970-01-12T13:56:20Z")
        ]

    def test_evictions_resume_after_the_period_of_the_rate_limit(self) -> None:
        cluster = self.world()
        cluster.state.apply(
            NodeUpdated(Node("m", allocatable=requests_of({"cpu": 2000, "pods": 110}), unschedulable=True))
        )
        for name in ("far-0", "far-1"):
            cluster.pod(name, node="m", terminating=True, leaves=int(NOW) + 10, condemned="phalanx")
        cluster.pod("new", priority=10)
        assert cluster.ask("new").change.endswith(
            "wait until 1970-01-12T13:56:20Z (Queue default allows at most 2 evictions within 10m)"
        )

    @pytest.mark.parametrize("by", ["", "another"])
    def test_pod_evicted_by_another_scheduler_does_not_count(self, by: str) -> None:
        cluster = self.world()
        self.gone(cluster, 20, by)
        cluster.pod("new", cpu=3, priority=10)
        assert cluster.ask("new").forecast == "StartsAfterEvictions"

    def test_pod_evicted_before_the_period_does_not_count(self) -> None:
        cluster = self.world()
        self.gone(cluster, 601, grace=610)
        cluster.pod("new", cpu=3, priority=10)
        assert cluster.ask("new").forecast == "StartsAfterEvictions"


class Events:
    """Answers a list of events like an API server."""

    def __init__(self, *events: dict[str, Any], status: int = 0) -> None:
        self._events = events
        self._status = status
        self.asked: list[str] = []

    async def list_all(self, path: str, params: dict[str, str]) -> dict[str, Any]:
        self.asked.append(f"{path}?{params['fieldSelector']}")
        if self._status:
            raise ApiError(self._status, "Forbidden", "events are forbidden")
        return {"items": list(self._events)}


def event(time: str, message: str, uid: str = "u", reason: str = "Preempted") -> dict[str, Any]:
    return {"reason": reason, "message": message, "eventTime": time, "involvedObject": {"uid": uid}}


async def test_deleted_pod_shows_its_last_eviction() -> None:
    client = Events(
        event("2026-01-01T10:00:00.000001Z", "first"),
        event("2026-01-01T11:00:00.000001Z", "Preempted by gang ns/g on node n: makes room"),
        event("2026-01-01T12:00:00.000001Z", "pulled", reason="Pulled"),
    )
    answer = await add_past_eviction(client, "ns", "x", None)  # type: ignore[arg-type]
    assert answer is not None
    assert (answer.state, answer.reason) == ("Deleted", "Preempted")
    assert answer.message == (
        "a pod of this name was evicted at 2026-01-01T11:00:00Z and no longer exists: "
        "Preempted by gang ns/g on node n: makes room"
    )
    assert client.asked == ["/api/v1/namespaces/ns/events?involvedObject.kind=Pod,involvedObject.name=x"]


async def test_pod_evicted_through_the_api_shows_only_its_own_event() -> None:
    client = Events(event("2026-01-01T10:00:00Z", "its ancestor", "old"), event("2026-01-01T09:00:00Z", "it", "u"))
    asked = WhyAnswer("Pod", "ns/x", GangState.EVICTING, "told to leave", "EvictionByEvictionAPI", uid="u")
    answer = await add_past_eviction(client, "ns", "x", asked)  # type: ignore[arg-type]
    assert answer is not None
    assert (answer.reason, answer.message) == ("Preempted", "told to leave; it")


@pytest.mark.parametrize("client", [Events(), Events(status=403)])
async def test_eviction_without_an_event_is_unknown(client: Events) -> None:
    assert await add_past_eviction(client, "ns", "x", None) is None  # type: ignore[arg-type]


async def test_a_pod_that_waits_has_its_own_answer() -> None:
    client, asked = Events(), WhyAnswer("Pod", "ns/x", GangState.PENDING, "no room")
    assert await add_past_eviction(client, "ns", "x", asked) is asked  # type: ignore[arg-type]
    assert client.asked == []

"""Events about evictions: on victims, on gangs that lose members, on preemptors."""

from __future__ import annotations

from typing import cast

import pytest

from phalanx.cluster.state import ClusterState
from phalanx.execution.evictor import EvictionOutcome, EvictResult
from phalanx.kube.events import EventRecorder
from phalanx.model.decisions import Evict, EvictionReason, Nominate
from phalanx.model.events import GangUpdated, PodUpdated
from phalanx.model.gang import Gang, GangKey, GroupRef
from phalanx.model.pod import PodPhase
from phalanx.status.eviction_events import EvictionEvents
from tests.cluster_content import REF, G, Recorded, pod, state_of

EVICTED, GONE, REFUSED = EvictionOutcome.EVICTED, EvictionOutcome.GONE, EvictionOutcome.REFUSED
TRAIN = GangKey("ns", "train")
TRAIN_REF = GroupRef("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups", "ns", "train", "uid-pg-train")


class World:
    """Gang g of three runs, single pods v and w run; pod p and gang train wait."""

    def __init__(self) -> None:
        running = [pod(name, node="n1", phase=PodPhase.RUNNING) for name in ("g0", "g1", "g2")]
        alone = [pod(name, "", node="n1", phase=PodPhase.RUNNING) for name in ("v", "w")]
        waiting = [pod("p", ""), pod("t0", "train"), pod("t1", "train")]
        self.state: ClusterState = state_of(*running, *alone, *waiting, gang=Gang(G, source=REF, min_member=3))
        self.state.apply(GangUpdated(Gang(TRAIN, source=TRAIN_REF, min_member=2)))
        self.recorded = Recorded()
        self.news = EvictionEvents(cast(EventRecorder, self.recorded), self.state)

    def decide(self, waiting: str, victims: str, preemptor: str, cause: str = "c1") -> list[Evict]:
        evictions = []
        for name in victims.split():
            record = self.state.pods[f"uid-{name}"]
            key = record.gang.key if record.gang is not None else None
            reason, why = EvictionReason.PREEMPTED, "it is worth less"
            evictions.append(Evict(record.pod.uid, "ns", name, "n1", reason, why, preemptor, key, cause))
        nominations = [Nominate(f"uid-{name}", "ns", name, "n1", cause) for name in waiting.split()]
        self.news.evictions_decided(evictions, nominations)
        return evictions

    def answer(self, evictions: list[Evict], *outcomes: EvictionOutcome) -> None:
        for evict, outcome in zip(evictions, outcomes or [EVICTED] * len(evictions), strict=True):
            self.news.eviction_answered(EvictResult(evict, outcome))


@pytest.fixture
def world() -> World:
    return World()


def test_eviction_of_a_pod_for_a_pod_has_events_on_both(world: World) -> None:
    world.answer(world.decide("p", "v", "pod ns/p"))
    assert world.recorded.events == [
        ("Pod/v", "Preempted", "Preempted by pod uid-p on node n1: pod ns/p: it is worth less"),
        ("Pod/p", "Evicting", "evicted 1 pod: ns/v; waiting for them to terminate"),
    ]
    victim, preemptor = world.recorded.details
    assert (victim.type, victim.action, victim.related) == ("Normal", "Preempting", "Pod/p")
    assert (preemptor.type, preemptor.action) == ("Normal", "Preempting")


def test_eviction_of_a_gang_for_a_gang_has_events_on_both(world: World) -> None:
    world.answer(world.decide("t0 t1", "g0 g1 g2 v", "gang ns/train"))
    assert [about for about, _ in world.recorded.told] == [
        "Pod/g0",
        "Pod/g1",
        "Pod/g2",
        "Pod/v",
        "PodGroup/g",
        "PodGroup/train",
    ]
    notes = {about: note for about, _, note in world.recorded.events}
    assert notes["PodGroup/g"] == "3 pods evicted for gang ns/train: it is worth less"
    assert notes["PodGroup/train"] == ("evicted 4 pods: 3 of gang ns/g, ns/v; waiting for them to terminate")
    assert {entry.related for entry in world.recorded.details[:5]} == {"PodGroup/train"}


def test_gangs_get_events_when_all_evictions_are_answered(world: World) -> None:
    evictions = world.decide("t0 t1", "g0 g1", "gang ns/train")
    world.answer(evictions[:1])
    assert world.recorded.told == [("Pod/g0", "Preempted")]
    world.answer(evictions[1:])
    assert ("PodGroup/g", "Preempted") in world.recorded.told
    assert len(world.news) == 0


def test_only_evicted_pods_get_events(world: World) -> None:
    world.answer(world.decide("p", "v w g0", "pod ns/p"), EVICTED, REFUSED, GONE)
    assert world.recorded.events[1:] == [
        (
            "Pod/p",
            "Evicting",
            "evicted 1 pod: ns/v; waiting for them to terminate; 1 not evicted",
        )
    ]


def test_decision_without_an_eviction_has_no_events(world: World) -> None:
    world.answer(world.decide("p", "v w", "pod ns/p"), EvictionOutcome.CALLED_OFF, REFUSED)
    assert world.recorded.events == []
    assert len(world.news) == 0


def test_eviction_without_a_preemptor_has_an_event(world: World) -> None:
    world.answer(world.decide("", "v", ""))
    assert world.recorded.events == [("Pod/v", "Preempted", "Preempted on node n1: it is worth less")]


def test_members_of_a_large_gang_beyond_twenty_get_events_of_low_urgency(world: World) -> None:
    names = [f"m{number}" for number in range(100)]
    for name in names:
        world.state.apply(PodUpdated(pod(name, node="n1", phase=PodPhase.RUNNING)))
    world.answer(world.decide("p", " ".join(names), "pod ns/p"))
    told = [about for about, _ in world.recorded.told]
    assert sum(about.startswith("Pod/m") for about in told) == 100
    assert world.recorded.behind == 80
    assert "PodGroup/g" in told
    assert world.recorded.events[-1][2].startswith("evicted 100 pods: 100 of gang ns/g; waiting")


def test_every_member_of_a_gang_without_an_object_gets_an_event(world: World) -> None:
    names = [f"m{number}" for number in range(30)]
    for name in names:
        world.state.apply(PodUpdated(pod(name, "bare", node="n1", phase=PodPhase.RUNNING)))
    world.answer(world.decide("p", " ".join(names), "pod ns/p"))
    assert sum(about.startswith("Pod/m") for about, _ in world.recorded.told) == 30


def test_many_victims_are_named_by_the_first(world: World) -> None:
    names = [f"x{number}" for number in range(9)]
    for name in names:
        world.state.apply(PodUpdated(pod(name, "", node="n1", phase=PodPhase.RUNNING)))
    world.answer(world.decide("p", " ".join(names), "pod ns/p"))
    assert "9 pods: ns/x0, ns/x1, ns/x2, ns/x3, ns/x4 and 4 more; waiting" in world.recorded.events[-1][2]


def test_decision_is_one_line_in_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world.answer(world.decide("t0 t1", "g0 g1 g2 v", "gang ns/train"))
    assert caplog.messages == ["c1: evict 4 pods: 3 of gang ns/g, ns/v for gang ns/train: it is worth less"]

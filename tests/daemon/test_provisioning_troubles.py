"""A node for which no volume could be made is left alone, shortly at first."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.cluster.state import ClusterState
from phalanx.cluster.volumes.supply import REFUSED, VOLUMES
from phalanx.daemon.provisioning_troubles import ProvisioningTroubles
from phalanx.model.events import AllocatorFact, NodeUpdated
from phalanx.model.pod import PodClass
from phalanx.model.volumes import StorageClass, StorageClassGone, UnboundClaim
from tests.cluster_content import node


class Clock:
    def __init__(self) -> None:
        self.calls: list[tuple[float, Callable[[], None]]] = []
        self.waits: list[float] = []

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self.waits.append(seconds)
        self.calls.append((seconds, call))

    def ring(self) -> None:
        calls, self.calls = self.calls, []
        for _, call in calls:
            call()


class Room:
    def __init__(self) -> None:
        self.state, self.clock, self.woken = ClusterState(), Clock(), 0
        self.state.apply(NodeUpdated(node()))
        self.state.apply(AllocatorFact(VOLUMES, StorageClass("late", "csi")))
        self.troubles = ProvisioningTroubles(self.state, self._wake, self.clock.later)

    def _wake(self) -> None:
        self.woken += 1

    def objections(self, size: int = 10, storage_class: str = "late") -> list[str]:
        cls = self.state.classes.record(PodClass(volumes=(UnboundClaim(storage_class, size),)))
        row = self.state.nodes.row("n1")
        return [why for why, out in self.state.nodes.allocators[VOLUMES].explain(cls.spec, slice(None)) if out[row]]


def test_refused_node_is_not_asked_again_at_once() -> None:
    room = Room()
    room.troubles.provisioning_failed("late", "n1", 10)
    assert room.objections(10) == room.objections(11) == [REFUSED]
    # A smaller one may still be possible.
    assert room.objections(9) == []
    room.clock.ring()
    assert room.objections(10) == []
    assert room.woken == 1


def test_pause_grows_while_the_node_refuses_and_is_reset() -> None:
    room = Room()
    for _ in range(6):
        room.troubles.provisioning_failed("late", "n1", 10)
        room.clock.calls.clear()
    assert room.clock.waits == [4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    room = Room()
    room.troubles.provisioning_failed("late", "n1", 10)
    room.clock.ring()
    room.clock.ring()
    room.troubles.provisioning_failed("late", "n1", 10)
    assert room.clock.waits == [4.0, 60.0, 4.0]


def test_an_older_refusal_does_not_end_a_newer_one() -> None:
    room = Room()
    room.troubles.provisioning_failed("late", "n1", 10)
    ((_, first),) = room.clock.calls
    room.troubles.provisioning_failed("late", "n1", 20)
    first()
    assert room.objections(10) == [REFUSED]


def test_recreated_class_starts_without_a_pause() -> None:
    room = Room()
    room.troubles.provisioning_failed("late", "n1", 10)
    room.state.apply(AllocatorFact(VOLUMES, StorageClassGone("late")))
    room.state.apply(AllocatorFact(VOLUMES, StorageClass("late", "csi")))
    assert room.objections(10) == []

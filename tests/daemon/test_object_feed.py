"""Objects have one result, single or in batches; status writers get changed gangs after the plan."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from phalanx.cluster.pods.states import PodEvent
from phalanx.cluster.state import ClusterState
from phalanx.daemon.decision_log import Arrivals
from phalanx.daemon.object_feed import ObjectFeed
from phalanx.dialects.core import PodObject, decode_pod
from phalanx.dialects.intake import Intake
from phalanx.dialects.warnings import ObjectRef, pod_ref
from phalanx.kube.changes import Upsert
from phalanx.kube.failures import Failures
from phalanx.model.events import ClusterEvent, GangRemoved
from phalanx.model.gang import GangKey
from tests.dialects.objects import pod_document

LABEL = "scheduling.x-k8s.io/pod-group"


def labels(gang: str, minimum: int) -> dict[str, str]:
    """Return the labels of a member of a gang that its pods declare."""
    group = "pod-group.scheduling.sigs.k8s.io"
    return {f"{group}/name": gang, f"{group}/min-available": str(minimum)}


class World:
    def __init__(self) -> None:
        self.state, self.intake = ClusterState(), Intake(["phalanx"])
        self.told: list[str] = []
        self.changes = 0
        self.now = 1000.0
        self.counted: Counter[str] = Counter()
        self.arrivals = Arrivals()
        self.delayed: list[Callable[[], None]] = []
        self.feed = ObjectFeed(
            self.intake,
            self.state,
            self.changed,
            lambda key: self.told.append(key.name),
            Failures(lambda part: self.counted.update([part])),
            self.arrivals,
            lambda: self.now,
            lambda seconds, call: self.delayed.append(call),
        )

    def settle(self) -> None:
        """Publish the gathered gangs."""
        while self.delayed:
            self.delayed.pop(0)()

    def changed(self) -> None:
        self.changes += 1

    def pods(self, *names: str, gang: str) -> None:
        changes = [pod(name, labels={LABEL: gang}) for name in names]
        self.feed.take_in_all(changes, about, self.intake.pod, (self.unreadable,))

    def unreadable(self, change: Upsert[PodObject], error: Exception) -> list[ClusterEvent]:
        return self.intake.malformed_pod(*change.key, change.uid, str(error), change.raw)


def pod(name: str, **details: Any) -> Upsert[PodObject]:
    raw = msgspec.json.encode(pod_document(name, **details))
    return Upsert(decode_pod(raw), raw, ("default", name), f"uid-{name}")


def about(change: Upsert[PodObject]) -> ObjectRef:
    return pod_ref(*change.key, change.uid)


async def test_gangs_are_reported_after_the_first_sync_and_then_on_change() -> None:
    world = World()
    world.pods("a", "b", gang="first")
    world.pods("c", gang="second")
    world.pods("d", gang="gone")
    world.feed.apply([*world.intake.pod_removed("default", "d", "uid-d"), GangRemoved(GangKey("default", "gone"))])
    assert world.told == []
    await world.feed.publish_gangs()
    assert world.told == ["first", "second"]
    world.pods("e", gang="third")
    world.settle()
    assert "third" in world.told[2:]
    world.told.clear()
    await world.feed.publish_gangs()
    assert set(world.told) == {"first", "second", "third"}


async def test_touched_gang_without_pods_is_published() -> None:
    world = World()
    world.pods("a", gang="first")
    # Our object whose pods were deleted during downtime: a writer has to delete it.
    world.feed.gang_touched(GangKey("default", "left behind"))
    await world.feed.publish_gangs()
    assert world.told == ["first", "left behind"]


async def test_gang_changed_during_a_report_is_reported_again() -> None:
    world = World()
    for number in range(1000):
        world.pods(f"p{number}", gang=f"g{number}")
    telling = asyncio.create_task(world.feed.publish_gangs())
    await asyncio.sleep(0)
    # Other tasks run in between.
    assert 0 < len(world.told) < 1000
    world.pods("again", gang="g0")
    world.pods("new", gang="late")
    await telling
    counts = Counter(world.told)
    assert counts["g0"] == 2
    assert counts["late"] == 1
    assert all(counts[f"g{number}"] == 1 for number in range(1, 1000))


def test_pod_seen_before_any_cycle_records_its_time() -> None:
    world = World()
    world.pods("a", gang="g")
    world.now = 1060.0
    change = pod("a", labels={LABEL: "g"}, node="n1", phase="Running")
    world.feed.take_in_all([change], about, world.intake.pod, (world.unreadable,))
    [step] = world.state.pods.story("uid-a")
    assert (step.time, step.event, step.cause) == (1060.0, PodEvent.SEEN_RUNNING, "")


def test_many_at_once_come_out_as_one_by_one() -> None:
    together, alone = World(), World()
    names = [f"p{number}" for number in range(30)]
    together.pods(*names, gang="g")
    for name in names:
        alone.pods(name, gang="g")
    assert {uid: record.pod for uid, record in together.state.pods.items()} == {
        uid: record.pod for uid, record in alone.state.pods.items()
    }
    assert together.changes == 1
    assert alone.changes == 30
    woken = together.arrivals.take(0.0)
    assert (woken.event, woken.events) == ("Pod default/p0", 30)
    assert alone.arrivals.take(0.0) == woken


def test_one_that_raises_keeps_its_place_among_many(caplog: Any) -> None:
    world = World()
    whole = world.intake.pod

    def fails(pod: PodObject) -> list[ClusterEvent]:
        if pod.metadata.name == "bad":
            raise LookupError("a bug of ours")
        return whole(pod)

    changes = [pod(name, node="n", phase="Running") for name in ("before", "bad", "after")]
    world.feed.take_in_all(changes, about, fails, (world.unreadable,))
    assert list(world.state.pods) == ["uid-before", "uid-bad", "uid-after"]
    assert world.state.pods["uid-bad"].pod.problem
    assert world.counted == {"intake": 1}
    assert "Pod default/bad failed" in caplog.text


def test_failing_handlers_do_not_end_a_batch() -> None:
    world = World()

    def fails(*_: object) -> list[ClusterEvent]:
        raise LookupError("a bug of ours")

    world.feed.take_in_all([pod("a")], about, fails, (fails, lambda change, error: world.intake.pod(change.object)))
    assert list(world.state.pods) == ["uid-a"]
    world.feed.take_in_all([pod("b"), pod("c")], about, fails, (fails,))
    assert list(world.state.pods) == ["uid-a"]


@pytest.mark.parametrize(("minimum", "published"), [(3, 1), (2, 2)], ids=["whole gang", "surplus"])
async def test_gang_is_published_when_its_minimum_is_bound_and_once_for_its_surplus(
    minimum: int, published: int
) -> None:
    world = World()
    await world.feed.publish_gangs()
    for name in "abcd" if minimum == 2 else "abc":
        arrival = pod(name, labels=labels("first", minimum))
        world.feed.take_in_all([arrival], about, world.intake.pod, (world.unreadable,))
    world.settle()
    world.told.clear()
    for number, name in enumerate("abcd" if minimum == 2 else "abc", 1):
        bound = pod(name, labels=labels("first", minimum), node="n1")
        world.feed.take_in_all([bound], about, world.intake.pod, (world.unreadable,))
        assert len(world.told) == (number >= minimum), "at once with the minimum, not with members before and after"
    world.settle()
    assert world.told == ["first"] * published


async def test_gang_whose_members_are_bound_in_one_batch_is_published_once() -> None:
    world = World()
    await world.feed.publish_gangs()
    arrivals = [pod(name, labels=labels("first", 2)) for name in "abcd"]
    world.feed.take_in_all(arrivals, about, world.intake.pod, ())
    world.settle()
    world.told.clear()
    bound = [pod(name, labels=labels("first", 2), node="n1") for name in "abcd"]
    world.feed.take_in_all(bound, about, world.intake.pod, ())
    assert world.told == ["first"], "at once, for the surplus behind the minimum as well"
    world.settle()
    assert world.told == ["first"]


async def test_gang_is_published_before_one_of_its_members_ends() -> None:
    """A quorum that is placed and ends within one batch counts as placed once."""
    world = World()
    placed: list[int] = []

    def note(key: GangKey) -> None:
        placed.append(world.state.gangs[key].active)

    feed = ObjectFeed(
        world.intake, world.state, world.changed, note, Failures(), world.arrivals, later=lambda *_: None
    )
    await feed.publish_gangs()
    feed.take_in_all([pod(name, labels=labels("first", 2)) for name in "ab"], about, world.intake.pod, ())
    placed.clear()
    ended = pod("c", labels=labels("first", 2), node="n1", phase="Succeeded")
    bound = [pod(name, labels=labels("first", 2), node="n1") for name in "ab"]
    changes = [*bound, ended]
    feed.take_in_all(changes, about, world.intake.pod, ())
    assert placed[0] == 2
    assert len(placed) == 2

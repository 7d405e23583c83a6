"""A gang that waits too long collects room as it comes free, although no run time is known."""

from __future__ import annotations

from typing import Self

import pytest

from phalanx.scheduling.collecting.plugin import Collecting

from .scenario import Scenario

pytestmark = pytest.mark.feature("collecting")

MINUTE = 60
HOUR = 60 * MINUTE

ONLY_COLLECT = """
actions: "enqueue, allocate, reserve, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: binpack}]}]
configurations: [{name: reserve, arguments: {depth: none}}]
"""
BACKFILL = ONLY_COLLECT.replace("depth: none", "depth: 1")


class Stream(Scenario):
    """A cluster in which single pods of one GPU without limits arrive whenever there is room for them."""

    def __init__(self, policy: str | None = ONLY_COLLECT) -> None:
        super().__init__(policy)
        self.now = 10 * HOUR
        self.singles = 0

    def single(self, **fields: object) -> str:
        """Declare one more pod of the stream."""
        self.singles += 1
        name = f"single-{self.singles}"
        self.pod(name, **{"cpu": 1, "gpu": 1} | fields)  # type: ignore[arg-type]
        return name

    def fill(self, count: int) -> Self:
        for _ in range(count):
            self.single()
        self.settle()
        return self

    def passes(self, seconds: int) -> Self:
        """Let time pass to the next cycles that the scheduler asks for."""
        end = self.now + seconds
        while True:
            when = self.scheduler.next_recheck
            self.now = end if when is None or when >= end else max(self.now + 1, int(when))
            self.scheduler.activate_due(self.now)
            self.settle()
            if self.now >= end:
                return self

    def one_ends(self, node: str = "", *, another: bool = True) -> Self:
        """End the oldest running pod of the stream (on a node), which `another` replaces at once."""
        running = [name for name in self.state.pods if name.startswith("single") and self.where(name)]
        name = next(name for name in running if node in ("", self.where(name)))
        if another:
            self.single()
        self.gone(name)
        return self.settle()

    @property
    def collecting(self) -> list[str]:
        feature = self.scheduler.features.get(Collecting)
        assert feature is not None
        return [collection.name for collection in feature.collections.values()]

    def runs(self, gang: str) -> bool:
        return all(self.where(name) for name in self.state.pods if name.startswith(f"{gang}-"))


def busy_cluster(policy: str | None = ONLY_COLLECT, nodes: int = 4, gpus: int = 2) -> Stream:
    """Nodes full of single pods, with one more pod that waits."""
    stream = Stream(policy)
    stream.nodes(nodes, cpu=64, gpu=gpus)
    stream.fill(nodes * gpus + 1)
    return stream


@pytest.mark.parametrize("policy", [None, ONLY_COLLECT, BACKFILL], ids=["built-in", "none", "depth"])
def test_gang_behind_a_stream_of_single_pods_without_limits_starts(policy: str | None) -> None:
    stream = busy_cluster(policy)
    stream.job("train", 6, cpu=1, gpu=1).settle()
    for _ in range(40):
        stream.passes(MINUTE).one_ends()
        if stream.runs("train"):
            break
    assert stream.runs("train")
    # 10 minutes of waiting, and 6 ends.
    assert stream.now <= 10 * HOUR + 17 * MINUTE
    assert stream.evicted == []


def test_gang_starves_behind_the_stream_when_collecting_is_off() -> None:
    stream = busy_cluster(ONLY_COLLECT.replace("depth: none", "depth: none, collectAfter: never"))
    stream.job("train", 6, cpu=1, gpu=1).settle()
    for _ in range(60):
        stream.passes(MINUTE).one_ends()
    assert not stream.runs("train")


def test_gang_collects_only_after_it_has_waited_long_enough() -> None:
    stream = busy_cluster()
    stream.job("train", 6, cpu=1, gpu=1).settle()
    stream.passes(10 * MINUTE - 1)
    assert stream.collecting == []
    stream.passes(1)
    assert stream.collecting == ["gang ns/train"]


def test_message_says_since_when_a_gang_collects_and_what_it_has() -> None:
    stream = busy_cluster()
    stream.job("train", 6, cpu=1, gpu=1).settle()
    stream.passes(10 * MINUTE)
    assert "Collecting since 10:10; has 0 of 6 GPUs on n1, n2, n3" in stream.why("train").message
    stream.one_ends("n1").one_ends("n2")
    assert "Collecting since 10:10; has 2 of 6 GPUs on n1, n2, n3" in stream.why("train").message


def test_room_beside_the_collected_nodes_stays_open_to_others() -> None:
    stream = busy_cluster()
    stream.job("train", 4, cpu=1, gpu=1).settle().passes(10 * MINUTE)
    assert "has 0 of 4 GPUs on n1, n2;" in stream.why("train").message
    stream.one_ends("n4", another=False)
    assert len(stream.placed("single")) == 8
    assert stream.spread("single")["n4"] == 2


class TestGivenUp:
    def collecting_gang(self) -> Stream:
        """A gang that has 2 of its 4 GPUs."""
        stream = busy_cluster()
        stream.job("train", 4, cpu=1, gpu=1).settle().passes(10 * MINUTE)
        return stream.one_ends("n1").one_ends("n1")

    def test_pod_of_the_same_priority_waits_beside_collected_room(self) -> None:
        stream = self.collecting_gang()
        name = stream.single()
        stream.settle()
        assert name in stream.waiting()

    def test_pod_of_higher_priority_gets_collected_room(self) -> None:
        stream = self.collecting_gang()
        name = stream.single(priority=5)
        stream.settle()
        assert stream.where(name) == "n1"

    def test_pod_of_a_daemon_set_gets_collected_room(self) -> None:
        stream = self.collecting_gang()
        name = stream.single(more={"fixture": True})
        stream.settle()
        assert stream.where(name) == "n1"

    def test_critical_pod_gets_collected_room(self) -> None:
        stream = self.collecting_gang()
        name = stream.single(more={"critical": True})
        stream.settle()
        assert stream.where(name) == "n1"

    def test_surplus_members_do_not_get_collected_room(self) -> None:
        stream = self.collecting_gang()
        stream.gang("elastic", 1, created=0)
        stream.pod("elastic-0", gang="elastic", cpu=1, priority=9).settle()
        assert stream.where("elastic-0")
        stream.pods("more", 2, gang="elastic", cpu=1, gpu=1, priority=9).settle()
        assert stream.waiting("more") == ["more-0", "more-1"]

"""Borrowing above the deserved share: the lent room, its reclaim, and the back-off of reclaimed gangs."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.model.account import AccountKey, Tree
from phalanx.model.pod import PodClass
from phalanx.model.run_time import RunTime
from phalanx.scheduling.features.borrowed_room import BorrowedRoom
from phalanx.scheduling.policy.loader import DEFAULT_POLICY

from .scenario import Scenario, amounts
from .test_composites import World

pytestmark = pytest.mark.feature("borrowed-room")

STRICT = DEFAULT_POLICY.replace("name: proportion", "name: proportion\n    arguments: {proportion.borrow: false}")
RESERVE = DEFAULT_POLICY.replace("depth: none", "depth: 1")


def cluster(policy: str | None = None, gpus: int = 10) -> Scenario:
    """Return a cluster of one node with two queues of weight 1."""
    world = Scenario(policy).node("n", gpu=gpus, cpu=100).queue("a").queue("b")
    world.now = 1_000_000
    return world


def two_gangs(policy: str | None = None) -> Scenario:
    """Return a cluster of 10 GPUs with a gang of 6 in each queue, settled."""
    world = cluster(policy).job("first", 6, queue="a", gpu=1)
    world.now += 1
    return world.job("second", 6, queue="b", gpu=1).run()


def backoff(world: Scenario) -> BorrowedRoom:
    feature = world.scheduler.features.get(BorrowedRoom)
    assert feature is not None
    return feature


class TestIdleRoom:
    def test_first_of_two_gangs_above_their_shares_starts_and_the_cycle_rests(self) -> None:
        world = two_gangs()
        assert world.placed() == [f"first-{number}" for number in range(6)]
        assert world.evicted == []

    def test_no_gang_exceeds_its_share_where_the_policy_switches_borrowing_off(self) -> None:
        world = two_gangs(STRICT)
        assert world.placed() == []
        assert "deserved share 5" in world.why("second").message

    def test_unit_within_its_share_is_placed_before_an_older_borrower(self) -> None:
        world = cluster().job("big", 8, queue="a", gpu=1)
        world.now += 1
        world.job("own", 5, queue="b", gpu=1).run()
        assert world.placed() == [f"own-{number}" for number in range(5)]
        assert world.why("big").code == "NotEnoughResources"

    def test_victims_of_a_unit_within_its_share_are_evicted_before_their_room_is_lent(self) -> None:
        world = cluster().job("loan", 8, queue="a", gpu=1).run()
        world.now += 1
        world.job("large", 6, queue="a", gpu=1).job("own", 4, queue="b", gpu=1).run()
        assert world.placed("own") == [f"own-{number}" for number in range(4)]
        assert world.placed("large") == [f"large-{number}" for number in range(6)]
        assert len(world.evicted) == 8

    def test_gang_borrows_as_a_whole_or_not_at_all(self) -> None:
        world = cluster().pods("own", 5, queue="b", gpu=1, node="n").job("big", 6, queue="a", gpu=1)
        world.pods("more", 1, queue="b", gpu=6).run()
        assert world.placed("big") == []

    def test_single_pods_borrow_where_the_other_queue_waits_for_a_gang_that_does_not_fit(self) -> None:
        world = cluster().pods("a", 12, queue="a", gpu=1).job("b", 3, queue="b", gpu=4).run()
        assert len(world.placed("a-")) == 10

    def test_composite_borrows_that_exceeds_the_share_only_with_all_of_its_groups(self) -> None:
        world = World().node("n", gpu=10, cpu=100).queue("a").queue("b").composite("c", 2)
        world.pod("other", queue="b", gpu=4, node="n")
        world.group("one", 3, "c", queue="a", gpu=1).group("two", 3, "c", queue="a", gpu=1)
        assert world.run().started() >= {"one", "two"}

    def test_surplus_members_borrow_one_by_one(self) -> None:
        world = cluster().job("elastic", 12, 2, queue="a", gpu=1).job("b", 3, queue="b", gpu=4).run()
        assert len(world.placed("elastic")) == 10

    def test_gang_starts_in_the_room_that_an_unplaceable_pod_of_another_queue_requests(self) -> None:
        world = cluster().job("gang", 10, queue="a", gpu=1)
        world.pod("huge", queue="b", gpu=99).job("incomplete", 8, 9, queue="b", gpu=1).run()
        assert len(world.placed("gang")) == 10

    def test_waiting_borrower_starts_when_room_becomes_idle(self) -> None:
        world = two_gangs()
        world.gone(*(f"first-{number}" for number in range(6))).run()
        assert world.placed() == [f"second-{number}" for number in range(6)]

    @pytest.mark.parametrize("stop", range(12))
    def test_borrowers_start_after_a_cycle_that_was_interrupted_anywhere(self, stop: int) -> None:
        world = cluster().job("wide", 8, 9, queue="a", gpu=1).job("gang", 6, queue="b", gpu=1)
        world.pods("a", 2, queue="a", gpu=1).pods("b", 2, queue="b", gpu=1, memory="1Gi")
        calls = iter(range(1000))
        world.cycle(lambda: next(calls) >= stop)
        world.settle()
        assert len(world.placed()) == 10


class TestLimits:
    def test_borrower_stays_within_the_capability_of_its_queue(self) -> None:
        world = cluster().queue("a", capability={"gpu": 5}).job("a", 6, queue="a", gpu=1)
        world.job("b", 3, queue="b", gpu=4).run()
        assert world.placed() == []

    def test_guarantee_of_an_idle_queue_is_not_lent(self) -> None:
        world = cluster().queue("kept", guarantee={"gpu": 5}).job("a", 6, queue="a", gpu=1)
        world.job("b", 6, queue="b", gpu=1).run()
        assert world.placed() == []

    def test_guarantee_below_another_parent_is_not_lent(self) -> None:
        world = cluster().queue("top").queue("kept", parent="top", guarantee={"gpu": 5})
        world.job("a", 6, queue="a", gpu=1).job("b", 6, queue="b", gpu=1).run()
        assert world.placed() == []

    @pytest.mark.parametrize("tree", ["elastic quota", "koordinator"])
    def test_borrower_stays_within_the_max_of_its_quota(self, tree: str) -> None:
        world = cluster()
        if tree == "elastic quota":
            world.elastic_quota("ns", {"gpu": 5}, {"gpu": 5})
        else:
            quota = AccountKey(Tree.KOORDINATOR, "team")
            world.account(quota, deserved={"gpu": 5}, capability={"gpu": 5}, namespaces=("ns",))
        world.job("a", 6, queue="a", gpu=1).job("b", 6, queue="b", gpu=1).run()
        assert world.placed() == []

    def test_child_queue_borrows_above_the_share_of_its_parent(self) -> None:
        world = cluster().queue("above").queue("leaf", parent="above").job("gang", 6, queue="leaf", gpu=1)
        world.now += 1
        world.job("b", 6, queue="b", gpu=1).run()
        assert len(world.placed("gang")) == 6

    def test_only_the_head_of_a_fifo_queue_borrows(self) -> None:
        world = cluster().queue("a", fifo=True)
        world.job("head", 9, queue="a", gpu=1).pods("old", 2, queue="b", gpu=1, node="n")
        world.now += 1
        world.job("next", 7, queue="a", gpu=1).job("b", 9, queue="b", gpu=1).run()
        assert world.placed("next") == []

    def test_next_unit_of_a_fifo_queue_has_its_turn_after_the_head_has_borrowed(self) -> None:
        world = cluster().queue("a", fifo=True).job("head", 6, queue="a", gpu=1)
        world.now += 1
        world.job("b", 9, queue="b", gpu=1).pods("next", 1, queue="a", gpu=1).run()
        assert len(world.placed("head")) == 6
        assert world.placed("next") == ["next-0"]


class Stream:
    """A borrowing gang `train` of queue a, and single pods of queue b that reclaim its room again and again.

    The incomplete gang `wide` of queue b requests the rest of its share all the time.
    """

    def __init__(self, policy: str | None = None) -> None:
        self.world = cluster(policy).job("train", 6, queue="a", gpu=1).job("wide", 8, 9, queue="b", gpu=1)
        self.world.recreates = True
        self.world.run()
        assert len(self.world.placed("train")) == 6
        self.times = 0

    def reclaim(self) -> Stream:
        """Let five single pods reclaim the room of the gang."""
        self.times += 1
        before = len(self.world.evicted)
        self.world.pods(f"stream{self.times}", 5, queue="b", gpu=1).run()
        assert len(self.world.evicted) == before + 6
        assert self.world.placed("train") == []
        return self

    def end(self) -> Stream:
        """Let the single pods end."""
        self.world.gone(*(f"stream{self.times}-{number}" for number in range(5)))
        self.world.run()
        return self

    def passes(self, seconds: int) -> Stream:
        self.world.now += seconds
        assert self.world.placed("train") == []
        self.world.scheduler.activate_due(self.world.now)
        self.world.settle()
        return self

    @property
    def runs(self) -> bool:
        return len(self.world.placed("train")) == 6


class TestAdmission:
    def groups(self, *sizes: int) -> Scenario:
        """Return a cluster with groups that await admission, in queues a, b, a, …; admitted ones get their pods."""
        world = cluster()
        for number, size in enumerate(sizes):
            world.now += 1
            least = amounts(gpu=size)
            world.gang(
                f"g{number}",
                size,
                queue="ab"[number % 2],
                created=world.now,
                admission=True,
                admitted=False,
                min_resources=least,
            )
        for _ in sizes:
            world.run()
            for number, size in enumerate(sizes):
                if f"g{number}" in world.admissions and f"g{number}-0" not in world.state.pods:
                    world.pods(f"g{number}", size, gang=f"g{number}", queue="ab"[number % 2], gpu=1)
        return world.run()

    def test_admitted_groups_above_their_shares_start_one_after_the_other(self) -> None:
        world = self.groups(6, 6)
        assert sorted(world.admissions) == ["g0", "g1"]
        assert len(world.placed("g0")) == 6
        world.gone(*(f"g0-{number}" for number in range(6))).no_gang("g0").run()
        assert len(world.placed("g1")) == 6

    def test_admission_stays_within_the_overcommitted_cluster(self) -> None:
        assert len(self.groups(6, 6, 6).admissions) == 2


class TestReclaim:
    def test_share_is_reclaimed_from_a_borrowing_gang_as_a_whole(self) -> None:
        world = two_gangs()
        world.pods("own", 4, queue="b", gpu=1).run()
        assert world.evicted == []
        world.pods("fifth", 1, queue="b", gpu=1).run()
        assert sorted(world.evicted) == [f"first-{number}" for number in range(6)]
        assert len(world.placed("own") + world.placed("fifth")) == 5

    def test_reclaimed_gang_borrows_again_after_five_idle_minutes(self) -> None:
        stream = Stream().reclaim().end()
        began = stream.world.now - 1
        assert stream.world.scheduler.next_recheck == began + 300
        stream.passes(298)
        assert not stream.runs
        assert stream.passes(1).runs

    def test_delay_doubles_with_each_reclaim(self) -> None:
        stream = Stream()
        for delay in (300, 600, 1200):
            stream.reclaim().end()
            stream.passes(delay - 2)
            assert not stream.runs
            assert stream.passes(4).runs

    def test_delay_starts_again_when_the_room_was_used_in_between(self) -> None:
        stream = Stream().reclaim().end().passes(200)
        stream.world.pods("short", 5, queue="b", gpu=1).run()
        stream.world.gone(*(f"short-{number}" for number in range(5))).run()
        stream.passes(200)
        assert not stream.runs
        assert stream.passes(110).runs

    def test_delay_goes_on_while_the_room_that_remains_idle_suffices(self) -> None:
        stream = Stream().reclaim().end().passes(200)
        stream.world.pods("short", 4, queue="b", gpu=1).run()
        assert stream.passes(110).runs

    def test_other_gang_borrows_during_the_delay_of_a_reclaimed_one(self) -> None:
        stream = Stream().reclaim()
        stream.world.job("other", 6, queue="a", gpu=1)
        stream.end()
        assert len(stream.world.placed("other")) == 6
        assert not stream.runs

    def test_reclaimed_gang_within_the_share_of_its_queue_starts_at_once(self) -> None:
        stream = Stream().reclaim()
        for number in range(8):
            stream.world.gone(f"wide-{number}")
        assert stream.end().runs

    def test_backoff_survives_a_restart(self) -> None:
        stream = Stream().reclaim().end().passes(100)
        entries = backoff(stream.world).backoff.export()
        stream.world.restart()
        backoff(stream.world).backoff.load(entries)
        stream.world.run()
        stream.passes(190)
        assert not stream.runs
        assert stream.passes(15).runs

    def test_gang_of_the_same_name_with_another_uid_borrows_at_once(self) -> None:
        stream = Stream()
        stream.world.gang("train", 6, uid="first")
        stream.reclaim()
        stream.world.gang("train", 6, uid="second")
        assert stream.end().runs

    def test_entry_of_a_deleted_gang_is_removed_at_the_next_reclaim(self) -> None:
        stream = Stream().reclaim().end()
        assert [entry.times for entry in backoff(stream.world).backoff.export()] == [1]
        stream.world.gone(*stream.world.waiting("train")).no_gang("train")
        stream.world.now += 3600
        stream.world.job("next", 6, queue="a", gpu=1).run()
        stream.world.pods("again", 5, queue="b", gpu=1).run()
        assert [entry.uid for entry in backoff(stream.world).backoff.export()] == ["ns/next"]


def ends_after(world: Scenario, seconds: int) -> dict[str, Any]:
    """Return fields of a pod that runs since now and is killed after these seconds."""
    more = {"run_time": RunTime(seconds), "grace": 0, "started": world.now, "bound": world.now}
    return {"pod_class": PodClass(run_limit=seconds), "more": more}


@pytest.mark.feature("start-reservations")
class TestPromises:
    def test_borrower_does_not_use_the_room_of_a_promised_start(self) -> None:
        """The gang `soon` starts within its share at the end of `old`; until then 4 of 10 GPUs are idle."""
        world = cluster(RESERVE).queue("a", reclaimable=False).queue("b", weight=4)
        world.pod("old", queue="a", gpu=6, node="n", **ends_after(world, 600))
        world.job("soon", 4, queue="b", gpu=2)
        world.now += 1
        world.job("loan", 4, queue="a", gpu=1).run()
        assert world.placed() == ["old"]

    def test_borrower_does_not_use_the_share_that_a_promised_start_of_its_queue_needs(self) -> None:
        world = cluster(RESERVE, gpus=12).node("m", gpu=8)
        world.pod("old", queue="a", gpu=8, node="n", **ends_after(world, 600))
        world.job("wide", 18, 19, queue="b", gpu=1).job("soon", 1, queue="a", gpu=9)
        world.now += 1
        world.job("loan", 6, queue="a", gpu=1).run()
        assert world.placed() == ["old"]
        world.gone("old").run()
        assert world.placed("soon") == ["soon-0"]

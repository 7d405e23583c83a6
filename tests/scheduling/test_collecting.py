"""A gang that waits too long collects room as it comes free, although no run time is known."""

from __future__ import annotations

from typing import Any, Self

import pytest

from phalanx.model.collection_records import decode_collections, encode_collections
from phalanx.model.pod import PodClass
from phalanx.model.run_time import RunTime
from phalanx.model.selectors import HostPort
from phalanx.scheduling.collecting.plugin import Collecting

from .scenario import Scenario
from .test_company import HOST, even, far, labelled, pods

pytestmark = pytest.mark.feature("collecting")

MINUTE = 60
HOUR = 60 * MINUTE

ONLY_COLLECT = """
actions: "enqueue, allocate, reserve, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: binpack}]}]
configurations: [{name: reserve, arguments: {depth: none}}]
"""
CAPACITY = ONLY_COLLECT.replace("allocate, reserve", "allocate, reclaim, reserve").replace(
    "{name: predicates}", "{name: predicates}, {name: capacity}"
)
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
        return [collection.name for collection in feature_of(self).collections.values()]

    def runs(self, gang: str) -> bool:
        return all(self.where(name) for name in self.state.pods if name.startswith(f"{gang}-"))


def feature_of(stream: Stream) -> Collecting:
    feature = stream.scheduler.features.get(Collecting)
    assert feature is not None
    return feature


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


def test_room_that_comes_free_elsewhere_is_collected_instead() -> None:
    stream = busy_cluster()
    stream.job("train", 4, cpu=1, gpu=1).settle().passes(10 * MINUTE)
    assert "has 0 of 4 GPUs on n1, n2;" in stream.why("train").message
    stream.one_ends("n4")
    assert "has 1 of 4 GPUs on n1, n2, n4;" in stream.why("train").message
    assert len(stream.placed("single")) == 7


def test_amounts_beyond_the_demand_stay_open_on_collected_nodes() -> None:
    stream = busy_cluster()
    stream.job("train", 8, cpu=1, gpu=1).settle().passes(10 * MINUTE)
    for node in ("n1", "n2", "n3", "n4"):
        stream.one_ends(node)
    stream.pods("cpu", 8, cpu=30).settle()
    assert len(stream.placed("cpu")) == 8
    assert len(stream.placed("single")) == 4


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

    def test_collected_room_is_given_up_before_any_eviction(self) -> None:
        stream = busy_cluster(None)
        stream.job("train", 6, cpu=1, gpu=1).settle().passes(10 * MINUTE).one_ends().one_ends()
        stream.pods("urgent", 2, cpu=1, gpu=1, priority=5).settle()
        assert stream.placed("urgent") == ["urgent-0", "urgent-1"]
        assert stream.evicted == []

    def test_gang_of_higher_priority_gets_collected_room_before_any_eviction(self) -> None:
        stream = busy_cluster(None)
        stream.job("train", 6, cpu=1, gpu=1).settle().passes(10 * MINUTE).one_ends().one_ends()
        stream.job("urgent", 2, cpu=1, gpu=1, priority=5).settle()
        assert stream.runs("urgent")
        assert stream.evicted == []

    def test_queue_below_its_due_gets_collected_room(self) -> None:
        stream = busy_cluster(CAPACITY)
        stream.queue("default", deserved={"gpu": 4}).queue("blue", deserved={"gpu": 4}).settle()
        stream.job("train", 6, cpu=1, gpu=1).settle().passes(10 * MINUTE).one_ends().one_ends()
        name = stream.single(queue="blue")
        stream.settle()
        assert stream.where(name)
        assert stream.evicted == []

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


class TestEnd:
    def test_collection_without_progress_ends_after_an_hour_and_the_next_one_waits_twice_as_long(self) -> None:
        stream = busy_cluster()
        stream.job("train", 6, cpu=1, gpu=1).settle().passes(10 * MINUTE)
        stream.one_ends("n1", another=False)
        stream.passes(HOUR)
        assert stream.collecting == []
        stream.passes(20 * MINUTE - 1)
        assert stream.collecting == []
        stream.passes(1)
        assert stream.collecting == ["gang ns/train"]

    def test_room_is_open_to_others_after_the_end(self) -> None:
        stream = busy_cluster()
        stream.job("train", 6, cpu=1, gpu=1).settle().passes(10 * MINUTE)
        stream.one_ends("n1")
        assert len(stream.placed("single")) == 7
        stream.passes(HOUR)
        assert len(stream.placed("single")) == 8

    def test_collection_ends_when_its_room_was_idle_for_longer_than_the_gang_runs(self) -> None:
        stream = busy_cluster()
        run_time = RunTime(estimate=5 * MINUTE)
        stream.job("train", 6, cpu=1, gpu=1, more={"run_time": run_time}).settle().passes(10 * MINUTE)
        for node in ("n1", "n2", "n3"):
            stream.one_ends(node)
        stream.passes(10 * MINUTE)  # 3 of 6 GPUs: twice the time
        assert stream.collecting == ["gang ns/train"]
        stream.passes(MINUTE)
        assert stream.collecting == []

    def test_collection_ends_when_the_gang_is_deleted(self) -> None:
        stream = busy_cluster()
        stream.job("train", 6, cpu=1, gpu=1).settle().passes(10 * MINUTE).one_ends("n1")
        stream.gone(*(f"train-{number}" for number in range(6))).no_gang("train").settle()
        assert stream.collecting == []
        assert len(stream.placed("single")) == 8

    def test_collection_ends_when_a_member_is_missing(self) -> None:
        stream = busy_cluster()
        stream.job("train", 6, cpu=1, gpu=1).settle().passes(10 * MINUTE).one_ends("n1")
        stream.gone("train-0").settle()
        assert stream.collecting == []
        assert len(stream.placed("single")) == 8


class TestNodes:
    def test_room_of_pods_that_never_end_is_not_counted_on(self) -> None:
        stream = Stream().nodes(2, cpu=64, gpu=4)
        stream.pods("server", 5, cpu=1, gpu=1, more={"endless": True}).settle()
        stream.fill(4)
        stream.job("train", 4, cpu=1, gpu=1).settle().passes(11 * MINUTE)
        assert stream.collecting == []
        assert "It does not collect room: too few pods on its nodes ever end" in stream.why("train").message

    def test_gang_collects_as_soon_as_a_server_has_been_removed(self) -> None:
        stream = Stream().nodes(2, cpu=64, gpu=4)
        stream.pods("server", 5, cpu=1, gpu=1, more={"endless": True}).settle()
        stream.fill(4)
        stream.job("train", 4, cpu=1, gpu=1).settle().passes(11 * MINUTE)
        stream.gone("server-0").settle().passes(2 * MINUTE)
        assert stream.collecting == ["gang ns/train"]

    def test_gang_that_anti_affinity_keeps_from_every_node_does_not_collect(self) -> None:
        stream = Stream().node("a", labels={HOST: "a"}, cpu=4).node("b", labels={HOST: "b"}, cpu=4)
        for name in ("one", "two"):
            pods(stream, name, 1, "web", even("web", HOST), cpu=4)
        stream.settle()
        alone = {"pod_class": PodClass(peers=far("web")), "more": labelled("train")}
        stream.job("train", 2, cpu=1, **alone).settle().passes(30 * MINUTE)  # type: ignore[arg-type]
        assert "didn't match pod anti-affinity rules" in stream.why("train").message
        assert stream.collecting == []

    def test_cordoned_node_is_replaced_by_another(self) -> None:
        stream = busy_cluster()
        stream.job("train", 4, cpu=1, gpu=1).settle().passes(10 * MINUTE)
        assert "on n1, n2;" in stream.why("train").message
        stream.node("n1", cpu=64, gpu=2, unschedulable=True).settle()
        assert "on n2, n3;" in stream.why("train").message

    def test_only_the_first_of_two_gangs_with_common_nodes_collects(self) -> None:
        stream = busy_cluster()
        stream.job("first", 4, cpu=1, gpu=1).settle()
        stream.now += 1
        stream.job("second", 3, cpu=1, gpu=1).settle().passes(12 * MINUTE)
        assert stream.collecting == ["gang ns/first"]
        for _ in range(4):
            stream.one_ends("n1", another=False).one_ends("n2", another=False)
            if stream.runs("first"):
                break
        stream.passes(2 * MINUTE)
        assert stream.runs("first")

    def test_gang_of_higher_priority_takes_over(self) -> None:
        stream = busy_cluster()
        stream.job("first", 4, cpu=1, gpu=1).settle().passes(5 * MINUTE)
        stream.job("second", 4, cpu=1, gpu=1, priority=5).settle().passes(5 * MINUTE)
        assert stream.collecting == ["gang ns/first"]
        stream.passes(6 * MINUTE)
        assert stream.collecting == ["gang ns/second"]

    @pytest.mark.feature("start-reservations")
    def test_gang_behind_a_promised_gang_with_common_nodes_does_not_collect(self) -> None:
        stream = Stream(BACKFILL).nodes(4, cpu=64, gpu=2)
        limit: dict[str, Any] = {
            "pod_class": PodClass(run_limit=2 * HOUR),
            "more": {"run_time": RunTime(limit=2 * HOUR)},
        }
        stream.pods("single", 8, cpu=1, gpu=1, **limit).settle()
        stream.becomes_all("single", started=stream.now)
        stream.job("first", 6, cpu=1, gpu=1, **limit).settle()
        stream.now += 1
        stream.job("second", 4, cpu=1, gpu=1, **limit).settle().passes(30 * MINUTE)
        assert "starts no later than" in stream.why("first").message
        assert stream.collecting == []


class TestQueues:
    def test_queue_replaces_the_time_of_the_policy_and_children_inherit_it(self) -> None:
        stream = busy_cluster()
        stream.queue("parent", collect_after=2 * MINUTE).queue("child", parent="parent")
        stream.job("train", 6, queue="child", cpu=1, gpu=1).settle()
        stream.passes(2 * MINUTE - 1)
        assert stream.collecting == []
        stream.passes(1)
        assert stream.collecting == ["gang ns/train"]

    def test_gangs_of_a_queue_with_never_do_not_collect(self) -> None:
        stream = busy_cluster()
        stream.queue("quiet", collect_after=-1)
        stream.job("train", 6, queue="quiet", cpu=1, gpu=1).settle().passes(HOUR)
        assert stream.collecting == []

    def test_gang_above_the_capability_of_its_queue_does_not_collect(self) -> None:
        stream = busy_cluster()
        stream.queue("small", capability={"gpu": 5})
        stream.job("train", 6, queue="small", cpu=1, gpu=1).settle().passes(HOUR)
        assert stream.collecting == []

    def test_collected_amounts_are_charged_to_the_queue(self) -> None:
        stream = busy_cluster()
        stream.queue("blue", capability={"gpu": 5})
        stream.job("train", 4, queue="blue", cpu=1, gpu=1).settle().passes(10 * MINUTE)
        for node in ("n1", "n1", "n2"):
            stream.one_ends(node, another=False)
        assert "has 3 of 4 GPUs on n1, n2;" in stream.why("train").message
        stream.node("more", cpu=64, gpu=8)
        stream.gone(*stream.waiting("single")).pods("blue", 4, queue="blue", cpu=1, gpu=1, created=1).cycle()
        assert len(stream.placed("blue")) == 1  # 4 of 5 are collected


class TestRestart:
    def test_collection_survives_a_restart(self) -> None:
        stream = busy_cluster()
        stream.job("train", 4, cpu=1, gpu=1).settle().passes(10 * MINUTE)
        stream.one_ends("n1").one_ends("n2")
        message = stream.why("train").message
        stored = encode_collections(feature_of(stream).export())
        stream.restart()
        collections, fault = decode_collections(stored)
        assert not fault
        feature_of(stream).restore(collections)
        stream.settle()
        assert stream.why("train").message == message
        assert len(stream.placed("single")) == 6

    def test_new_object_of_the_same_name_does_not_continue_the_collection(self) -> None:
        stream = busy_cluster()
        stream.job("train", 4, cpu=1, gpu=1).settle().passes(10 * MINUTE)
        stored = feature_of(stream).export()
        stream.gang("train", 4, uid="another").restart()
        feature_of(stream).restore(stored)
        stream.settle()
        assert stream.collecting == []

    def test_failures_are_kept_over_a_restart(self) -> None:
        stream = busy_cluster()
        stream.job("train", 6, cpu=1, gpu=1).settle().passes(10 * MINUTE + HOUR)
        stored = feature_of(stream).export()
        stream.restart()
        feature_of(stream).restore(stored)
        stream.settle().passes(20 * MINUTE - 1)
        assert stream.collecting == []
        stream.passes(1)
        assert stream.collecting == ["gang ns/train"]

    @pytest.mark.parametrize("text", ["{", "[]", '{"version": 9}', '{"version": 1, "collections": 3}'])
    def test_unreadable_record_has_no_collections_and_a_fault(self, text: str) -> None:
        collections, fault = decode_collections(text)
        assert collections == []
        assert "collections are forgotten" in fault


def test_room_is_open_to_others_in_the_cycle_after_the_start() -> None:
    stream = busy_cluster()
    stream.job("train", 4, cpu=1, gpu=1).settle().passes(10 * MINUTE)
    stream.one_ends("n1").one_ends("n1")
    assert len(stream.waiting("single")) == 3
    stream.node("spare", cpu=64, gpu=5).settle()
    assert stream.runs("train")
    assert stream.waiting("single") == []


class TestLearnedRunTimes:
    def learned(self, seconds: int = 5 * MINUTE, ends: int = 20) -> Stream:
        """A cluster with a stream whose pods all ended after the same time."""
        stream = Stream()
        stream.nodes(4, cpu=64, gpu=2)
        for _ in range(ends):
            self.run_one(stream, seconds)
        return stream

    def run_one(self, stream: Stream, seconds: int) -> None:
        name = stream.single()
        stream.settle().becomes(name, started=stream.now)
        stream.now += seconds
        stream.finishes(name)
        stream.scheduler.observe(stream.now)
        stream.gone(name)

    def test_run_time_is_known_after_twenty_ends(self) -> None:
        for ends, known in ((19, 0), (20, 5 * MINUTE)):
            stream = self.learned(ends=ends)
            name = stream.single()
            assert feature_of(stream).run_times.of(stream.state.pods[name]) == known

    def test_other_namespace_and_other_kind_of_owner_are_learned_apart(self) -> None:
        stream = self.learned()
        job = stream.single(more={"owner_kind": "Job"})
        other = stream.within("elsewhere").single()
        assert feature_of(stream).run_times.of(stream.state.pods[job]) == 0
        assert feature_of(stream).run_times.of(stream.state.pods[other]) == 0

    def test_class_whose_pods_often_run_longer_is_not_used(self) -> None:
        stream = self.learned()
        for seconds in (HOUR, 2 * HOUR, 3 * HOUR):
            self.run_one(stream, seconds)
        assert feature_of(stream).run_times.of(stream.state.pods[stream.single()]) == 0

    def test_evicted_and_deleted_pods_teach_nothing(self) -> None:
        stream = self.learned(ends=19)
        name = stream.single()
        stream.settle().becomes(name, started=stream.now)
        stream.becomes(name, terminating=True).gone(name).settle()
        assert feature_of(stream).run_times.of(stream.state.pods[stream.single()]) == 0

    def collecting_gang(self) -> Stream:
        """A gang that collects among pods of known run times: one has an hour left, the others end."""
        stream = self.learned()
        run_time = RunTime(estimate=HOUR)
        stream.pods("long", 2, cpu=1, gpu=1, more={"run_time": run_time, "endless": False}).settle()
        stream.becomes_all("long", started=stream.now)
        stream.fill(6)
        stream.job("train", 8, cpu=1, gpu=1).settle().passes(10 * MINUTE)
        stream.becomes_all("single", started=stream.now)
        return stream

    def test_expected_time_rests_on_learned_and_stated_run_times(self) -> None:
        stream = self.collecting_gang()
        stream.passes(MINUTE).one_ends()
        assert "some pods there have no known end" not in stream.why("train").message
        assert "; expected 12:40" in stream.why("train").message

    def test_pods_that_are_expected_to_end_in_time_are_backfilled(self) -> None:
        stream = self.collecting_gang()
        running = len(stream.placed("single"))
        stream.one_ends()
        assert len(stream.placed("single")) == running

    def test_wrong_guess_delays_a_collecting_gang_only_once(self) -> None:
        stream = self.collecting_gang()
        stream.one_ends().becomes_all("single", started=stream.now)
        stream.gone("long-0", "long-1").settle().passes(MINUTE)
        assert "has 2 of 8 GPUs" in stream.why("train").message
        stream.passes(10 * MINUTE)  # the pods run longer than all pods before them
        running = len(stream.placed("single"))
        stream.one_ends().one_ends()
        assert len(stream.placed("single")) == running - 2
        assert "has 4 of 8 GPUs" in stream.why("train").message


def test_gang_that_lacks_no_amounts_is_considered_once_in_a_while() -> None:
    """Both members need the same host port: no amount of room helps on one node."""
    stream = Stream().node("n1", cpu=64)
    port = PodClass(host_ports=(HostPort(80),))
    stream.job("train", 2, cpu=1, pod_class=port).settle().passes(10 * MINUTE)
    assert stream.collecting == []
    cycles = len(stream.plans)
    stream.passes(10 * MINUTE - 1)
    assert len(stream.plans) == cycles

"""Two schedulers share a cluster (docs/scale.md): despite late and lost messages no room is allocated twice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ..extent import examples
from .several_schedulers import SharedCluster

NAMES = st.sampled_from(["a", "b"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("job"), NAMES, st.integers(1, 3), st.integers(1, 3), st.sampled_from(["red", "blue"])),
        st.tuples(st.just("watch"), NAMES, st.integers(1, 4)),
        st.tuples(st.just("read"), NAMES),
        st.tuples(st.just("plan"), NAMES),
        st.tuples(st.just("post"), NAMES),
        st.tuples(st.just("tidy"), NAMES),
        st.tuples(st.just("end"), st.integers(0, 20)),
        st.tuples(st.just("restart"), NAMES),
    ),
    max_size=60,
)


def play(cluster: SharedCluster, steps: list[tuple[object, ...]]) -> None:
    for number, step in enumerate(steps):
        cluster.now += 1
        match step:
            case ("job", str(scheduler), int(members), int(cpu), str(queue)):
                cluster.job(f"j{number}", scheduler, members, cpu, queue)
            case ("watch", str(name), int(events)):
                cluster.replicas[name].watch(events)
            case ("read", str(name)):
                cluster.replicas[name].read_claims()
            case ("plan", str(name)):
                cluster.replicas[name].plan(cluster.now)
            case ("post", str(name)):
                replica = cluster.replicas[name]
                if replica.posts:
                    replica.post(next(iter(replica.posts)))
            case ("tidy", str(name)):
                cluster.replicas[name].tidy()
            case ("end", int(which)):
                # A job ends whole: all its members are deleted.
                jobs = sorted(cluster.sizes)
                for uid in [
                    uid for uid in cluster.api.pods if jobs and uid.startswith(f"{jobs[which % len(jobs)]}-")
                ]:
                    cluster.api.delete(uid)
            case ("restart", str(name)):
                cluster.replicas[name].restart()
        cluster.check()


@pytest.mark.thorough
@settings(max_examples=examples(60), deadline=None)
@given(STEPS)
def test_no_room_is_allocated_twice_and_gangs_start_whole(steps: list[tuple[object, ...]]) -> None:
    cluster = SharedCluster()
    play(cluster, steps)
    cluster.settle()
    cluster.gangs_are_whole()


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(max_examples=800, deadline=None)
@given(STEPS)
def test_no_room_is_allocated_twice_in_long_histories(steps: list[tuple[object, ...]]) -> None:
    cluster = SharedCluster()
    play(cluster, steps)
    cluster.settle()
    cluster.gangs_are_whole()


def test_every_pod_that_fits_is_bound_in_the_end() -> None:
    cluster = SharedCluster()
    cluster.job("one", "a", 2, 2, "red")
    cluster.job("two", "b", 2, 1, "red")
    cluster.job("three", "b", 2, 2, "red")
    cluster.settle()
    bound = {uid for uid, pod in cluster.api.pods.items() if pod.node}
    assert bound == {"one-0", "one-1", "two-0", "two-1"}
    for uid in sorted(bound):
        cluster.api.delete(uid)
    cluster.settle()
    assert all(pod.node for pod in cluster.api.pods.values())
    cluster.settle()
    assert not cluster.api.claims.entries, "nobody tidies up"


def test_without_claims_a_queue_is_allocated_twice() -> None:
    """The proof has power: it fails where the protocol is left out."""
    cluster = SharedCluster(claiming=False)
    cluster.job("one", "a", 2, 2, "red")
    cluster.job("two", "b", 2, 2, "red")
    for replica in cluster.replicas.values():
        replica.watch(10)
    for replica in cluster.replicas.values():
        assert replica.plan(cluster.now)
    for replica in cluster.replicas.values():
        for uid in list(replica.posts):
            replica.post(uid)
    with pytest.raises(AssertionError, match="queue red has"):
        cluster.check()


def test_scheduler_with_an_outdated_read_plans_again() -> None:
    cluster = SharedCluster()
    cluster.job("one", "a", 2, 2, "red")
    cluster.job("two", "b", 2, 2, "red")
    first, second = cluster.replicas.values()
    for replica in (first, second):
        replica.watch(10)
    assert first.plan(cluster.now)
    assert not second.plan(cluster.now), "what it planned rests on claims that are out of date"
    cluster.now += 1
    assert not second.plan(cluster.now), "and now it knows that the queue is full"

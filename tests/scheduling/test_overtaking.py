"""Single pods can be placed in another order than they arrived, never to the harm of an earlier pod."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.cluster.state import ClusterState
from phalanx.model.events import NodeUpdated, PodUpdated
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass
from phalanx.model.resources import requests_of
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler

from ..extent import examples

# (cpu, gpu) of nodes and of the requests of pods.
Amounts = tuple[int, int]

NODES = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3)), min_size=1, max_size=12)
# Pods with their requests, age and priority.
PODS = st.lists(
    st.tuples(st.sampled_from([(1, 0), (2, 0), (1, 1), (5, 0), (1, 2)]), st.integers(0, 6), st.integers(0, 1)),
    min_size=1,
    max_size=40,
)


def single(number: int, asked: Amounts, created: int, priority: int) -> Pod:
    requests = requests_of({"cpu": asked[0], "nvidia.com/gpu": asked[1]})
    kind = PodClass(requests=requests, scored_cpu=asked[0])
    name = f"pod-{number:02}"
    return Pod("ns", name, name, kind, requests, "phalanx", created=created, priority=priority)


def placed(nodes: Sequence[Amounts], pods: Sequence[Pod]) -> dict[str, str]:
    """Return the node of each pod after one cycle."""
    state = ClusterState()
    for number, (cpu, gpu) in enumerate(nodes):
        offered = requests_of({"pods": 100, "cpu": cpu, "nvidia.com/gpu": gpu})
        state.apply(NodeUpdated(Node(name=f"n{number:02}", allocatable=offered)))
    for pod in pods:
        state.apply(PodUpdated(pod))
    plan = Scheduler(state, load_policy()).cycle(now=1_000)
    return {bind.uid: bind.node for bind in plan.binds}


def room_beside(nodes: Sequence[Amounts], others: Sequence[tuple[Pod, str]], pod: Pod) -> list[str]:
    """Return the nodes that fit the pod beside the given pods only."""
    found = []
    for number, (cpu, gpu) in enumerate(nodes):
        free = {"cpu": cpu, "nvidia.com/gpu": gpu}
        for other, node in others:
            if node == f"n{number:02}":
                for resource, amount in other.pod_class.requests:
                    free[resource] -= amount
        if all(free[resource] >= amount for resource, amount in pod.pod_class.requests):
            found.append(f"n{number:02}")
    return found


@settings(max_examples=300, deadline=None)
@given(NODES, PODS)
@pytest.mark.slow
def test_waiting_pod_has_no_room_beside_the_pods_before_it(
    nodes: list[Amounts], asked: list[tuple[Amounts, int, int]]
) -> None:
    pods = [single(number, *each) for number, each in enumerate(asked)]
    bound = placed(nodes, pods)
    for pod in pods:
        if pod.uid not in bound:
            # Of one age and priority any pod can be first.
            before = [each for each in pods if (-each.priority, each.created) <= (-pod.priority, pod.created)]
            others = [(each, bound[each.uid]) for each in before if each.uid in bound]
            assert not room_beside(nodes, others, pod), f"{pod.name} was overtaken"


@pytest.mark.thorough
@settings(max_examples=examples(200), deadline=None)
@given(st.integers(20, 40), PODS)
def test_many_pods_that_all_fit_are_placed_class_by_class(
    count: int, asked: list[tuple[Amounts, int, int]]
) -> None:
    """A class is then placed in one step."""
    nodes = [(6, 2)] * max(count, len(asked))
    pods = [single(number, each, age, 0) for number, (each, age, _) in enumerate(asked)]
    kinds = {pod.uid: pod.pod_class.requests for pod in pods}
    order = [kinds[uid] for uid in placed(nodes, pods)]
    assert len(order) == len(pods)
    changes = sum(last != kind for last, kind in pairwise(order))
    assert changes == len(set(kinds.values())) - 1

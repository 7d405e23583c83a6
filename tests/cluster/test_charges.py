"""Charges of pods to nodes: a batch equals the same charges one by one."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from phalanx.cluster.state import ClusterState
from phalanx.model.events import NodeUpdated, PodUpdated
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass, PodPhase
from phalanx.model.resources import requests_of

NODES = [f"n{number}" for number in range(5)]
TABLES = ("used", "idle", "releasing", "reserved", "scored")


def cluster() -> ClusterState:
    state = ClusterState()
    for name in NODES:
        state.apply(NodeUpdated(Node(name, name, requests_of({"cpu": 64_000, "memory": 2**40, "pods": 110}))))
    return state


def some_pod(rng: Random, uid: str) -> Pod:
    """Pods of ten classes, in all states between waiting and ended; one in a hundred requests a new resource."""
    amounts = {"cpu": 100 * rng.randint(1, 3), "memory": 2**20 * rng.randint(1, 3), "pods": 1}
    if rng.random() < 0.01:
        amounts[f"example.com/{uid}"] = 1
    requests = requests_of(amounts)
    return Pod(
        "default",
        uid,
        uid,
        PodClass(requests=requests),
        usage=requests,
        scheduler=rng.choice(["phalanx", "phalanx", "other"]),
        node=rng.choice([*NODES, *NODES, "unknown", ""]),
        nominated_node=rng.choice(["", "", NODES[0]]),
        phase=rng.choice([PodPhase.RUNNING, PodPhase.RUNNING, PodPhase.PENDING, PodPhase.SUCCEEDED]),
        terminating=rng.random() < 0.1,
        gang=rng.choice(["", f"g{rng.randint(0, 20)}"]),
    )


@pytest.mark.parametrize("seed", range(20))
def test_batch_of_thousands_of_pods_is_charged_as_one_by_one(seed: int) -> None:
    rng = Random(seed)
    at_once, one_by_one = cluster(), cluster()
    for _ in range(3):
        events = [PodUpdated(some_pod(rng, f"u{rng.randint(0, 300)}")) for _ in range(200)]
        with at_once.nodes.charged_together():
            for event in events:
                at_once.apply(event)
        for event in events:
            one_by_one.apply(event)
        for name in TABLES:
            np.testing.assert_array_equal(getattr(at_once.nodes, name), getattr(one_by_one.nodes, name), name)
        noted = [set(state.nodes.changes.since(0, 10**9) or ()) for state in (at_once, one_by_one)]
        assert noted[0] == noted[1]


def test_gathered_charges_are_applied_although_an_event_fails() -> None:
    state, pod_class = cluster(), some_pod(Random(1), "u").pod_class

    def see_pods() -> None:
        with state.nodes.charged_together():
            for number in range(20):
                state.apply(PodUpdated(Pod("default", f"p{number}", f"p{number}", pod_class, node="n0")))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        see_pods()
    assert state.nodes.used[state.space.names.index("pods"), state.nodes.row("n0")] == 20

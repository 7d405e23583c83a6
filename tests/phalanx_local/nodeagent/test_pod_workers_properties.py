"""For all events of pods and agent: no node is overcommitted, no address shared, no pod lost, and then no more
writes.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.extent import examples

from .test_pod_workers import OFFER, Cluster, wants

create = st.tuples(
    st.just("create"),
    st.fixed_dictionaries(
        {
            "node": st.sampled_from(["n0", "n1"]),
            "gpu": st.integers(0, 4),
            "policy": st.sampled_from(["Never", "OnFailure", "Always"]),
            "notes": st.fixed_dictionaries(
                {"terminate-seconds": st.sampled_from(["0", "3"]), "start-seconds": st.sampled_from(["0", "2"])},
                optional={
                    "run-seconds": st.sampled_from(["0", "1", "7"]),
                    "exit-code": st.sampled_from(["0", "1"]),
                },
            ),
        }
    ),
)
delete = st.tuples(st.just("delete"), st.integers(0, 20))
run = st.tuples(st.just("run"), st.sampled_from([0.5, 2, 10]))
restart = st.tuples(st.just("restart"), st.none())
steps = st.lists(st.one_of(create, create, delete, run, restart), max_size=25)


def holds_room(body: dict[str, Any]) -> bool:
    return str(body["status"]["phase"]) == "Running"


def check(cluster: Cluster) -> None:
    used: dict[str, int] = defaultdict(int)
    addresses: list[str] = []
    for body in cluster.objects.values():
        if holds_room(body):
            requests = body["spec"]["containers"][0]["resources"]["requests"]
            used[body["spec"]["nodeName"]] += int(requests.get("nvidia.com/gpu", 0))
            addresses.append(body["status"]["podIP"])
    assert all(amount <= OFFER["nvidia.com/gpu"] for amount in used.values())
    assert len(addresses) == len(set(addresses))


def restarted(old: Cluster) -> Cluster:
    """A new agent that finds the objects and the time of the old one."""
    new = Cluster("n0", "n1", synced=False)
    new.now = old.now
    for body in old.objects.values():
        new.apply(body)
    new.set.synced(new.now)
    return new


@pytest.mark.thorough
@settings(max_examples=examples(150), deadline=None)
@given(steps)
def test_invariants(moves: list[tuple[str, Any]]) -> None:
    cluster = Cluster("n0", "n1")
    created = 0
    for kind, argument in moves:
        if kind == "create":
            created += 1
            fields = dict(argument)
            gpu = fields.pop("gpu")
            cluster.create(f"p{created}", containers=wants(gpu=str(gpu)) if gpu else wants(cpu="1m"), **fields)
        elif kind == "delete" and f"uid-p{argument}" in cluster.objects:
            cluster.delete(f"uid-p{argument}")
        elif kind == "run":
            cluster.run(argument)
        elif kind == "restart":
            cluster = restarted(cluster)
        cluster.settle()
        check(cluster)
    cluster.run(200)
    check(cluster)
    for body in cluster.objects.values():
        # Deleted pods are removed; pods with a run time have ended.
        assert "deletionTimestamp" not in body["metadata"]
        if (
            body["spec"]["restartPolicy"] == "Never"
            and "phalanx.dev/run-seconds" in body["metadata"]["annotations"]
        ):
            assert body["status"]["phase"] in ("Succeeded", "Failed")
        assert body["status"]["phase"] != "Pending"
    # A look at the same objects again changes nothing.
    before = list(cluster.history)
    for uid in list(cluster.objects):
        cluster.show(uid)
    cluster.settle()
    assert cluster.history == before

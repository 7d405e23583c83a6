"""The smallest worlds in which we once disagreed with the oracle."""

from __future__ import annotations

from tests.differential.comparison import difference
from tests.differential.oracle.world import World
from tests.differential.ours import Ours


def test_a_pod_that_was_resized_to_nothing_takes_nothing() -> None:
    container = {"name": "main", "resources": {"requests": {"cpu": "2"}}}
    world = World(
        nodes=[{"metadata": {"name": "n1"}, "spec": {}, "status": {"allocatable": {"cpu": "3", "pods": "4"}}}],
        pods=[
            {
                "metadata": {"name": "small", "namespace": "default", "uid": "small"},
                "spec": {"containers": [container], "nodeName": "n1", "schedulerName": "phalanx"},
                "status": {
                    "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}],
                    "containerStatuses": [{"name": "main", "resources": {}}],
                },
            },
            {
                "metadata": {"name": "new", "namespace": "default", "uid": "new"},
                "spec": {"containers": [container], "schedulerName": "phalanx"},
                "status": {},
            },
        ],
    )
    assert difference(world) == ""


def test_a_pod_that_names_a_claim_twice_leaves_it_once() -> None:
    ours = Ours()
    pod = {
        "metadata": {"name": "p", "namespace": "default", "uid": "p"},
        "spec": {
            "schedulerName": "phalanx",
            "containers": [],
            "resourceClaims": [{"name": at, "resourceClaimName": "shared"} for at in ("a", "b")],
        },
        "status": {},
    }
    ours.take("pods", pod)
    ours.drop("pods", pod)
    assert ours.verdicts() == {}

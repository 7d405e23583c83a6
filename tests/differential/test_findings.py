"""The smallest worlds in which we once disagreed with the oracle."""

from __future__ import annotations

from tests.differential.comparison import difference
from tests.differential.oracle.world import Wire, World
from tests.differential.ours import Ours
from tests.differential.tables.notation import one
from tests.differential.test_plans import Play


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


def test_a_claim_that_is_named_twice_is_given_devices_once() -> None:
    case = one("node n\nnew")
    case.world.device_classes = [{"metadata": {"name": "gpu"}, "spec": {}}]
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    devices: list[Wire] = [{"name": name, "attributes": {}} for name in ("a", "b")]
    spec = {"driver": "gpu.example.com", "pool": pool, "nodeName": "n", "devices": devices}
    case.world.slices = [{"metadata": {"name": "s"}, "spec": spec}]
    request = {"name": "q", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}
    claim = {
        "metadata": {"name": "c", "namespace": "default", "uid": "c"},
        "spec": {"devices": {"requests": [request]}},
    }
    case.world.resource_claims = [claim]
    case.pod["spec"]["resourceClaims"] = [{"name": name, "resourceClaimName": "c"} for name in ("x", "y")]
    (bind,) = Ours.of(case.world).scheduler.cycle(1_800_000_000.0).binds
    assert len(bind.preparations) == 1


def test_claim_shared_with_another_pod_follows_the_pod_that_got_it_first() -> None:
    Play(1151, frozenset({"DynamicResources"}), gangs=True).settle()

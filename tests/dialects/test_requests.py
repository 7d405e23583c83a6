"""Request arithmetic, row by row against kube-scheduler 1.36 (docs/rules/kubernetes_native.md, B7)."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.dialects.pods.requests import (
    DEFAULT_CPU,
    DEFAULT_MEMORY,
    demand_of,
    is_counted,
    resource_list,
    usage_of,
)
from phalanx.model.resources import MAX_AMOUNT
from tests.dialects.objects import container, pod, resource, sidecar

GI = 2**30


def requests(**spec: Any) -> dict[str, int]:
    return dict(demand_of(pod(**spec).spec).requests)


TABLE: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "containers add up": (
        {"containers": [container(cpu="1", memory="1Gi"), container(cpu="500m")]},
        {"cpu": 1500, "memory": GI},
    ),
    "nothing asked is nothing": ({"containers": [container()]}, {}),
    "an explicit zero is nothing": ({"containers": [container(cpu="0", gpu=0)]}, {}),
    "a plain init container counts where it is the peak, per resource": (
        {
            "initContainers": [container(cpu="3", memory="1Gi"), container(cpu="1", memory="5Gi")],
            "containers": [container(cpu="2", memory="2Gi")],
        },
        {"cpu": 3000, "memory": 5 * GI},
    ),
    "sidecars run beside the main containers": (
        {"initContainers": [sidecar(cpu="1")], "containers": [container(cpu="2")]},
        {"cpu": 3000},
    ),
    "an init container runs beside the sidecars that stand before it only": (
        {
            "initContainers": [sidecar(cpu="1"), container(cpu="4"), sidecar(cpu="2")],
            "containers": [container(cpu="1")],
        },
        {"cpu": 5000},
    ),
    "the sum over all sidecars can be the peak": (
        {"initContainers": [sidecar(cpu="3"), sidecar(cpu="3")], "containers": [container()]},
        {"cpu": 6000},
    ),
    "overhead comes on top": (
        {"containers": [container(cpu="1")], "overhead": {"cpu": "250m", "memory": "120Mi"}},
        {"cpu": 1250, "memory": 120 * 2**20},
    ),
    "pod-level requests replace what they name, and overhead still comes on top": (
        {
            "containers": [container(cpu="1", memory="1Gi", gpu=1)],
            "resources": {"requests": {"cpu": "4"}},
            "overhead": {"cpu": "1"},
        },
        {"cpu": 5000, "memory": GI, "nvidia.com/gpu": 1},
    ),
    "pod-level requests may be smaller than the peak of an init container": (
        {
            "initContainers": [container(cpu="8")],
            "containers": [container(cpu="1")],
            "resources": {"requests": {"cpu": "2"}},
        },
        {"cpu": 2000},
    ),
    "only cpu, memory and huge pages exist at the pod level": (
        {
            "containers": [container(gpu=1)],
            "resources": {"requests": {"nvidia.com/gpu": "4", "hugepages-2Mi": "4Mi"}},
        },
        {"nvidia.com/gpu": 1, "hugepages-2Mi": 4 * 2**20},
    ),
    "a pod-level limit alone is a request where no container asks": (
        {"containers": [container(memory="1Gi")], "resources": {"limits": {"cpu": "2", "memory": "8Gi"}}},
        {"cpu": 2000, "memory": GI},
    ),
    "a pod-level limit of huge pages is their request": (
        {"containers": [container(huge="2Mi")], "resources": {"limits": {"hugepages-2Mi": "8Mi"}}},
        {"hugepages-2Mi": 8 * 2**20},
    ),
    "a limit is a request where there is none (raw manifests)": (
        {"containers": [container(limits={"cpu": "2", "memory": "1Gi"}, cpu="500m")]},
        {"cpu": 500, "memory": GI},
    ),
    "ephemeral storage, huge pages and extended resources are dimensions like any other": (
        {"containers": [container(ephemeral="10Gi", huge="4Mi", gpu=2)]},
        {"ephemeral-storage": 10 * GI, "hugepages-2Mi": 4 * 2**20, "nvidia.com/gpu": 2},
    ),
    "names that kube-scheduler does not count are left out": (
        {"containers": [{"name": "c", "resources": {"requests": {"pods": "5", "storage": "1Gi", "cpu": "1"}}}]},
        {"cpu": 1000},
    ),
    "rounding up happens once per pod": (
        {"containers": [container(memory="500m")] * 3},
        {"memory": 2},
    ),
    "cpu is rounded up to thousandths": ({"containers": [container(cpu="100u")]}, {"cpu": 1}),
    "amounts beyond any node are clamped": (
        {"containers": [container(memory="9Ei"), container(memory="9Ei")]},
        {"memory": MAX_AMOUNT},
    ),
}


@pytest.mark.parametrize(("spec", "expected"), TABLE.values(), ids=TABLE)
def test_requests_of_a_pod_match_kube_scheduler(spec: dict[str, Any], expected: dict[str, int]) -> None:
    assert requests(**spec) == expected
    assert demand_of(pod(**spec).spec).problems == ()


@pytest.mark.parametrize("value", ["", "abc", "1,5", "-1", "0x10", "1Kib", " 1", True, [1], {}])
def test_unreadable_and_negative_amounts_are_ignored_and_named(value: object) -> None:
    demand = demand_of(pod(containers=[container(memory=value), container(memory="1Gi", cpu="1")]).spec)
    assert dict(demand.requests) == {"cpu": 1000, "memory": 2**30}
    assert [fault.path for fault in demand.problems] == ["spec.containers[0].resources.requests.memory"]


def test_scoring_uses_defaults_per_container_and_filtering_does_not() -> None:
    demand = demand_of(pod(containers=[container(cpu="1"), container(memory="0")]).spec)
    assert dict(demand.requests) == {"cpu": 1000}
    assert demand.scored_cpu == 1000 + DEFAULT_CPU
    assert demand.scored_memory == DEFAULT_MEMORY  # the stated zero of the second container applies


def test_scoring_defaults_yield_to_pod_level_requests() -> None:
    demand = demand_of(pod(containers=[container()] * 2, resources={"requests": {"cpu": "3"}}).spec)
    assert (demand.scored_cpu, demand.scored_memory) == (3000, 2 * DEFAULT_MEMORY)


# In-place resize: the usage of a bound pod.


def usage(status: dict[str, Any], **spec: Any) -> dict[str, int]:
    read = pod(node="n1", status=status, **spec)
    amounts, problems = usage_of(read.spec, read.status)
    assert problems == ()
    return dict(amounts)


def reported(name: str = "main", allocated: dict[str, Any] | None = None, **in_force: Any) -> dict[str, Any]:
    amounts = {resource(key): value for key, value in in_force.items()}
    entry: dict[str, Any] = {"name": name, "resources": {"requests": amounts}}
    return {**entry, "allocatedResources": allocated} if allocated else entry


INFEASIBLE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
DEFERRED = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}


def test_growth_is_charged_as_soon_as_it_is_requested() -> None:
    assert usage({"containerStatuses": [reported(cpu="1")]}, containers=[container(cpu="3")]) == {"cpu": 3000}


def test_shrinking_is_credited_only_when_the_node_has_done_it() -> None:
    statuses = [reported(cpu="4", allocated={"cpu": "2"})]
    assert usage({"containerStatuses": statuses}, containers=[container(cpu="1")]) == {"cpu": 4000}
    statuses = [reported(cpu="1", allocated={"cpu": "2"})]
    assert usage({"containerStatuses": statuses}, containers=[container(cpu="1")]) == {"cpu": 2000}
    assert usage({"containerStatuses": [reported(cpu="1")]}, containers=[container(cpu="1")]) == {"cpu": 1000}


def test_deferred_resize_is_charged_and_an_infeasible_one_is_not() -> None:
    statuses = [reported(cpu="1", allocated={"cpu": "1"})]
    big = [container(cpu="64")]
    assert usage({"containerStatuses": statuses, "conditions": [DEFERRED]}, containers=big) == {"cpu": 64000}
    assert usage({"containerStatuses": statuses, "conditions": [INFEASIBLE]}, containers=big) == {"cpu": 1000}


def test_container_without_reported_resources_is_charged_by_its_spec() -> None:
    status = {"containerStatuses": [{"name": "main"}, reported("other", cpu="2")]}
    containers = [container("main", cpu="1"), container("other", cpu="1")]
    assert usage(status, containers=containers) == {"cpu": 3000}


def test_sidecars_are_resized_and_plain_init_containers_are_not() -> None:
    status = {"initContainerStatuses": [reported("side", cpu="2"), reported("init", cpu="9")]}
    spec = {
        "initContainers": [sidecar("side", cpu="1"), container("init", cpu="1")],
        "containers": [container(cpu="1")],
    }
    assert usage(status, **spec) == {"cpu": 3000}


def test_pod_level_requests_are_resized_by_the_same_rule() -> None:
    spec = {"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "2"}}}
    status = {"resources": {"requests": {"cpu": "5"}}, "allocatedResources": {"cpu": "4"}}
    assert usage(status, **spec) == {"cpu": 5000}
    grown = {**spec, "resources": {"requests": {"cpu": "6"}}}
    assert usage(status, **grown) == {"cpu": 6000}
    assert usage({**status, "conditions": [INFEASIBLE]}, **grown) == {"cpu": 5000}


def test_unreadable_reported_amount_yields_to_the_stated_one() -> None:
    read = pod(node="n1", containers=[container(cpu="1")], status={"containerStatuses": [reported(cpu="?")]})
    amounts, problems = usage_of(read.spec, read.status)
    assert dict(amounts) == {"cpu": 1000}
    assert problems[0].path == "status of container main.cpu"


@pytest.mark.parametrize(
    ("name", "counted"),
    [
        ("cpu", True),
        ("memory", True),
        ("ephemeral-storage", True),
        ("hugepages-1Gi", True),
        ("attachable-volumes-csi-x", True),
        ("nvidia.com/gpu", True),
        ("kubernetes.io/batch-cpu", True),
        ("pods", False),
        ("storage", False),
        ("foo", False),
        ("requests.nvidia.com/gpu", False),
        ("count/pods", False),
    ],
)
def test_only_countable_resource_names_are_requests(name: str, counted: bool) -> None:
    assert is_counted(name) is counted


def test_resource_list_of_a_group_keeps_pods_and_drops_quota_names() -> None:
    amounts, problems = resource_list({"cpu": "2", "pods": "4", "requests.cpu": "2", "count/pods": "4"}, "spec.x")
    assert (dict(amounts), problems) == ({"cpu": 2000, "pods": 4}, ())


def test_group_can_count_its_pods_by_the_quota_name_for_pods() -> None:
    assert resource_list({"count/pods": "5"}, "spec.x") == ((("pods", 5),), ())

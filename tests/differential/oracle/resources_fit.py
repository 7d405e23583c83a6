"""NodeResourcesFit. Sources: pkg/scheduler/framework/plugins/noderesources/fit.go,
staging/src/k8s.io/component-helpers/resource/helpers.go (PodRequests), pkg/scheduler/framework/types.go (Resource).
"""

from __future__ import annotations

import math
from fractions import Fraction

from tests.differential.oracle.quantities import amount, milli, whole
from tests.differential.oracle.world import Wire, World, containers_of

Amounts = dict[str, Fraction]


def objection(world: World, pod: Wire, node: Wire) -> str:
    tenants = world.tenants(node["metadata"]["name"])
    offered = counted({name: amount(value) for name, value in _allocatable(node).items()})
    if len(tenants) + 1 > offered.get("pods", 0):
        return "Too many pods"
    used: dict[str, int] = {}
    for tenant in tenants:
        for name, number in counted(requests_in_force(tenant)).items():
            used[name] = used.get(name, 0) + number
    for name, number in counted(requests(pod)).items():
        if number > 0 and number > offered.get(name, 0) - used.get(name, 0):
            return f"Insufficient {name}"
    return ""


def requests(pod: Wire) -> Amounts:
    """Return the requests of a waiting pod, by its spec alone."""
    return _requests(pod, in_force=False)


def requests_in_force(pod: Wire) -> Amounts:
    """Return the requests of a bound pod: the greatest of spec, allocated and actual where the kubelet reports
    them.
    """
    return _requests(pod, in_force=True)


def counted(amounts: Amounts) -> dict[str, int]:
    """Count as kube-scheduler does: unknown names are skipped, fractions are rounded up."""
    return {
        name: milli(value) if name == "cpu" else whole(value)
        for name, value in amounts.items()
        if name == "pods" or _is_counted(name)
    }


def _is_counted(name: str) -> bool:
    if name in ("cpu", "memory", "ephemeral-storage") or name.startswith(("hugepages-", "attachable-volumes-")):
        return True
    # Extended resources have a domain; names of kubernetes.io are native ones with a prefix.
    return "/" in name and not name.startswith("requests.")


def _requests(pod: Wire, in_force: bool) -> Amounts:
    spec, status = pod["spec"], (pod.get("status") or {}) if in_force else {}
    reported = {
        entry["name"]: entry
        for entry in (status.get("containerStatuses") or []) + (status.get("initContainerStatuses") or [])
    }
    infeasible = _resize_is_infeasible(status)
    total: Amounts = {}
    for container in containers_of(pod):
        total = _sum(total, _of_container(container, reported, infeasible))
    beside: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or []:
        if container.get("restartPolicy") == "Always":
            own = _of_container(container, reported, infeasible)
            total, beside = _sum(total, own), _sum(beside, own)
            peak = _greatest(peak, beside)
        else:
            peak = _greatest(peak, _sum(beside, _of_container(container, {}, infeasible)))
    total = _greatest(total, peak)
    total |= _pod_level(spec, status, infeasible, total)
    return _sum(total, _read(spec.get("overhead")))


def _of_container(container: Wire, reported: dict[str, Wire], infeasible: bool) -> Amounts:
    resources = container.get("resources") or {}
    # A limit without a request is the request: the API server has written it so.
    stated = _read(resources.get("limits")) | _read(resources.get("requests"))
    entry = reported.get(container.get("name", ""))
    if entry is None or entry.get("resources") is None:
        return stated
    actual, allocated = _read(entry["resources"].get("requests")), _read(entry.get("allocatedResources"))
    return _greatest({} if infeasible else stated, _greatest(actual, allocated))


def _pod_level(spec: Wire, status: Wire, infeasible: bool, containers: Amounts) -> Amounts:
    """Requests of the pod as a whole replace the sum for the names that they give."""
    resources = spec.get("resources") or {}
    stated, limits = _read(resources.get("requests")), _read(resources.get("limits"))
    for name, limit in limits.items():
        if name not in stated:  # the API server's default
            stated[name] = limit if name.startswith("hugepages-") else containers.get(name, limit)
    stated = {
        name: value for name, value in stated.items() if name in ("cpu", "memory") or name.startswith("hugepages-")
    }
    if stated and status.get("resources") is not None:
        actual, allocated = _read(status["resources"].get("requests")), _read(status.get("allocatedResources"))
        effective = _greatest({} if infeasible else stated, _greatest(actual, allocated))
        return {name: effective.get(name, Fraction(0)) for name in stated}
    return stated


def _resize_is_infeasible(status: Wire) -> bool:
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodResizePending":
            return bool(condition.get("reason") == "Infeasible")
    return False


def _allocatable(node: Wire) -> Wire:
    return dict((node.get("status") or {}).get("allocatable") or {})


def _read(amounts: Wire | None) -> Amounts:
    """Return thousandths, rounded up one by one, as the API server does (pkg/apis/core/v1/defaults.go)."""
    return {name: Fraction(math.ceil(amount(value) * 1000), 1000) for name, value in (amounts or {}).items()}


def _sum(left: Amounts, right: Amounts) -> Amounts:
    return {name: left.get(name, Fraction(0)) + right.get(name, Fraction(0)) for name in {**left, **right}}


def _greatest(left: Amounts, right: Amounts) -> Amounts:
    return {name: max(left.get(name, Fraction(0)), right.get(name, Fraction(0))) for name in {**left, **right}}

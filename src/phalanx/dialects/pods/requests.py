"""Resource requests of a pod, computed as in kube-scheduler 1.36 (docs/rules/kubernetes_native.md, B7).

Amounts are in thousandths of the Kubernetes unit until the end, so that rounding up happens once per resource and
pod, as upstream. An unreadable or negative amount is excluded and reported: a pending pod with one is held, and a
bound pod occupies its readable requests, never a whole node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from phalanx.dialects.core import Amounts, Container, PodSpec, PodStatus, ResourceRequirements
from phalanx.dialects.lenient import DecodingFault
from phalanx.model.resources import CPU, MAX_AMOUNT, MEMORY, PODS, Requests, requests_of
from phalanx.model.text.decoding import quoted
from phalanx.model.text.quantity import QuantityError, parse_quantity

DEFAULT_CPU = 100  # thousandths of a core, for scoring
DEFAULT_MEMORY = 200 * 2**20  # bytes, for scoring

_Thousandths = dict[str, int]
_COUNT_PODS = "count/pods"
_LIMITS = "limits."
_SCORING_DEFAULTS = {CPU: DEFAULT_CPU, MEMORY: DEFAULT_MEMORY * 1000}
# A problem in one of these fields invalidates the sum, not only one amount.
_SUMMED_FIELDS = ("spec.containers", "spec.initContainers", "spec.overhead", "spec.resources")


class StatedRequests(msgspec.Struct, frozen=True):
    """Requests of one pod spec. `problems` lists unreadable amounts."""

    requests: Requests
    scored_cpu: int
    scored_memory: int
    problems: tuple[DecodingFault, ...] = ()


def demand_of(spec: PodSpec) -> StatedRequests:
    """Return the requests of a pending pod: those of its spec, regardless of its status."""
    problems: list[DecodingFault] = []
    aggregate = _aggregate(_own_containers(spec, problems), {})
    level = _pod_level(spec.resources, aggregate, problems)
    overhead = _amounts(spec.overhead, "spec.overhead", problems)
    scored = _aggregate(_own_containers(spec, []), _scoring_defaults(aggregate | level, level))
    return StatedRequests(
        requests=_whole(_sum(aggregate | level, overhead)),
        scored_cpu=_whole_amount(CPU, _sum(scored | level, overhead).get(CPU, 0)),
        scored_memory=_whole_amount(MEMORY, _sum(scored | level, overhead).get(MEMORY, 0)),
        problems=tuple(problems),
    )


def usage_of(spec: PodSpec, status: PodStatus) -> tuple[Requests, tuple[DecodingFault, ...]]:
    """Return the amounts that a bound pod uses on its node, in-place resize included.

    Per container this is the maximum of the spec's requests, the allocated ones and the ones in force; the spec is
    excluded after the kubelet has rejected the resize as infeasible. Pod-level requests follow the same rule.
    """
    problems: list[DecodingFault] = []
    infeasible = _resize_is_infeasible(status)
    reported = {entry.name: entry for entry in (*status.container_statuses, *status.init_container_statuses)}
    containers = []
    for container, amounts, sidecar in _own_containers(spec, problems):
        entry = reported.get(container.name)
        # Only sidecars among the init containers can be resized.
        if entry is not None and entry.resources is not None and sidecar is not False:
            amounts = _greatest(
                {} if infeasible else amounts,
                _amounts(entry.resources.requests, f"status of container {container.name}", problems),
                _amounts(entry.allocated_resources, f"status of container {container.name}", problems),
            )
        containers.append((container, amounts, sidecar))
    aggregate = _aggregate(containers, {})
    level = _pod_level(spec.resources, aggregate, problems)
    if level and status.resources is not None:
        effective = _greatest(
            {} if infeasible else level,
            _amounts(status.resources.requests, "status.resources.requests", problems),
            _amounts(status.allocated_resources, "status.allocatedResources", problems),
        )
        level = {name: effective.get(name, 0) for name in level}
    overhead = _amounts(spec.overhead, "spec.overhead", problems)
    return _whole(_sum(aggregate | level, overhead)), tuple(problems)


def reports_resources(status: PodStatus) -> bool:
    """Return whether `usage_of` can differ from the requests of the pod's spec, since its status reports
    resources."""
    for entries in (status.container_statuses, status.init_container_statuses):
        for entry in entries:
            if entry.resources is not None:
                return True
    return status.resources is not None


def resource_list(amounts: Mapping[str, object], path: str) -> tuple[Requests, tuple[DecodingFault, ...]]:
    """Parse a ResourceList as written, without quota-only names such as `requests.cpu`, but with `pods`.
    `count/pods` is an alias of `pods`."""
    problems: list[DecodingFault] = []
    read = _amounts(amounts, path, problems, keep_pods=True)
    counted = read.pop(_COUNT_PODS, 0)
    if counted:
        read[PODS] = max(counted, read.get(PODS, 0))
    return _whole(read), tuple(problems)


def limit_list(amounts: Mapping[str, object], path: str) -> tuple[Requests, tuple[DecodingFault, ...]]:
    """Parse the limits of a ResourceList; the result has the names of quotas for them, such as `limits.cpu`."""
    stated = {name.removeprefix(_LIMITS): value for name, value in amounts.items() if name.startswith(_LIMITS)}
    read, faults = resource_list(stated, f"{path}.limits")
    return tuple((_LIMITS + name, amount) for name, amount in read), faults


def hides_amounts(fault: DecodingFault) -> bool:
    """Return whether an undecodable field of a pod can hide requests, so that their sum is too small."""
    return fault.path == "spec" or fault.path.startswith(_SUMMED_FIELDS)


def is_counted(resource: str) -> bool:
    """Return whether kube-scheduler counts the resource in requests: native ones, and names with a domain."""
    if resource in (CPU, MEMORY, "ephemeral-storage"):
        return True
    if resource.startswith(("hugepages-", "attachable-volumes-")):
        return True
    return "/" in resource and not resource.startswith(("requests.", "limits.", "count/"))


def _own_containers(
    spec: PodSpec, problems: list[DecodingFault]
) -> list[tuple[Container, _Thousandths, bool | None]]:
    """Return each container of a pod with its own requests, and a flag: None for a main container, True for a
    sidecar."""
    entries: list[tuple[Container, _Thousandths, bool | None]] = []
    for position, container in enumerate(spec.containers):
        path = f"spec.containers[{position}].resources"
        entries.append((container, _container_amounts(container, path, problems), None))
    for position, container in enumerate(spec.init_containers):
        path = f"spec.initContainers[{position}].resources"
        amounts = _container_amounts(container, path, problems)
        entries.append((container, amounts, container.restart_policy == "Always"))
    return entries


def _container_amounts(container: Container, path: str, problems: list[DecodingFault]) -> _Thousandths:
    if container.resources is None:
        return {}
    requests = container.resources.requests
    amounts = _amounts(requests, f"{path}.requests", problems)
    # The API server copies limits into missing requests; a manifest that bypassed it is defaulted here.
    missing = {name: value for name, value in container.resources.limits.items() if name not in requests}
    return amounts | _amounts(missing, f"{path}.limits", problems) if missing else amounts


def _aggregate(
    containers: Iterable[tuple[Container, _Thousandths, bool | None]], defaults: _Thousandths
) -> _Thousandths:
    """Return the peak of the containers' requests: main containers and sidecars run together, an init container
    beside earlier sidecars."""
    running: _Thousandths = {}
    sidecars: _Thousandths = {}
    peak: _Thousandths = {}
    for _, own, sidecar in containers:
        amounts = {**defaults, **own}
        if sidecar is None:
            running = _sum(running, amounts)
        elif sidecar:
            running = _sum(running, amounts)
            sidecars = _sum(sidecars, amounts)
            peak = _greatest(peak, sidecars)
        else:
            peak = _greatest(peak, _sum(amounts, sidecars))
    return _greatest(running, peak)


def _pod_level(
    resources: ResourceRequirements | None, aggregate: _Thousandths, problems: list[DecodingFault]
) -> _Thousandths:
    """Return the requests at pod level, which replace the sum over containers for their resources."""
    if resources is None:
        return {}
    requests = _amounts(resources.requests, "spec.resources.requests", problems)
    limits = _amounts(resources.limits, "spec.resources.limits", problems)
    for name, amount in limits.items():
        # The API server's defaults: resources without overcommit follow the limit, all other ones the containers.
        if name not in requests:
            requests[name] = amount if name.startswith("hugepages-") else aggregate.get(name, amount)
    return {name: amount for name, amount in requests.items() if _has_pod_level(name)}


def _has_pod_level(resource: str) -> bool:
    return resource in (CPU, MEMORY) or resource.startswith("hugepages-")


def _scoring_defaults(real: _Thousandths, level: _Thousandths) -> _Thousandths:
    """Return the requests that scoring assumes for containers without any; with pod-level requests only for
    resources that no request names."""
    if not level:
        return _SCORING_DEFAULTS
    return {name: amount for name, amount in _SCORING_DEFAULTS.items() if name not in real}


def _resize_is_infeasible(status: PodStatus) -> bool:
    for condition in status.conditions:
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def _amounts(
    stated: Amounts | Mapping[str, object], path: str, problems: list[DecodingFault], keep_pods: bool = False
) -> _Thousandths:
    amounts: _Thousandths = {}
    for name, value in stated.items():
        if not is_counted(name) and not (keep_pods and name in (PODS, _COUNT_PODS)):
            continue
        try:
            amount = parse_quantity(value, 1000)
        except QuantityError as error:
            problems.append(DecodingFault(f"{path}.{name}", str(error)))
            continue
        if amount < 0:
            problems.append(DecodingFault(f"{path}.{name}", f"{quoted(value)} is negative"))
            continue
        amounts[name] = amount
    return amounts


def _sum(left: _Thousandths, right: _Thousandths) -> _Thousandths:
    total = dict(left)
    for name, amount in right.items():
        total[name] = total.get(name, 0) + amount
    return total


def _greatest(*lists: _Thousandths) -> _Thousandths:
    result: _Thousandths = {}
    for amounts in lists:
        for name, amount in amounts.items():
            result[name] = max(result.get(name, 0), amount)
    return result


def _whole(amounts: _Thousandths) -> Requests:
    return requests_of({name: _whole_amount(name, amount) for name, amount in amounts.items()})


def _whole_amount(resource: str, thousandths: int) -> int:
    amount = thousandths if resource == CPU else -(-thousandths // 1000)
    return min(MAX_AMOUNT, amount)

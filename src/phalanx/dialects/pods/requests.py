"""What a pod asks of a node, with the arithmetic of kube-scheduler 1.36 (docs/rules/kubernetes_native.md, B7).

Amounts travel in thousandths of the Kubernetes unit until the very end, so that rounding up happens once per
resource and pod, as upstream. An amount that cannot be read, or is negative, is left out and named: a pending pod
with one is held, and one that is on a node occupies what can be read of it, never a whole node.
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
# A problem there makes the sum meaningless, not only one amount.
_SUMMED_FIELDS = ("spec.containers", "spec.initContainers", "spec.overhead", "spec.resources")


class StatedRequests(msgspec.Struct, frozen=True):
    """The requests of one pod spec. `problems` names amounts that could not be read."""

    requests: Requests
    scored_cpu: int
    scored_memory: int
    problems: tuple[DecodingFault, ...] = ()


def demand_of(spec: PodSpec) -> StatedRequests:
    """What a pending pod asks for: its spec, whatever its status says."""
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
    """What a bound pod takes from its node, in-place resize included.

    Per container it is the greatest of what the spec wants, what the node has allocated and what is in force; the
    spec is left out once the kubelet has called the resize infeasible. The pod level follows the same rule.
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
    """Whether `usage_of` can differ from the spec's own requests."""
    for entries in (status.container_statuses, status.init_container_statuses):
        for entry in entries:
            if entry.resources is not None:
                return True
    return status.resources is not None


def resource_list(amounts: Mapping[str, object], path: str) -> tuple[Requests, tuple[DecodingFault, ...]]:
    """A ResourceList as it stands (quota-only names such as `requests.cpu` left out, `pods` kept). Pods may go by
    the name `count/pods` alone."""
    problems: list[DecodingFault] = []
    read = _amounts(amounts, path, problems, keep_pods=True)
    counted = read.pop(_COUNT_PODS, 0)
    if counted:
        read[PODS] = max(counted, read.get(PODS, 0))
    return _whole(read), tuple(problems)


def limit_list(amounts: Mapping[str, object], path: str) -> tuple[Requests, tuple[DecodingFault, ...]]:
    """What a ResourceList says of limits, under the names that quotas have for them: `limits.cpu`."""
    stated = {name.removeprefix(_LIMITS): value for name, value in amounts.items() if name.startswith(_LIMITS)}
    read, faults = resource_list(stated, f"{path}.limits")
    return tuple((_LIMITS + name, amount) for name, amount in read), faults


def hides_amounts(fault: DecodingFault) -> bool:
    """Whether a field that could not be decoded may hide requests, so that the sum may be too small."""
    return fault.path == "spec" or fault.path.startswith(_SUMMED_FIELDS)


def is_counted(resource: str) -> bool:
    """Whether kube-scheduler counts the resource at all: the native ones, and names with a domain."""
    if resource in (CPU, MEMORY, "ephemeral-storage"):
        return True
    if resource.startswith(("hugepages-", "attachable-volumes-")):
        return True
    return "/" in resource and not resource.startswith(("requests.", "limits.", "count/"))


def _own_containers(
    spec: PodSpec, problems: list[DecodingFault]
) -> list[tuple[Container, _Thousandths, bool | None]]:
    """Every container with its own requests; the flag is None for a main container, else: is it a sidecar?"""
    found: list[tuple[Container, _Thousandths, bool | None]] = []
    for at, container in enumerate(spec.containers):
        path = f"spec.containers[{at}].resources"
        found.append((container, _container_amounts(container, path, problems), None))
    for at, container in enumerate(spec.init_containers):
        path = f"spec.initContainers[{at}].resources"
        amounts = _container_amounts(container, path, problems)
        found.append((container, amounts, container.restart_policy == "Always"))
    return found


def _container_amounts(container: Container, path: str, problems: list[DecodingFault]) -> _Thousandths:
    if container.resources is None:
        return {}
    requests = container.resources.requests
    amounts = _amounts(requests, f"{path}.requests", problems)
    # The API server copies limits into missing requests; a manifest that never saw one gets the same here.
    missing = {name: value for name, value in container.resources.limits.items() if name not in requests}
    return amounts | _amounts(missing, f"{path}.limits", problems) if missing else amounts


def _aggregate(
    containers: Iterable[tuple[Container, _Thousandths, bool | None]], defaults: _Thousandths
) -> _Thousandths:
    """Main containers and sidecars run together; an init container runs beside the sidecars before it."""
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
    """The pod-level requests, which replace the sum over containers for the resources that they name."""
    if resources is None:
        return {}
    requests = _amounts(resources.requests, "spec.resources.requests", problems)
    limits = _amounts(resources.limits, "spec.resources.limits", problems)
    for name, amount in limits.items():
        # As the API server defaults it: what cannot be overcommitted follows the limit, the rest the containers.
        if name not in requests:
            requests[name] = amount if name.startswith("hugepages-") else aggregate.get(name, amount)
    return {name: amount for name, amount in requests.items() if _has_pod_level(name)}


def _has_pod_level(resource: str) -> bool:
    return resource in (CPU, MEMORY) or resource.startswith("hugepages-")


def _scoring_defaults(real: _Thousandths, level: _Thousandths) -> _Thousandths:
    """Defaults for containers without a request; with pod-level requests only for what nobody names."""
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

"""Requests of a pod on its node, from the rules of Kubernetes, independently of the scheduler.

Amounts are in thousandths of the Kubernetes unit until the end, so that rounding up happens once per resource and
pod. https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/
"""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.model.resources import CPU, MAX_AMOUNT, MEMORY, Requests, requests_of
from phalanx.model.selectors import HostPort
from phalanx.model.text.quantity import QuantityError, parse_quantity
from phalanx_local.nodeagent.capacity import PodCharge
from phalanx_local.nodeagent.core_v1 import Amounts, V1Container, V1Pod, V1PodSpec

_Thousandths = dict[str, int]
_MORE_THAN_ANY: Requests = ((CPU, MAX_AMOUNT), (MEMORY, MAX_AMOUNT))


def charge_of(pod: V1Pod) -> PodCharge:
    """Return the resources and host ports that a pod occupies: during a resize, the maximum of spec, allocated and
    actual resources.

    A pod with unreadable requests requests more than any node has, so that every node rejects it.
    """
    return _charge(pod, resizing=True)


def wanted_charge(pod: V1Pod) -> PodCharge:
    """Return the resources and host ports of the pod's spec; they differ from the occupied ones only during an
    in-place resize."""
    return _charge(pod, resizing=False)


def _charge(pod: V1Pod, resizing: bool) -> PodCharge:
    try:
        amounts = _requests(pod, resizing)
    except QuantityError:
        return PodCharge(_MORE_THAN_ANY, _host_ports(pod.spec))
    claim_status = pod.status.extended_resource_claim_status
    # Resources of a claim are devices and do not count against the node's amounts.
    for mapping in (claim_status.request_mappings or ()) if claim_status is not None else ():
        amounts.pop(mapping.resource_name, None)
    return PodCharge(
        requests_of({name: _whole(name, amount) for name, amount in amounts.items()}), _host_ports(pod.spec)
    )


def _requests(pod: V1Pod, resizing: bool) -> _Thousandths:
    """Return the requests of the pod: containers and sidecars together, or the largest init container beside
    earlier sidecars."""
    spec, status = pod.spec, pod.status
    infeasible = any(
        item.type == "PodResizePending" and item.reason == "Infeasible" for item in status.conditions or ()
    )
    statuses = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    reported = {entry.name: entry for entry in statuses if entry.resources is not None} if resizing else {}

    def asked(container: V1Container) -> _Thousandths:
        own = _read(container.resources.requests if container.resources else None)
        entry = reported.get(container.name)
        if entry is None or entry.resources is None:
            return own
        return _greatest(
            {} if infeasible else own, _greatest(_read(entry.resources.requests), _read(entry.allocated_resources))
        )

    running: _Thousandths = {}
    sidecars: _Thousandths = {}
    peak: _Thousandths = {}
    for container in spec.init_containers or ():
        if container.restart_policy == "Always":
            sidecars = _sum(sidecars, asked(container))
            peak = _greatest(peak, sidecars)
        else:
            reported.pop(container.name, None)
            peak = _greatest(peak, _sum(asked(container), sidecars))
    for container in spec.containers:
        running = _sum(running, asked(container))
    total = _greatest(_sum(running, sidecars), peak)
    level = {name: amount for name, amount in _read_level(spec).items() if _has_pod_level(name)}
    if level and resizing and status.resources is not None:
        in_force = _greatest(_read(status.resources.requests), _read(status.allocated_resources))
        effective = _greatest({} if infeasible else level, in_force)
        level = {name: effective.get(name, 0) for name in level}
    return _sum(total | level, _read(spec.overhead))


def _read_level(spec: V1PodSpec) -> _Thousandths:
    return _read(spec.resources.requests if spec.resources else None)


def _has_pod_level(resource: str) -> bool:
    return resource in (CPU, MEMORY) or resource.startswith("hugepages-")


def _read(stated: Amounts | None) -> _Thousandths:
    amounts = {name: parse_quantity(value, 1000) for name, value in (stated or {}).items()}
    for name, amount in amounts.items():
        if amount < 0:
            raise QuantityError((stated or {})[name])
    return amounts


def _sum(left: Mapping[str, int], right: Mapping[str, int]) -> _Thousandths:
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


def _greatest(left: Mapping[str, int], right: Mapping[str, int]) -> _Thousandths:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}


def _whole(resource: str, thousandths: int) -> int:
    return min(MAX_AMOUNT, thousandths if resource == CPU else -(-thousandths // 1000))


def _host_ports(spec: V1PodSpec) -> tuple[HostPort, ...]:
    """Return the host ports of main containers and sidecars; with hostNetwork every container port is a host
    port."""
    sidecars = [container for container in spec.init_containers or () if container.restart_policy == "Always"]
    ports = {
        HostPort(number, port.protocol or "TCP", port.host_ip or "")
        for container in (*spec.containers, *sidecars)
        for port in container.ports or ()
        if (number := port.host_port or (port.container_port if spec.host_network else 0)) > 0
    }
    return tuple(sorted(ports, key=lambda port: (port.port, port.protocol, port.ip)))

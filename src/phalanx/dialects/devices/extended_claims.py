"""Extended resources of DeviceClasses: the device requests that replace container amounts (Kubernetes 1.36).

The scheduler itself creates one claim per pod for them, and the pod's status maps containers to the requests for
their devices.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from phalanx.dialects.core import Container, NodeObject, PodObject, PodSpec
from phalanx.model.devices.claims import DeviceAsk, DeviceMapping, DeviceRequest, ExtendedNeed
from phalanx.model.pod import Pod
from phalanx.model.resources import Requests, parse_amount
from phalanx.model.text.quantity import QuantityError

# A class of this name offers the resource, independent of its spec.
IMPLICIT = "deviceclass.resource.kubernetes.io/"
_MOST_KEPT = 4096


class ExtendedRequest(msgspec.Struct, frozen=True, cache_hash=True):
    """Requests of a pod for one extended resource: the names and counts of device requests that satisfy it, and
    the containers that use them."""

    resource: str
    requests: tuple[tuple[str, int], ...]
    mappings: tuple[DeviceMapping, ...]


_NOTHING: tuple[tuple[ExtendedRequest, ...], str] = ((), "")


def is_extended(resource: str) -> bool:
    """Return whether a DeviceClass can offer devices under this resource name (`kubernetes.io/` names are
    Kubernetes' own)."""
    if resource.startswith(IMPLICIT):
        return True
    domain, slash, _ = resource.partition("/")
    return bool(slash) and not domain.endswith("kubernetes.io") and not domain.startswith("requests.")


def extended_names(requests: Requests) -> tuple[str, ...]:
    return tuple(name for name, amount in requests if amount and is_extended(name))


def extended_requests(spec: PodSpec, names: Iterable[str]) -> tuple[ExtendedRequest, ...]:
    """Return a pod's device requests, one per extended resource, sorted by name. Raise QuantityError."""
    return tuple(_of_resource(spec, name) for name in sorted(names))


def _of_resource(spec: PodSpec, resource: str) -> ExtendedRequest:
    """Return the request for one resource. Main containers and sidecars hold their devices permanently. Init
    containers run one after the other, reuse the devices of later containers, and share one request for the
    remaining ones."""
    containers = [*spec.init_containers, *spec.containers]
    first_main = len(spec.init_containers)
    permanent: dict[int, tuple[str, int]] = {}
    temporary: list[tuple[int, Container, int]] = []
    for position, container in enumerate(containers):
        amount = _amount(container, resource)
        if not amount:
            continue
        if position >= first_main or container.restart_policy == "Always":
            permanent[position] = (_request_name(position, container, resource), amount)
        else:
            temporary.append((position, container, amount))
    mappings = [
        DeviceMapping(containers[position].name, resource, name) for position, (name, _) in permanent.items()
    ]
    extra: tuple[str, int] | None = None
    unmet: list[Container] = []
    for position, container, amount in temporary:
        for owner_position, (name, count) in permanent.items():
            if owner_position >= position and amount > 0:
                mappings.append(DeviceMapping(container.name, resource, name))
                amount -= count
        if amount > 0:
            unmet.append(container)
            if extra is None or amount > extra[1]:
                extra = (_request_name(position, container, resource), amount)
    if extra is not None:
        mappings += [DeviceMapping(container.name, resource, extra[0]) for container in unmet]
    requests = [*permanent.values(), *([extra] if extra is not None else [])]
    return ExtendedRequest(resource, tuple(sorted(requests)), tuple(mappings))


def _amount(container: Container, resource: str) -> int:
    resources = container.resources
    if resources is None:
        return 0
    value = resources.requests.get(resource, resources.limits.get(resource))
    try:
        return max(0, parse_amount(resource, value)) if value is not None else 0
    except QuantityError:
        return 0  # the pod is held for it elsewhere


def _request_name(position: int, container: Container, resource: str) -> str:
    """Return the name that kube-scheduler gives the device request of a container, so that claims look the same."""
    assert container.resources is not None
    named = sorted({**container.resources.limits, **container.resources.requests})
    return f"container-{position}-request-{named.index(resource)}"


class _RequestIndex:
    """Uids of pods that request extended resources, by node and by resource."""

    def __init__(self) -> None:
        self.by_node: dict[str, set[str]] = {}
        self.by_resource: dict[str, set[str]] = {}

    def add(self, uid: str, extended: tuple[ExtendedRequest, ...], node: str) -> None:
        if node:
            self.by_node.setdefault(node, set()).add(uid)
        for request in extended:
            self.by_resource.setdefault(request.resource, set()).add(uid)

    def remove(self, uid: str, extended: tuple[ExtendedRequest, ...], node: str) -> None:
        _discard(self.by_node, node, uid)
        for request in extended:
            _discard(self.by_resource, request.resource, uid)


class ExtendedResources:
    """Pods that request extended resources, the device classes that offer them, and nodes with them from device
    plugins.

    Among several classes that offer a resource, the newest has precedence, then the first by name, as in
    kube-scheduler.
    """

    def __init__(self) -> None:
        # Requests and node of each pod, by uid.
        self._requested: dict[str, tuple[tuple[ExtendedRequest, ...], str]] = {}
        # Pods by node and by resource; None until a class offers any, so that other clusters do not pay for the
        # index.
        self._index: _RequestIndex | None = None
        self._cache: dict[bytes, tuple[ExtendedRequest, ...]] = {}
        # Creation time by resource and class; resource by class.
        self._offers: dict[str, dict[str, str]] = {}
        self._resources: dict[str, str] = {}
        # Extended resources that the kubelet offers, by node.
        self._plugin_resources: dict[str, frozenset[str]] = {}

    # pods

    @property
    def any_offered(self) -> bool:
        """Whether any DeviceClass offers an extended resource."""
        return bool(self._resources)

    def pod(self, pod: PodObject, spec: Pod) -> bool:
        """Process an added or changed pod; return whether its requests for extended resources or its node
        changed."""
        extended = () if spec.finished else self._requests(pod, spec)
        last = self._requested.get(spec.uid)
        if not extended:
            return last is not None and self.pod_gone(spec.uid)
        if last is not None:
            if last[0] == extended and last[1] == spec.node:
                return False
            self.pod_gone(spec.uid)
        self._requested[spec.uid] = extended, spec.node
        if self._index is None:
            return False
        self._index.add(spec.uid, extended, spec.node)
        return True

    def pod_gone(self, uid: str) -> bool:
        last = self._requested.pop(uid, None)
        if last is None or self._index is None:
            return False
        self._index.remove(uid, *last)
        return True

    def _requests(self, pod: PodObject, spec: Pod) -> tuple[ExtendedRequest, ...]:
        """Return the pod's requests for extended resources; pods of one template share them."""
        extended = self._cache.get(pod.template)
        if extended is None:
            extended = extended_requests(pod.spec, extended_names(spec.pod_class.requests))
            if pod.template:
                if len(self._cache) >= _MOST_KEPT:
                    self._cache.clear()
                self._cache[pod.template] = extended
        return extended

    def needs(self, spec: Pod) -> tuple[tuple[ExtendedNeed, ...], Requests]:
        """Return the needs that devices satisfy, and the replaced amounts. For a bound pod, the kubelet's own
        resources have precedence."""
        extended, _ = self._requested.get(spec.uid, _NOTHING)
        if not extended:
            return (), ()
        plugin_resources: frozenset[str] | None = None
        amounts: dict[str, int] = {}
        needs = []
        for request in extended:
            device_class = self.device_class(request.resource)
            if device_class and plugin_resources is None:
                plugin_resources = self._plugin_resources.get(spec.node, frozenset()) if spec.node else frozenset()
                amounts = dict(spec.pod_class.requests)
            if device_class and plugin_resources is not None and request.resource not in plugin_resources:
                requests = tuple(
                    DeviceRequest(name, (DeviceAsk(name, device_class, count=count),))
                    for name, count in request.requests
                )
                needs.append(ExtendedNeed(request.resource, amounts[request.resource], requests, request.mappings))
        return tuple(needs), tuple((met.resource, met.amount) for met in needs)

    # nodes

    def node(self, node: NodeObject) -> set[str]:
        """Process an added or changed node; return the pods whose extended resources have to be resolved again."""
        name = node.metadata.name
        offered = frozenset(
            resource
            for resource, value in node.status.allocatable.items()
            if is_extended(resource) and str(value) not in ("0", "")
        )
        if offered == self._plugin_resources.get(name, frozenset()):
            return set()
        if offered:
            self._plugin_resources[name] = offered
        else:
            del self._plugin_resources[name]
        return self._pods_on(name)

    def node_gone(self, name: str) -> set[str]:
        self._plugin_resources.pop(name, None)
        return self._pods_on(name)

    def _pods_on(self, node: str) -> set[str]:
        return set(self._index.by_node.get(node, ())) if self._index is not None else set()

    # device classes

    def device_class(self, resource: str) -> str:
        """Return the DeviceClass that offers the extended resource; "" for none."""
        offers = self._offers.get(resource)
        if not offers:
            return ""
        newest = max(offers.values())
        return min(name for name, created in offers.items() if created == newest)

    def offered(self, device_class: str, resource: str, created: str) -> set[str]:
        """Process an added or changed DeviceClass; return the pods whose extended resources have to be resolved
        again."""
        if self._index is None:
            self._index = _RequestIndex()
            for uid, (extended, node) in self._requested.items():
                self._index.add(uid, extended, node)
        touched = self.withdrawn(device_class) if self._resources.get(device_class, resource) != resource else set()
        self._resources[device_class] = resource
        for name in (f"{IMPLICIT}{device_class}", resource):
            before = self.device_class(name)
            if name:
                self._offers.setdefault(name, {})[device_class] = created
            if self.device_class(name) != before:
                touched |= self._index.by_resource.get(name, set())
        return touched

    def withdrawn(self, device_class: str) -> set[str]:
        """Remove a DeviceClass; return the pods whose extended resources have to be resolved again."""
        resource, touched = self._resources.pop(device_class, ""), set[str]()
        for name in (f"{IMPLICIT}{device_class}", resource):
            if self._offers.get(name, {}).pop(device_class, None) is not None:
                touched |= self._index.by_resource.get(name, set()) if self._index is not None else set()
                if not self._offers[name]:
                    del self._offers[name]
        return touched


def _discard(index: dict[str, set[str]], key: str, uid: str) -> None:
    uids = index.get(key)
    if uids is not None:
        uids.discard(uid)
        if not uids:
            del index[key]

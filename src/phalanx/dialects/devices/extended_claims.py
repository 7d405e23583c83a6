"""Extended resources that a DeviceClass offers: the requests that containers' amounts stand for (Kubernetes 1.36).

The scheduler itself makes the claim for them, one for each pod, and the pod's status tells which container gets the
devices of which request.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from phalanx.dialects.core import Container, NodeObject, PodObject, PodSpec
from phalanx.model.devices.claims import DeviceAsk, DeviceMapping, DeviceRequest, ExtendedNeed
from phalanx.model.pod import Pod
from phalanx.model.resources import Requests, parse_amount
from phalanx.model.text.quantity import QuantityError

# The class of this name offers the resource, whatever else it says.
IMPLICIT = "deviceclass.resource.kubernetes.io/"
_MOST_KEPT = 4096
_ENCODER = msgspec.json.Encoder()


class ExtendedRequest(msgspec.Struct, frozen=True, cache_hash=True):
    """What a pod asks for of one extended resource: the names and counts of device requests that would meet it, and
    which containers use them."""

    resource: str
    requests: tuple[tuple[str, int], ...]
    mappings: tuple[DeviceMapping, ...]


def is_extended(resource: str) -> bool:
    """Whether devices can be offered by this name at all (`kubernetes.io/` names are Kubernetes' own)."""
    if resource.startswith(IMPLICIT):
        return True
    domain, slash, _ = resource.partition("/")
    return bool(slash) and not domain.endswith("kubernetes.io") and not domain.startswith("requests.")


def extended_names(requests: Requests) -> tuple[str, ...]:
    return tuple(name for name, amount in requests if amount and is_extended(name))


def extended_requests(spec: PodSpec, names: Iterable[str]) -> tuple[ExtendedRequest, ...]:
    """One for each of the resources, sorted by name. Raises QuantityError."""
    return tuple(_of_resource(spec, name) for name in sorted(names))


def _of_resource(spec: PodSpec, resource: str) -> ExtendedRequest:
    """Main containers and sidecars keep their devices; init containers run before and one after the other, so they
    use those of whoever comes later, and of what is missing then one request is enough for all."""
    containers = [*spec.init_containers, *spec.containers]
    first_main = len(spec.init_containers)
    lasting: dict[int, tuple[str, int]] = {}
    passing: list[tuple[int, Container, int]] = []
    for at, container in enumerate(containers):
        amount = _amount(container, resource)
        if not amount:
            continue
        if at >= first_main or container.restart_policy == "Always":
            lasting[at] = (_request_name(at, container, resource), amount)
        else:
            passing.append((at, container, amount))
    mappings = [DeviceMapping(containers[at].name, resource, name) for at, (name, _) in lasting.items()]
    extra: tuple[str, int] | None = None
    short: list[Container] = []
    for at, container, amount in passing:
        for later, (name, count) in lasting.items():
            if later >= at and amount > 0:
                mappings.append(DeviceMapping(container.name, resource, name))
                amount -= count
        if amount > 0:
            short.append(container)
            if extra is None or amount > extra[1]:
                extra = (_request_name(at, container, resource), amount)
    if extra is not None:
        mappings += [DeviceMapping(container.name, resource, extra[0]) for container in short]
    requests = [*lasting.values(), *([extra] if extra is not None else [])]
    return ExtendedRequest(resource, tuple(sorted(requests)), tuple(mappings))


def _amount(container: Container, resource: str) -> int:
    resources = container.resources
    if resources is None:
        return 0
    value = resources.requests.get(resource, resources.limits.get(resource))
    try:
        return max(0, parse_amount(resource, value)) if value is not None else 0
    except QuantityError:
        return 0  # the pod is held for it anyway


def _request_name(at: int, container: Container, resource: str) -> str:
    """As kube-scheduler names it, so that whoever reads claims finds what he knows."""
    assert container.resources is not None
    named = sorted({**container.resources.limits, **container.resources.requests})
    return f"container-{at}-request-{named.index(resource)}"


class ExtendedResources:
    """Who asks for extended resources, which device classes offer them, and which nodes offer them without devices.

    Of several classes that offer the same the newest counts, then the first by name, as in kube-scheduler.
    """

    def __init__(self) -> None:
        self._asked: dict[str, tuple[ExtendedRequest, ...]] = {}
        self._nodes_of: dict[str, str] = {}
        self._by_node: dict[str, set[str]] = {}
        self._by_resource: dict[str, set[str]] = {}
        self._kept: dict[bytes, tuple[ExtendedRequest, ...]] = {}
        self._kept_names: dict[Requests, tuple[str, ...]] = {}
        # resource -> class -> when it was created; class -> resource
        self._offers: dict[str, dict[str, str]] = {}
        self._named: dict[str, str] = {}
        # node -> the extended resources that its kubelet offers
        self._plugins: dict[str, frozenset[str]] = {}

    # pods

    def asks(self, uid: str) -> bool:
        return uid in self._asked

    def pod(self, pod: PodObject, spec: Pod) -> bool:
        """Whether what it asks for, or its node, is new."""
        names = () if spec.finished else self._names(spec.pod_class.requests)
        if not names:
            return self.pod_gone(spec.uid) if spec.uid in self._asked else False
        asked = self._requests(pod.spec, names)
        if self._asked.get(spec.uid) == asked and self._nodes_of.get(spec.uid) == spec.node:
            return False
        self.pod_gone(spec.uid)
        self._asked[spec.uid] = asked
        self._nodes_of[spec.uid] = spec.node
        if spec.node:
            self._by_node.setdefault(spec.node, set()).add(spec.uid)
        for name in names:
            self._by_resource.setdefault(name, set()).add(spec.uid)
        return True

    def pod_gone(self, uid: str) -> bool:
        asked = self._asked.pop(uid, None)
        if asked is None:
            return False
        _discard(self._by_node, self._nodes_of.pop(uid), uid)
        for each in asked:
            _discard(self._by_resource, each.resource, uid)
        return True

    def _names(self, requests: Requests) -> tuple[str, ...]:
        found = self._kept_names.get(requests)
        if found is None:
            if len(self._kept_names) >= _MOST_KEPT:
                self._kept_names.clear()
            found = self._kept_names[requests] = extended_names(requests)
        return found

    def _requests(self, spec: PodSpec, names: tuple[str, ...]) -> tuple[ExtendedRequest, ...]:
        """Pods of one template ask for the same, and share it."""
        template = _ENCODER.encode((names, spec.init_containers, spec.containers))
        found = self._kept.get(template)
        if found is None:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            found = self._kept[template] = extended_requests(spec, names)
        return found

    def needs(self, spec: Pod) -> tuple[tuple[ExtendedNeed, ...], Requests]:
        """What of a pod's amounts is met by devices, and these amounts. A pod on a node whose kubelet offers a
        resource has got it there."""
        asked = self._asked.get(spec.uid)
        if asked is None:
            return (), ()
        plain: frozenset[str] | None = None
        amounts: dict[str, int] = {}
        found = []
        for each in asked:
            device_class = self.device_class(each.resource)
            if device_class and plain is None:
                plain = self._plugins.get(spec.node, frozenset()) if spec.node else frozenset()
                amounts = dict(spec.pod_class.requests)
            if device_class and plain is not None and each.resource not in plain:
                requests = tuple(
                    DeviceRequest(name, (DeviceAsk(name, device_class, count=count),))
                    for name, count in each.requests
                )
                found.append(ExtendedNeed(each.resource, amounts[each.resource], requests, each.mappings))
        return tuple(found), tuple((need.resource, need.amount) for need in found)

    # nodes

    def node(self, node: NodeObject) -> set[str]:
        """The pods that are to be shown anew."""
        name = node.metadata.name
        offered = frozenset(
            resource
            for resource, value in node.status.allocatable.items()
            if is_extended(resource) and str(value) not in ("0", "")
        )
        if offered == self._plugins.get(name, frozenset()):
            return set()
        if offered:
            self._plugins[name] = offered
        else:
            del self._plugins[name]
        return set(self._by_node.get(name, ()))

    def node_gone(self, name: str) -> set[str]:
        self._plugins.pop(name, None)
        return set(self._by_node.get(name, ()))

    # device classes

    def device_class(self, resource: str) -> str:
        """The class that offers it, "" for none."""
        offers = self._offers.get(resource)
        if not offers:
            return ""
        newest = max(offers.values())
        return min(name for name, created in offers.items() if created == newest)

    def offered(self, device_class: str, resource: str, created: str) -> set[str]:
        """A class came or changed; the pods that are to be shown anew."""
        touched = self.withdrawn(device_class) if self._named.get(device_class, resource) != resource else set()
        self._named[device_class] = resource
        for name in (f"{IMPLICIT}{device_class}", resource):
            before = self.device_class(name)
            if name:
                self._offers.setdefault(name, {})[device_class] = created
            if self.device_class(name) != before:
                touched |= self._by_resource.get(name, set())
        return touched

    def withdrawn(self, device_class: str) -> set[str]:
        """A class is gone; the pods that are to be shown anew."""
        resource, touched = self._named.pop(device_class, ""), set[str]()
        for name in (f"{IMPLICIT}{device_class}", resource):
            if self._offers.get(name, {}).pop(device_class, None) is not None:
                touched |= self._by_resource.get(name, set())
                if not self._offers[name]:
                    del self._offers[name]
        return touched


def _discard(index: dict[str, set[str]], key: str, uid: str) -> None:
    uids = index.get(key)
    if uids is not None:
        uids.discard(uid)
        if not uids:
            del index[key]

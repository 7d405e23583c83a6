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


class ExtendedRequest(msgspec.Struct, frozen=True, cache_hash=True):
    """What a pod asks for of one extended resource: the names and counts of device requests that would meet it, and
    which containers use them."""

    resource: str
    requests: tuple[tuple[str, int], ...]
    mappings: tuple[DeviceMapping, ...]


_NOTHING: tuple[tuple[ExtendedRequest, ...], str] = ((), "")


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


class _AskIndex:
    """The uids of the pods that ask for extended resources, by their node and by resource."""

    def __init__(self) -> None:
        self.by_node: dict[str, set[str]] = {}
        self.by_resource: dict[str, set[str]] = {}

    def add(self, uid: str, asked: tuple[ExtendedRequest, ...], node: str) -> None:
        if node:
            self.by_node.setdefault(node, set()).add(uid)
        for each in asked:
            self.by_resource.setdefault(each.resource, set()).add(uid)

    def remove(self, uid: str, asked: tuple[ExtendedRequest, ...], node: str) -> None:
        _discard(self.by_node, node, uid)
        for each in asked:
            _discard(self.by_resource, each.resource, uid)


class ExtendedResources:
    """Who asks for extended resources, which device classes offer them, and which nodes offer them without devices.

    Of several classes that offer the same the newest counts, then the first by name, as in kube-scheduler.
    """

    def __init__(self) -> None:
        # By uid: what a pod asks for, and its node.
        self._asked: dict[str, tuple[tuple[ExtendedRequest, ...], str]] = {}
        # Who asks by node and by resource; None until somebody offers any of it, so that nobody pays for it before.
        self._index: _AskIndex | None = None
        self._kept: dict[bytes, tuple[ExtendedRequest, ...]] = {}
        # resource -> class -> when it was created; class -> resource
        self._offers: dict[str, dict[str, str]] = {}
        self._named: dict[str, str] = {}
        # node -> the extended resources that its kubelet offers
        self._plugins: dict[str, frozenset[str]] = {}

    # pods

    @property
    def any_offered(self) -> bool:
        """Whether there is any device class."""
        return bool(self._named)

    def pod(self, pod: PodObject, spec: Pod) -> bool:
        """Whether what it asks for, or its node, is new, and that may make a difference."""
        asked = () if spec.finished else self._requests(pod, spec)
        last = self._asked.get(spec.uid)
        if not asked:
            return last is not None and self.pod_gone(spec.uid)
        if last is not None:
            if last[0] == asked and last[1] == spec.node:
                return False
            self.pod_gone(spec.uid)
        self._asked[spec.uid] = asked, spec.node
        if self._index is None:
            return False
        self._index.add(spec.uid, asked, spec.node)
        return True

    def pod_gone(self, uid: str) -> bool:
        last = self._asked.pop(uid, None)
        if last is None or self._index is None:
            return False
        self._index.remove(uid, *last)
        return True

    def _requests(self, pod: PodObject, spec: Pod) -> tuple[ExtendedRequest, ...]:
        """Pods of one template ask for the same, and share it."""
        found = self._kept.get(pod.template)
        if found is None:
            found = extended_requests(pod.spec, extended_names(spec.pod_class.requests))
            if pod.template:
                if len(self._kept) >= _MOST_KEPT:
                    self._kept.clear()
                self._kept[pod.template] = found
        return found

    def needs(self, spec: Pod) -> tuple[tuple[ExtendedNeed, ...], Requests]:
        """What of a pod's amounts is met by devices, and these amounts. A pod on a node whose kubelet offers a
        resource has got it there."""
        asked, _ = self._asked.get(spec.uid, _NOTHING)
        if not asked:
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
        return self._on(name)

    def node_gone(self, name: str) -> set[str]:
        self._plugins.pop(name, None)
        return self._on(name)

    def _on(self, node: str) -> set[str]:
        return set(self._index.by_node.get(node, ())) if self._index is not None else set()

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
        if self._index is None:
            self._index = _AskIndex()
            for uid, (asked, node) in self._asked.items():
                self._index.add(uid, asked, node)
        touched = self.withdrawn(device_class) if self._named.get(device_class, resource) != resource else set()
        self._named[device_class] = resource
        for name in (f"{IMPLICIT}{device_class}", resource):
            before = self.device_class(name)
            if name:
                self._offers.setdefault(name, {})[device_class] = created
            if self.device_class(name) != before:
                touched |= self._index.by_resource.get(name, set())
        return touched

    def withdrawn(self, device_class: str) -> set[str]:
        """A class is gone; the pods that are to be shown anew."""
        resource, touched = self._named.pop(device_class, ""), set[str]()
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

"""NUMA nodes: Volcano's Numatopology objects, and the pods that get whole CPUs of their own."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from phalanx.dialects.core import Container, PodSpec
from phalanx.dialects.enricher import ObjectChanges, PodEnricher, no_changes
from phalanx.dialects.kinds import ServedKind, WantedKind
from phalanx.dialects.reader import MAX_WHOLE, Document, is_whole
from phalanx.model.devices.numa import AS_THE_NODE, NumaPolicy, NumaTopology, NumaTopologyGone
from phalanx.model.events import AllocatorFact
from phalanx.model.gang import Gang
from phalanx.model.pod import Pod, PodClass
from phalanx.model.text.decoding import parse_whole
from phalanx.model.text.quantity import QuantityError, parse_quantity

POLICY = "volcano.sh/numa-topology-policy"
TOPOLOGIES = WantedKind("nodeinfo.volcano.sh", "numatopologies", "Numatopology", ("v1alpha1",))

_ALLOCATOR = "numa"
_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_LAST_CPU = 99_999
# Entries of one set of CPUs; each may be a range of all of them.
_MAX_RANGES = 1000
_MOST_NUMA_NODES = 8
_POLICIES = frozenset(policy.value for policy in NumaPolicy)
# Pairs of a class and its twin that minds the policies of kubelets; beyond this many the cache starts anew.
_CACHE_SIZE = 10_000


def numa_policy(annotations: Mapping[str, str]) -> str:
    """The policy that a pod asks for, "" if none; one that does not exist is none, as in Volcano."""
    stated = annotations.get(POLICY, "")
    return stated if stated in (NumaPolicy.BEST_EFFORT, NumaPolicy.RESTRICTED, NumaPolicy.SINGLE) else ""


def whole_cpus(spec: PodSpec) -> tuple[int, ...]:
    """The CPUs of each container that gets some of its own: whole ones, in a pod of QoS class Guaranteed."""
    if not spec.containers or not all(map(_is_guaranteed, (*spec.containers, *spec.init_containers))):
        return ()
    counts = (_thousandths(container, "cpu") for container in spec.containers)
    return tuple(count // 1000 for count in counts if count is not None and count and count % 1000 == 0)


def _is_guaranteed(container: Container) -> bool:
    for name in ("cpu", "memory"):
        resources = container.resources
        if resources is None or name not in resources.limits:
            return False
        limit = _read(resources.limits[name])
        if not limit or _read(resources.requests.get(name, resources.limits[name])) != limit:
            return False
    return True


def _thousandths(container: Container, name: str) -> int | None:
    return _read(container.resources.limits.get(name)) if container.resources is not None else None


def _read(value: object) -> int | None:
    """In thousandths; None for what is not there or cannot be read."""
    try:
        return parse_quantity(value, 1000) if value is not None else None
    except QuantityError:
        return None


class NumaEnricher(PodEnricher):
    """Tells the allocator of NUMA nodes what changes; and as long as some kubelet insists on a policy, lets it mind
    every pod that gets whole CPUs."""

    kinds = (TOPOLOGIES,)

    def __init__(self) -> None:
        self._topologies: dict[str, NumaTopology] = {}
        self._insisting = 0
        self._twins: dict[PodClass, PodClass] = {}

    @property
    def idle(self) -> bool:
        return not self._insisting

    def enriched(self, spec: Pod, gang: Gang | None) -> Pod:
        pod_class = spec.pod_class
        if not self._insisting or not _leaves_it_to_the_node(pod_class):
            return spec
        twin = self._twins.get(pod_class)
        if twin is None:
            if len(self._twins) >= _CACHE_SIZE:
                self._twins.clear()
            twin = self._twins[pod_class] = msgspec.structs.replace(pod_class, numa=AS_THE_NODE)
        return msgspec.structs.replace(spec, pod_class=twin)

    def updated(self, kind: ServedKind, document: Document) -> ObjectChanges:
        name = str(document["metadata"]["name"])
        topology = read_topology(name, document.get("spec"))
        return self._replace(name, topology)

    def removed(self, kind: ServedKind, namespace: str, name: str) -> ObjectChanges:
        return self._replace(name, None)

    def unserved(self, kind: ServedKind) -> ObjectChanges:
        insisting = self._insisting
        news = [self._replace(name, None) for name in sorted(self._topologies)]
        return [event for events, _ in news for event in events], _anew if insisting else frozenset()

    def _replace(self, node: str, topology: NumaTopology | None) -> ObjectChanges:
        last = self._topologies.pop(node, None)
        if topology is not None:
            self._topologies[node] = topology
        if topology == last:
            return no_changes()
        before = self._insisting
        self._insisting += _insists(topology) - _insists(last)
        turned = bool(before) != bool(self._insisting)
        facts = [AllocatorFact(_ALLOCATOR, topology or NumaTopologyGone(node))]
        return facts, _anew if turned else frozenset()


def _anew(pod: Pod) -> bool:
    """Whether it makes a difference to a pod that some kubelet insists on a policy."""
    return _leaves_it_to_the_node(pod.pod_class)


def _leaves_it_to_the_node(pod_class: PodClass) -> bool:
    """Whether pods of a class get whole CPUs and do not say from how many NUMA nodes."""
    return bool(pod_class.cpus) and not pod_class.numa


def read_topology(node: str, spec: Any) -> NumaTopology | None:
    """None where there is nothing to go by."""
    if not isinstance(spec, Mapping):
        return None
    places = _cpu_details(spec.get("cpuDetail"))
    zones = sorted({zone for _, _, zone in places.values()})
    if not places or len(zones) > _MOST_NUMA_NODES:
        return None
    policies = spec.get("policies")
    stated = policies if isinstance(policies, Mapping) else {}
    free = _cpuset(_entry(spec.get("numares"), "cpu", "allocatable")) - _reserved(spec.get("resReserved"), places)
    counts = {zone: sum(1 for place in places.values() if place[2] == zone) for zone in zones}
    left = {zone: sum(1 for cpu in free if cpu in places and places[cpu][2] == zone) for zone in zones}
    policy = str(stated.get("TopologyManagerPolicy") or "none")
    return NumaTopology(
        node,
        NumaPolicy(policy) if policy in _POLICIES else NumaPolicy.NONE,
        stated.get("CPUManagerPolicy") == "static",
        tuple(counts[zone] for zone in zones),
        tuple(left[zone] for zone in zones),
        _assigned(spec.get("podAllocations")),
    )


def _insists(topology: NumaTopology | None) -> int:
    return 1 if topology is not None and topology.pinned and topology.policy is not NumaPolicy.NONE else 0


def _cpu_details(stated: Any) -> dict[int, tuple[int, int, int]]:
    """(socket, core, NUMA node) by CPU."""
    found = {}
    for cpu, place in stated.items() if isinstance(stated, Mapping) else ():
        parts = [place.get(name, 0) for name in ("socket", "core", "numa")] if isinstance(place, Mapping) else []
        number = parse_whole(str(cpu), 0, _LAST_CPU)
        if (
            number is not None
            and len(parts) == 3
            and all(is_whole(part) and 0 <= part <= MAX_WHOLE for part in parts)
        ):
            found[number] = (parts[0], parts[1], parts[2])
    return found


def _reserved(stated: Any, places: Mapping[int, tuple[int, int, int]]) -> set[int]:
    """As many CPUs as the kubelet keeps for itself, which are the first of the first socket; parts of one count as
    one."""
    thousandths = _read(stated.get("cpu")) if isinstance(stated, Mapping) else None
    count = math.ceil((thousandths or 0) / 1000)
    return set(sorted(places, key=lambda cpu: (*places[cpu][:2], cpu))[:count])


def _cpuset(text: str) -> set[int]:
    """`0-3,5`."""
    cpus: set[int] = set()
    for part in text.split(",", _MAX_RANGES)[:_MAX_RANGES]:
        found = _RANGE.fullmatch(part.strip())
        if found is not None:
            cpus.update(range(int(found[1]), int(found[2] or found[1]) + 1))
    return cpus


def _entry(stated: Any, *path: str) -> str:
    for key in path:
        stated = stated.get(key) if isinstance(stated, Mapping) else None
    return stated if isinstance(stated, str) else ""


def _assigned(stated: Any) -> frozenset[str]:
    names: set[str] = set()
    for entry in stated if isinstance(stated, list) else ():
        if isinstance(entry, Mapping):
            names.add(str(entry.get("uid") or ""))
            names.add(f"{entry.get('namespace') or ''}/{entry.get('name') or ''}")
    return frozenset(names - {"", "/"})

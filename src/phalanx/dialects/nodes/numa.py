"""NUMA nodes: Volcano's Numatopology objects, and the pods with exclusive CPUs."""

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
# Limit for the entries of one CPU set, each of which can be a range of all CPUs.
_MAX_RANGES = 1000
_MOST_NUMA_NODES = 8
_POLICIES = frozenset(policy.value for policy in NumaPolicy)
# Limit for pairs of a class and its counterpart under the node's policy; a cache with more entries is cleared.
_CACHE_SIZE = 10_000


def numa_policy(annotations: Mapping[str, str]) -> str:
    """Return the NUMA policy that a pod requests by annotation; "" for none. An unknown policy counts as none, as
    in Volcano."""
    stated = annotations.get(POLICY, "")
    return stated if stated in (NumaPolicy.BEST_EFFORT, NumaPolicy.RESTRICTED, NumaPolicy.SINGLE) else ""


def whole_cpus(spec: PodSpec) -> tuple[int, ...]:
    """Return the exclusive CPUs of each container: whole CPUs, in a pod of QoS class Guaranteed."""
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
    """Parse a CPU quantity into thousandths; None for a missing or unreadable one."""
    try:
        return parse_quantity(value, 1000) if value is not None else None
    except QuantityError:
        return None


class NumaEnricher(PodEnricher):
    """Passes NUMA topologies to their allocator. While any kubelet enforces a policy, all pods with exclusive
    CPUs are placed under the node's policy."""

    kinds = (TOPOLOGIES,)

    def __init__(self) -> None:
        self._topologies: dict[str, NumaTopology] = {}
        self._enforcing_nodes = 0
        self._twins: dict[PodClass, PodClass] = {}

    @property
    def idle(self) -> bool:
        return not self._enforcing_nodes

    def enriched(self, spec: Pod, gang: Gang | None) -> Pod:
        pod_class = spec.pod_class
        if not self._enforcing_nodes or not _uses_node_policy(pod_class):
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
        was_enforced = self._enforcing_nodes
        changes = [self._replace(name, None) for name in sorted(self._topologies)]
        return [
            event for events, _ in changes for event in events
        ], _has_default_policy if was_enforced else frozenset()

    def _replace(self, node: str, topology: NumaTopology | None) -> ObjectChanges:
        last = self._topologies.pop(node, None)
        if topology is not None:
            self._topologies[node] = topology
        if topology == last:
            return no_changes()
        before = self._enforcing_nodes
        self._enforcing_nodes += _enforces_policy(topology) - _enforces_policy(last)
        enforcement_changed = bool(before) != bool(self._enforcing_nodes)
        facts = [AllocatorFact(_ALLOCATOR, topology or NumaTopologyGone(node))]
        return facts, _has_default_policy if enforcement_changed else frozenset()


def _has_default_policy(pod: Pod) -> bool:
    """Return whether a change of the kubelets' NUMA policies affects the pod."""
    return _uses_node_policy(pod.pod_class)


def _uses_node_policy(pod_class: PodClass) -> bool:
    """Return whether pods of a class have exclusive CPUs and request no NUMA policy themselves."""
    return bool(pod_class.cpus) and not pod_class.numa


def read_topology(node: str, spec: Any) -> NumaTopology | None:
    """Decode the NUMA topology of a node; None without usable content."""
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
    free_counts = {zone: sum(1 for cpu in free if cpu in places and places[cpu][2] == zone) for zone in zones}
    policy = str(stated.get("TopologyManagerPolicy") or "none")
    return NumaTopology(
        node,
        NumaPolicy(policy) if policy in _POLICIES else NumaPolicy.NONE,
        stated.get("CPUManagerPolicy") == "static",
        tuple(counts[zone] for zone in zones),
        tuple(free_counts[zone] for zone in zones),
        _assigned(spec.get("podAllocations")),
    )


def _enforces_policy(topology: NumaTopology | None) -> int:
    return 1 if topology is not None and topology.pinned and topology.policy is not NumaPolicy.NONE else 0


def _cpu_details(stated: Any) -> dict[int, tuple[int, int, int]]:
    """Return the (socket, core, NUMA node) of each CPU by its number."""
    places = {}
    for cpu, place in stated.items() if isinstance(stated, Mapping) else ():
        parts = [place.get(name, 0) for name in ("socket", "core", "numa")] if isinstance(place, Mapping) else []
        number = parse_whole(str(cpu), 0, _LAST_CPU)
        if (
            number is not None
            and len(parts) == 3
            and all(is_whole(part) and 0 <= part <= MAX_WHOLE for part in parts)
        ):
            places[number] = (parts[0], parts[1], parts[2])
    return places


def _reserved(stated: Any, places: Mapping[int, tuple[int, int, int]]) -> set[int]:
    """Return the CPUs that the kubelet reserves: the first of the first socket, rounded up to whole CPUs."""
    thousandths = _read(stated.get("cpu")) if isinstance(stated, Mapping) else None
    count = math.ceil((thousandths or 0) / 1000)
    return set(sorted(places, key=lambda cpu: (*places[cpu][:2], cpu))[:count])


def _cpuset(text: str) -> set[int]:
    """Parse a CPU set such as `0-3,5`."""
    cpus: set[int] = set()
    for part in text.split(",", _MAX_RANGES)[:_MAX_RANGES]:
        match = _RANGE.fullmatch(part.strip())
        if match is not None:
            cpus.update(range(int(match[1]), int(match[2] or match[1]) + 1))
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

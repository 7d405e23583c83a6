"""Construction of a pod's `PodClass` from its spec: all fields that determine where it can run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from phalanx.dialects.core import PodSpec, SelectorRequirement, SelectorTerm
from phalanx.dialects.lenient import DecodingFault
from phalanx.dialects.nodes.images import images_of
from phalanx.dialects.nodes.numa import whole_cpus
from phalanx.dialects.pods.requests import StatedRequests
from phalanx.model.devices.cards import DeviceNeed
from phalanx.model.peers import NO_PEERS, Peers
from phalanx.model.pod import PodClass
from phalanx.model.selectors import HostPort, NodeSelectorTerm, PreferredTerm, Requirement, Toleration, parse_int64
from phalanx.model.text.decoding import decode_json, quoted

SCORING_TYPE = "volcano.sh/resource-strategy-scoring-type"
SCORING_WEIGHT = "volcano.sh/resource-strategy-weight"
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_SCORING_TYPES = ("LeastAllocated", "MostAllocated")


def pod_class_of(
    spec: PodSpec,
    demand: StatedRequests,
    strategy: str = "",
    revocable: bool | None = None,
    devices: DeviceNeed | None = None,
    peers: Peers = NO_PEERS,
    numa: str = "",
) -> PodClass:
    node_affinity = spec.affinity.node_affinity if spec.affinity else None
    required = node_affinity.required if node_affinity else None
    preferred = node_affinity.preferred if node_affinity else ()
    return PodClass(
        requests=demand.requests,
        node_selector=tuple(sorted(spec.node_selector.items())),
        affinity=None if required is None else tuple(selector_term(term) for term in required.node_selector_terms),
        preferred=tuple(
            # The API server limits weights to 1 to 100.
            PreferredTerm(min(entry.weight, 100), selector_term(entry.preference))
            for entry in preferred
            if entry.weight > 0 and entry.preference is not None
        ),
        tolerations=tuple(
            Toleration(entry.key, entry.operator or "Equal", entry.value, entry.effect)
            for entry in spec.tolerations
        ),
        host_ports=_host_ports(spec),
        scored_cpu=demand.scored_cpu,
        scored_memory=demand.scored_memory,
        strategy=strategy,
        revocable=revocable,
        peers=peers,
        devices=devices,
        numa=numa,
        cpus=whole_cpus(spec),
        images=images_of(spec),
        image_volumes=sum(volume.image is not None for volume in spec.volumes),
        features=tuple(sorted(set(_features(spec)))),
    )


def scoring_strategy(annotations: Mapping[str, str]) -> tuple[str, tuple[DecodingFault, ...]]:
    """Return the per-pod scoring override as canonical JSON `{"type": ..., "weight": {resource: n}}`; "" without
    one.

    It is only a preference, so an invalid one is reported and ignored, and the pod is scored with the defaults.
    """
    kind, weights = annotations.get(SCORING_TYPE, ""), annotations.get(SCORING_WEIGHT, "")
    if not kind and not weights:
        return "", ()
    faults: list[DecodingFault] = []
    if kind and kind not in _SCORING_TYPES:
        faults.append(
            DecodingFault(
                f"metadata.annotations[{SCORING_TYPE}]",
                f"{quoted(kind)} is not LeastAllocated or MostAllocated; the value is ignored",
            )
        )
    read: dict[str, int] = {}
    if weights:
        try:
            read = decode_json(weights, dict[str, int])
        except msgspec.DecodeError:
            faults.append(
                DecodingFault(
                    f"metadata.annotations[{SCORING_WEIGHT}]",
                    f'{quoted(weights)} is not JSON such as {{"cpu": 1}}; the value is ignored',
                )
            )
    if faults:
        return "", tuple(faults)
    strategy = {"type": kind, "weight": dict(sorted(read.items()))}
    return msgspec.json.encode(strategy).decode(), ()


def selector_term(term: SelectorTerm) -> NodeSelectorTerm:
    reasons = [*map(_expression_fault, term.match_expressions), *map(_field_fault, term.match_fields)]
    return NodeSelectorTerm(
        expressions=tuple(map(_requirement, term.match_expressions)),
        fields=tuple(map(_requirement, term.match_fields)),
        invalid="; ".join(filter(None, reasons)),
    )


def _requirement(entry: SelectorRequirement) -> Requirement:
    return Requirement(entry.key, entry.operator, tuple(entry.values))


def _expression_fault(entry: SelectorRequirement) -> str:
    match entry.operator:
        case "In" | "NotIn":
            odd = [value for value in entry.values if len(value) > 63 or not _LABEL_VALUE.fullmatch(value)]
            if odd:
                return f"{entry.key}: {quoted(odd[0])} is not a valid label value"
            return "" if entry.values else f"{entry.key}: {entry.operator} needs values"
        case "Exists" | "DoesNotExist":
            return f"{entry.key}: {entry.operator} takes no values" if entry.values else ""
        case "Gt" | "Lt":
            if len(entry.values) == 1 and _is_int64(entry.values[0]):
                return ""
            return f"{entry.key}: {entry.operator} needs one whole number"
    return f"{entry.key}: unknown operator {quoted(entry.operator)}"


def _field_fault(entry: SelectorRequirement) -> str:
    if entry.key != "metadata.name":
        return f"{entry.key}: only the field metadata.name can be matched"
    if entry.operator not in ("In", "NotIn"):
        return f"metadata.name: operator {quoted(entry.operator)} is not In or NotIn"
    return "" if len(entry.values) == 1 else f"metadata.name: {entry.operator} needs one value"


def _is_int64(text: str) -> bool:
    return parse_int64(text) is not None


def _host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """Return the host ports of a pod's main containers and sidecars; on the host network every port is a host
    port."""
    sidecars = [container for container in spec.init_containers if container.restart_policy == "Always"]
    ports = set()
    for container in (*spec.containers, *sidecars):
        for port in container.ports:
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number > 0:
                ports.add(HostPort(number, port.protocol or "TCP", port.host_ip))
    return tuple(sorted(ports, key=lambda port: (port.port, port.protocol, port.ip)))


def _features(spec: PodSpec) -> Iterator[str]:
    """Yield the features that a node must declare to run the pod (NodeDeclaredFeatures of kube-scheduler 1.36)."""
    if spec.host_network and spec.host_users is False:
        yield "UserNamespacesHostNetworkSupport"
    for container in (*spec.containers, *spec.init_containers):
        if any(rule.action == "RestartAllContainers" for rule in container.restart_policy_rules):
            yield "RestartAllContainersOnContainerExits"

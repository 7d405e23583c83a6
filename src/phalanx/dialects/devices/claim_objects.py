"""Decoding of ResourceClaims, DeviceClasses and ResourceSlices; an unreadable object affects only itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from phalanx.dialects.core import NodeSelector
from phalanx.dialects.devices.claim_wire import (
    AccessWire,
    AllocationWire,
    AskWire,
    AttributeWire,
    ClaimSpecWire,
    ClaimWire,
    ClassWire,
    DeviceBodyWire,
    DeviceCapacityWire,
    DeviceWire,
    RequestWire,
    SelectorWire,
    SliceWire,
    TaintRuleWire,
)
from phalanx.dialects.pods.pod_class import selector_term
from phalanx.dialects.reader import Document
from phalanx.model.devices.claims import (
    AllocatedDevice,
    Claim,
    ClaimResult,
    ClaimSpec,
    ConsumptionPolicy,
    Device,
    DeviceAsk,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClass,
    DeviceConfig,
    DeviceConstraint,
    DeviceRequest,
    DeviceSlice,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintSelector,
    DeviceToleration,
    NodeAccess,
)
from phalanx.model.selectors import NodeSelectorTerm

W = TypeVar("W")

# Annotation that schedulers write on claims for extended resources.
EXTENDED = "resource.kubernetes.io/extended-resource-claim"
_SCHEDULING = "scheduling.k8s.io/"


class IllegibleError(ValueError):
    """Content of a resource.k8s.io object that this version does not support."""


def read_claim(document: Document) -> Claim:
    """Decode a ResourceClaim; an unreadable one still holds its allocated devices, as far as these are readable."""
    metadata = document["metadata"]
    namespace, name, uid = (str(metadata.get(field) or "") for field in ("namespace", "name", "uid"))
    try:
        wire = msgspec.convert(document, ClaimWire)
    except msgspec.ValidationError as error:
        allocation = _allocation_of(document)
        return Claim(namespace, name, uid, ClaimSpec(fault=str(error)), allocation, problem=str(error))
    owner = next((owner for owner in wire.metadata.owner_references if owner.controller), None)
    grouped = owner is not None and owner.kind == "PodGroup" and owner.api_version.startswith(_SCHEDULING)
    return Claim(
        namespace=namespace,
        name=name,
        uid=uid,
        spec=read_spec(wire.spec),
        allocation=_allocation_of(document),
        consumers=tuple(consumer.uid for consumer in wire.status.reserved_for or ()),
        owner=owner.uid if owner else "",
        group=owner.name if owner and grouped else "",
        terminating=wire.metadata.deletion_timestamp is not None,
        extended=(metadata.get("annotations") or {}).get(EXTENDED) == "true",
    )


def read_spec(wire: ClaimSpecWire) -> ClaimSpec:
    try:
        return ClaimSpec(
            requests=tuple(_request(request) for request in wire.devices.requests or ()),
            constraints=tuple(
                DeviceConstraint(
                    tuple(constraint.requests or ()),
                    constraint.match_attribute or "",
                    constraint.distinct_attribute or "",
                )
                for constraint in wire.devices.constraints or ()
                if _known(constraint.match_attribute or constraint.distinct_attribute, "constraint")
            ),
            config=_configs(wire.devices.config),
        )
    except IllegibleError as error:
        return ClaimSpec(fault=str(error))


def read_device_class(document: Document) -> DeviceClass:
    name = str(document["metadata"]["name"])
    try:
        spec = msgspec.convert(document, ClassWire).spec
        return DeviceClass(
            name, _selectors(spec.selectors), _configs(spec.config), extended=spec.extended_resource_name or ""
        )
    except (msgspec.ValidationError, IllegibleError) as error:
        return DeviceClass(name, problem=str(error))


def read_slice(document: Document) -> DeviceSlice:
    """Decode a ResourceSlice; an unreadable one makes its device pool unusable, if the pool's name is readable."""
    name = str(document["metadata"]["name"])
    try:
        spec = msgspec.convert(document, SliceWire).spec
    except msgspec.ValidationError as error:
        return _unreadable(name, document, str(error))
    if spec.pool is None or not spec.driver:
        return DeviceSlice(name, spec.driver, "", 0, 1, problem="no pool")
    return DeviceSlice(
        name=name,
        driver=spec.driver,
        pool=spec.pool.name,
        generation=spec.pool.generation,
        parts=spec.pool.resource_slice_count,
        access=None if spec.per_device_node_selection else _access(spec),
        devices=tuple(_device(device, bool(spec.per_device_node_selection)) for device in spec.devices or ()),
        counters=tuple(
            (counter_set.name, name, counter.value)
            for counter_set in spec.shared_counters or ()
            for name, counter in sorted((counter_set.counters or {}).items())
        ),
    )


def read_taint_rule(document: Document) -> DeviceTaintRule:
    """Read a rule; one with unreadable content taints no device, as in the API server, which rejects it."""
    name = str(document["metadata"]["name"])
    try:
        spec = msgspec.convert(document, TaintRuleWire).spec
        selector = spec.device_selector
        selected = (
            DeviceTaintSelector(
                selector.driver,
                selector.pool,
                selector.device,
                selector.device_class_name,
                _selectors(selector.selectors),
            )
            if selector is not None
            else None
        )
    except (msgspec.ValidationError, IllegibleError):
        return DeviceTaintRule(name, DeviceTaint(""))
    return DeviceTaintRule(name, DeviceTaint(spec.taint.key, spec.taint.value or "", spec.taint.effect), selected)


def _unreadable(name: str, document: Document, error: str) -> DeviceSlice:
    spec = document.get("spec")
    spec = spec if isinstance(spec, Mapping) else {}
    pool = spec.get("pool")
    pool = pool if isinstance(pool, Mapping) else {}
    generation, node = pool.get("generation"), spec.get("nodeName")
    return DeviceSlice(
        name,
        str(spec.get("driver") or ""),
        str(pool.get("name") or ""),
        generation if isinstance(generation, int) else 0,
        1,
        access=NodeAccess(node=node) if isinstance(node, str) and node else NodeAccess(all=True),
        problem=error,
    )


def _request(wire: RequestWire) -> DeviceRequest:
    if wire.first_available:
        return DeviceRequest(
            wire.name, tuple(_ask(ask, ask.name) for ask in wire.first_available), prioritised=True
        )
    exactly = wire.exactly or wire
    return DeviceRequest(wire.name, (_ask(exactly, wire.name),))


def _ask(wire: AskWire, name: str) -> DeviceAsk:
    _known(wire.device_class_name, f"request {name}")
    mode = wire.allocation_mode or "ExactCount"
    if mode not in ("ExactCount", "All"):
        raise IllegibleError(f"request {name}: unsupported count mode {mode}")
    return DeviceAsk(
        name=name,
        device_class=wire.device_class_name,
        selectors=_selectors(wire.selectors),
        count=0 if mode == "All" else max(1, wire.count),
        admin=bool(wire.admin_access),
        tolerations=tuple(
            DeviceToleration(
                entry.key or "",
                entry.operator or "Equal",
                entry.value or "",
                entry.effect or "",
                entry.toleration_seconds,
            )
            for entry in wire.tolerations or ()
        ),
        capacity=tuple(sorted((wire.capacity.requests or {}).items())) if wire.capacity else (),
    )


def _known(value: object, subject: str) -> bool:
    if not value:
        raise IllegibleError(f"{subject}: this version of Phalanx does not support its kind")
    return True


def _selectors(wires: Iterable[SelectorWire] | None) -> tuple[str, ...]:
    expressions = []
    for number, wire in enumerate(wires or ()):
        _known(wire.cel, f"selector #{number}")
        assert wire.cel is not None
        expressions.append(wire.cel.expression)
    return tuple(expressions)


def _configs(wires: Iterable[Mapping[str, Any]] | None) -> tuple[DeviceConfig, ...]:
    return tuple(
        DeviceConfig(
            tuple(map(str, wire.get("requests") or ())),
            msgspec.json.encode(
                {key: value for key, value in wire.items() if key != "requests"}, order="sorted"
            ).decode(),
        )
        for wire in wires or ()
    )


def _allocation_of(document: Document) -> ClaimResult | None:
    status = document.get("status")
    body = status.get("allocation") if isinstance(status, Mapping) else None
    if not body:
        return None
    try:
        wire = msgspec.convert(body, AllocationWire)
    except msgspec.ValidationError:
        return ClaimResult(nodes=(), document="")
    return ClaimResult(
        devices=tuple(
            AllocatedDevice(
                (result.driver, result.pool, result.device),
                admin=bool(result.admin_access),
                shared=result.share_id is not None,
                consumed=tuple(sorted((result.consumed_capacity or {}).items())),
            )
            for result in wire.devices.results or ()
        ),
        nodes=_terms(wire.node_selector),
        conditions=any(result.binding_conditions for result in wire.devices.results or ()),
    )


def _access(wire: AccessWire) -> NodeAccess:
    selector = wire.node_selector
    return NodeAccess(
        node=wire.node_name or "",
        terms=_terms(selector),
        all=bool(wire.all_nodes),
        selector="" if selector is None else msgspec.json.encode(selector).decode(),
    )


def _terms(selector: NodeSelector | None) -> tuple[NodeSelectorTerm, ...] | None:
    return None if selector is None else tuple(map(selector_term, selector.node_selector_terms))


def _device(wire: DeviceWire, own_access: bool) -> Device:
    body: DeviceBodyWire = wire.basic or wire
    return Device(
        name=wire.name,
        attributes=tuple(
            (name, _attribute(attribute)) for name, attribute in sorted((body.attributes or {}).items())
        ),
        capacity=tuple((name, _capacity(capacity)) for name, capacity in sorted((body.capacity or {}).items())),
        counters=tuple(
            (counter_set.counter_set, name, counter.value)
            for counter_set in body.consumes_counters or ()
            for name, counter in sorted((counter_set.counters or {}).items())
        ),
        taints=tuple(DeviceTaint(taint.key, taint.value or "", taint.effect) for taint in body.taints or ()),
        shareable=bool(body.allow_multiple_allocations),
        access=_access(body) if own_access else None,
        binds_to_node=bool(body.binds_to_node),
        conditions=tuple(body.binding_conditions or ()),
        failures=tuple(body.binding_failure_conditions or ()),
    )


def _attribute(wire: AttributeWire) -> DeviceAttribute:
    for kind in ("int", "bool", "string", "version", "ints", "bools", "strings", "versions"):
        value = getattr(wire, kind)
        if value is not None:
            return DeviceAttribute(kind, tuple(value) if isinstance(value, list) else value)
    return DeviceAttribute("string", "")


def _capacity(wire: DeviceCapacityWire) -> DeviceCapacity:
    policy = wire.request_policy
    if policy is None:
        return DeviceCapacity(wire.value)
    limits = policy.valid_range
    return DeviceCapacity(
        wire.value,
        ConsumptionPolicy(
            default=policy.default or "",
            values=tuple(policy.valid_values or ()),
            low=(limits.min or "") if limits else "",
            high=(limits.max or "") if limits else "",
            step=(limits.step or "") if limits else "",
        ),
    )

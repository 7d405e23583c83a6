"""Allocations of ResourceClaims in the wire format of `ResourceClaim.status.allocation` (resource.k8s.io/v1)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from phalanx.cluster.dra.question import ClaimPart, ClaimQuestion
from phalanx.cluster.dra.solver import Pick, Picks
from phalanx.cluster.dra.supply import Offer
from phalanx.model.devices.claims import AllocatedDevice, ClaimResult, DeviceConfig, DeviceToleration
from phalanx.model.selectors import NodeSelectorTerm, Requirement
from phalanx.model.text.decoding import decode_json


def allocations(
    question: ClaimQuestion, picks: Picks, offers: Sequence[Offer], node: str, claims: Sequence[str]
) -> tuple[ClaimResult, ...]:
    """Return the allocation of each claim of the question. `offers` are the devices by their positions on the
    shelf, `claims` the uids of the claims (they make the share ids unique)."""
    return tuple(
        _allocation(question, part, chosen, offers, node, claim)
        for part, chosen, claim in zip(question.parts, picks, claims, strict=True)
    )


def _allocation(
    question: ClaimQuestion,
    part: ClaimPart,
    picks: tuple[Pick, ...],
    offers: Sequence[Offer],
    node: str,
    claim: str,
) -> ClaimResult:
    devices: list[AllocatedDevice] = []
    results: list[dict[str, Any]] = []
    for pick in picks:
        offer = offers[pick.slot]
        request, asks = part.requests[pick.request]
        number = asks[pick.alternative]
        ask, device = question.asks[number], offer.device
        driver, pool, name = offer.id
        result: dict[str, Any] = {
            "request": request.full_name(pick.alternative),
            "driver": driver,
            "pool": pool,
            "device": name,
        }
        if ask.admin:
            result["adminAccess"] = True
        if ask.tolerations:
            result["tolerations"] = [_toleration(toleration) for toleration in ask.tolerations]
        if device.conditions:
            result["bindingConditions"] = list(device.conditions)
        if device.failures:
            result["bindingFailureConditions"] = list(device.failures)
        consumed: tuple[tuple[str, str], ...] = ()
        view = question.view(offer)
        if device.shareable and not ask.admin and view is not None:
            consumed = tuple((name, text) for name, _, text in view.consumes[number] or ())
            result["shareID"] = _share(claim, result)
            if consumed:
                result["consumedCapacity"] = dict(consumed)
        results.append(result)
        devices.append(AllocatedDevice(offer.id, ask.admin, device.shareable and not ask.admin, consumed))
    document: dict[str, Any] = {"devices": {"results": results}}
    config = _config(question, part, picks)
    if config:
        document["devices"]["config"] = config
    selector = _node_selector([offers[pick.slot] for pick in picks], node)
    if selector is not None:
        document["nodeSelector"] = selector
    return ClaimResult(
        devices=tuple(devices),
        nodes=None if selector is None else tuple(map(_term, selector["nodeSelectorTerms"])),
        document=msgspec.json.encode(document).decode(),
        conditions=any(offers[pick.slot].device.conditions for pick in picks),
    )


def _share(claim: str, result: Mapping[str, Any]) -> str:
    """Return a share id that is deterministic for the ResourceClaim and its request result."""
    text = "/".join((claim, result["request"], result["driver"], result["pool"], result["device"]))
    return str(uuid.uuid5(uuid.NAMESPACE_URL, text))


def _toleration(toleration: DeviceToleration) -> dict[str, Any]:
    wire: dict[str, Any] = {"operator": toleration.operator or "Equal"}
    wire |= {key: value for key in ("key", "value", "effect") if (value := getattr(toleration, key))}
    if toleration.seconds is not None:
        wire["tolerationSeconds"] = toleration.seconds
    return wire


def _config(question: ClaimQuestion, part: ClaimPart, picks: tuple[Pick, ...]) -> list[dict[str, Any]]:
    """Return the device configuration of a ResourceClaim: first of the classes, each once for all requests that use
    it, then of the claim."""
    chosen = {pick.request: pick.alternative for pick in picks}
    by_class: dict[str, list[str]] = {}
    names: set[str] = set()
    for position, (request, asks) in enumerate(part.requests):
        if position in chosen:
            full = request.full_name(chosen[position])
            names |= {request.name, full}
            by_class.setdefault(question.asks[asks[chosen[position]]].device_class, []).append(full)
    entries = [
        {"source": "FromClass", "requests": requests, **_body(config)}
        for name, requests in by_class.items()
        for config in question.classes[name].config
    ]
    for config in part.spec.config:
        if not config.requests:
            entries.append({"source": "FromClaim", **_body(config)})
        elif names.intersection(config.requests):
            entries.append({"source": "FromClaim", "requests": list(config.requests), **_body(config)})
    return entries


def _body(config: DeviceConfig) -> dict[str, Any]:
    body: dict[str, Any] = decode_json(config.body)
    return body


def _node_selector(offers: Sequence[Offer], node: str) -> dict[str, Any] | None:
    """Return the node selector for all allocated devices together; None if they are usable everywhere."""
    if any(offer.access.node or offer.device.binds_to_node for offer in offers):
        requirement = {"key": "metadata.name", "operator": "In", "values": [node]}
        return {"nodeSelectorTerms": [{"matchFields": [requirement]}]}
    term: dict[str, list[dict[str, Any]]] = {}
    for offer in offers:
        if not offer.access.selector:
            continue
        for node_term in decode_json(offer.access.selector).get("nodeSelectorTerms") or ():
            for kind in ("matchFields", "matchExpressions"):
                for requirement in node_term.get(kind) or ():
                    known = term.setdefault(kind, [])
                    if not any(_same(requirement, known_requirement) for known_requirement in known):
                        known.append(requirement)
    return {"nodeSelectorTerms": [term]} if term else None


def _same(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    return (first["key"], first["operator"], set(first.get("values") or ())) == (
        second["key"],
        second["operator"],
        set(second.get("values") or ()),
    )


def _term(wire: Mapping[str, Any]) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        expressions=tuple(map(_requirement, wire.get("matchExpressions") or ())),
        fields=tuple(map(_requirement, wire.get("matchFields") or ())),
    )


def _requirement(wire: Mapping[str, Any]) -> Requirement:
    return Requirement(wire["key"], wire["operator"], tuple(wire.get("values") or ()))

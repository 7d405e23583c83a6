"""Writes to ResourceClaims that precede a pod's binding."""

from __future__ import annotations

import msgspec

from phalanx.cluster.devices.entries import Entry
from phalanx.model.devices.claims import AllocateClaim, Claim, ClaimNeed, ClaimResult
from phalanx.model.gang import Gang, GroupRef
from phalanx.model.pod import Pod
from phalanx.model.text.decoding import decode_json


def reservation(
    entry: Entry | None, pod: Pod, gang: Gang | None, key: str, allocation: ClaimResult | None, fault: str
) -> AllocateClaim | None:
    """Return the write that allocates and reserves an existing ResourceClaim for a pod; None if the API shows all
    of it already."""
    name = key.partition("/")[2]
    fact = entry.fact if entry is not None else None
    if fact is None:
        return AllocateClaim(pod.namespace, name, "", pod.name, pod.uid, fault=fault or "it is gone")
    group = _owner(pod, gang, fact)
    consumer = group.uid if group is not None else pod.uid
    known = fact.allocation if fact.allocation is not None else allocation
    conditions = known is not None and known.conditions
    if not fault and consumer in fact.consumers and fact.allocation is not None and not conditions:
        return None
    return AllocateClaim(
        namespace=fact.namespace,
        name=fact.name,
        uid=fact.uid,
        pod=pod.name,
        pod_uid=pod.uid,
        allocation=allocation.document if allocation is not None and fact.allocation is None else "",
        group=group.name if group is not None else "",
        group_uid=group.uid if group is not None else "",
        conditions=conditions,
        fault=fault,
        version=fact.version,
    )


def creation(pod: Pod, need: ClaimNeed, allocation: ClaimResult | None, fault: str) -> AllocateClaim | None:
    """Return the creation of the ResourceClaim for a pod's extended resources, as kube-scheduler does; None without
    devices."""
    if allocation is None and not fault:
        return None
    body = decode_json(allocation.document) if allocation is not None else {}
    served = {result["request"] for result in body.get("devices", {}).get("results", ())}
    asks = [
        (request.name, ask)
        for need_extended in need.extended
        for request in need_extended.requests
        for ask in request.asks
        if request.name in served
    ]
    requests = [
        {
            "name": name,
            "exactly": {
                "deviceClassName": ask.device_class,
                "allocationMode": "ExactCount",
                "count": ask.count,
            },
        }
        for name, ask in sorted(asks, key=lambda entry: entry[0])
    ]
    mappings = [
        mapping for extended in need.extended for mapping in extended.mappings if mapping.request_name in served
    ]
    return AllocateClaim(
        namespace=pod.namespace,
        name=f"for extended resources of pod {pod.name}",
        uid="",
        pod=pod.name,
        pod_uid=pod.uid,
        allocation=allocation.document if allocation is not None else "",
        conditions=allocation is not None and allocation.conditions,
        fault=fault,
        create=msgspec.json.encode({"devices": {"requests": requests}}).decode(),
        mappings=msgspec.json.encode(mappings).decode(),
    )


def _owner(pod: Pod, gang: Gang | None, claim: Claim) -> GroupRef | None:
    """Return the native PodGroup that the ResourceClaim names as its consumer in place of its members; None if each
    member is a consumer."""
    if gang is None or gang.source is None or not gang.rules.native:
        return None
    if claim.group != gang.source.name and all(entry.claim != claim.name for entry in gang.claims):
        return None
    return None if pod.uid in claim.consumers else gang.source

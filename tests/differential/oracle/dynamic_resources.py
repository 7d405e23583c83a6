"""DynamicResources, for exact requests.

Sources: dynamicresources.go in pkg/scheduler/framework/plugins/dynamicresources,
staging/src/k8s.io/dynamic-resource-allocation/structured/internal/stable/allocator_stable.go,
staging/src/k8s.io/dynamic-resource-allocation/resourceclaim/claim.go, pools_stable.go.

CEL is not evaluated: of the selectors there are those of `_EXPRESSION`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.differential.oracle.selectors import node_selector_matches
from tests.differential.oracle.world import Wire, World, named, namespace_of

_EXPRESSION = re.compile(
    r'^device\.driver == "(?P<driver>[^"]+)"$'
    r'|^device\.attributes\["(?P<domain>[^"]+)"\]\.(?P<name>\w+) == "(?P<value>[^"]+)"$'
)
_MOST_CONSUMERS = 256

# (driver, pool, device): the identity of a device.
Device = tuple[str, str, str]


def objection(world: World, pod: Wire, node: Wire) -> str:
    wanted: list[Wire] = []
    for reference in pod["spec"].get("resourceClaims") or []:
        name = _claim_name(pod, reference)
        if name is None:
            return f'pod "{pod["metadata"]["name"]}": no resource claim was made for {reference["name"]} yet'
        if name == "":
            continue  # the template's controller has said that none is needed
        claim = named(world.resource_claims, name, namespace_of(pod))
        if claim is None:
            return f'resourceclaim "{name}" not found'
        if claim["metadata"].get("deletionTimestamp"):
            return f'resourceclaim "{name}" is being deleted'
        if "resourceClaimTemplateName" in reference and not _is_owned_by(claim, pod):
            return f'resourceclaim "{name}" was not created for the pod'
        allocation = (claim.get("status") or {}).get("allocation")
        if allocation is None:
            if claim not in wanted:  # named twice it is still one
                wanted.append(claim)
            continue
        consumers = claim["status"].get("reservedFor") or []
        ours = any(entry.get("uid") == pod["metadata"]["uid"] for entry in consumers)
        if len(consumers) >= _MOST_CONSUMERS and not ours:
            return "resourceclaim in use"
        selector = allocation.get("nodeSelector")
        if selector is not None and not node_selector_matches(selector, node):
            return "resourceclaim not available on the node"
    for claim in wanted:
        for request in claim["spec"]["devices"]["requests"]:
            if named(world.device_classes, request["exactly"]["deviceClassName"]) is None:
                return f"device class {request['exactly']['deviceClassName']} does not exist"
    if wanted and not _can_allocate(world, wanted, node):
        return "cannot allocate all claims"
    return ""


def _claim_name(pod: Wire, reference: Wire) -> str | None:
    if reference.get("resourceClaimName"):
        return str(reference["resourceClaimName"])
    for entry in (pod.get("status") or {}).get("resourceClaimStatuses") or []:
        if entry["name"] == reference["name"]:
            return str(entry.get("resourceClaimName") or "")
    return None


def _is_owned_by(claim: Wire, pod: Wire) -> bool:
    owners = claim["metadata"].get("ownerReferences") or []
    return any(owner.get("controller") and owner.get("uid") == pod["metadata"]["uid"] for owner in owners)


def _can_allocate(world: World, claims: list[Wire], node: Wire) -> bool:
    """Return whether each device of every request can be a different free one."""
    used = set(_allocated(world))
    slots: list[list[Device]] = []
    for claim in claims:
        for request in claim["spec"]["devices"]["requests"]:
            exact = request["exactly"]
            meant = [entry for entry in _devices_on(world, node) if _is_meant(world, exact, *entry)]
            free = [device for device, spec in meant if device not in used and _is_tolerated(exact, spec)]
            if exact.get("allocationMode", "ExactCount") == "All":
                if not meant or len(free) < len(meant):
                    return False
                slots += [[device] for device in free]
            else:
                slots += [free for _ in range(exact.get("count") or 1)]
    return _assign(slots, set())


def _assign(slots: list[list[Device]], taken: set[Device]) -> bool:
    if not slots:
        return True
    return any(_assign(slots[1:], taken | {device}) for device in slots[0] if device not in taken)


def _is_meant(world: World, exact: Wire, device: Device, spec: Wire) -> bool:
    device_class = named(world.device_classes, exact["deviceClassName"])
    assert device_class is not None
    selectors = ((device_class.get("spec") or {}).get("selectors") or []) + (exact.get("selectors") or [])
    return all(_selected(entry["cel"]["expression"], device, spec) for entry in selectors)


def _is_tolerated(exact: Wire, spec: Wire) -> bool:
    for taint in spec.get("taints") or []:
        hard = taint.get("effect") in ("NoSchedule", "NoExecute")
        if hard and not any(_tolerates(entry, taint) for entry in exact.get("tolerations") or []):
            return False
    return True


def _tolerates(toleration: Wire, taint: Wire) -> bool:
    key, operator, effect = toleration.get("key"), toleration.get("operator") or "Equal", toleration.get("effect")
    if (effect and effect != taint.get("effect")) or (key and key != taint["key"]):
        return False
    return operator == "Exists" or (bool(key) and toleration.get("value", "") == taint.get("value", ""))


def _selected(expression: str, device: Device, spec: Wire) -> bool:
    match = _EXPRESSION.match(expression)
    assert match is not None, f"the oracle does not know {expression}"
    if match["driver"]:
        return device[0] == match["driver"]
    attributes = spec.get("attributes") or {}
    value = attributes.get(f"{match['domain']}/{match['name']}")
    if value is None and match["domain"] == device[0]:
        value = attributes.get(match["name"])
    return value is not None and value.get("string") == match["value"]


def _devices_on(world: World, node: Wire) -> Iterator[tuple[Device, Wire]]:
    """The devices that a node can use: of each pool the newest generation, as far as it is for the node."""
    newest: dict[tuple[str, str], int] = {}
    for entry in world.slices:
        pool = (entry["spec"]["driver"], entry["spec"]["pool"]["name"])
        newest[pool] = max(newest.get(pool, 0), entry["spec"]["pool"]["generation"])
    for entry in world.slices:
        spec = entry["spec"]
        driver, pool = spec["driver"], spec["pool"]["name"]
        if spec["pool"]["generation"] == newest[driver, pool] and _is_for(spec, node):
            for device in spec.get("devices") or []:
                yield (driver, pool, device["name"]), device


def _is_for(spec: Wire, node: Wire) -> bool:
    if spec.get("nodeName"):
        return bool(spec["nodeName"] == node["metadata"]["name"])
    if spec.get("nodeSelector") is not None:
        return node_selector_matches(spec["nodeSelector"], node)
    return bool(spec.get("allNodes"))


def _allocated(world: World) -> Iterator[Device]:
    """Return the allocated devices; a device is exclusive, except for administrative access."""
    for claim in world.resource_claims:
        devices = ((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}
        for result in devices.get("results") or []:
            if not result.get("adminAccess"):
                yield result["driver"], result["pool"], result["device"]

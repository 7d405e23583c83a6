"""Devices of nodes that DeviceTaintRules taint: three small lists, read only if there are rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.cluster.dra.selectors import Selectors
from phalanx.cluster.dra.taint_rules import rules_of
from phalanx.dialects.devices.claim_objects import read_device_class, read_slice, read_taint_rule
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from phalanx.model.devices.claims import DeviceClass, DeviceSlice, DeviceTaintRule
from phalanx.reports.nodes.entries import NodeReason

_GROUP = "resource.k8s.io"
_VERSIONS = ("v1", "v1beta2", "v1beta1")
_RULE_VERSIONS = ("v1", "v1beta2", "v1alpha3")
_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


async def read_tainted_devices(client: KubeClient) -> dict[str, list[NodeReason]]:
    """Return a reason per rule for each node with tainted devices; nothing for kinds that cannot be read."""
    documents = await _listed(client, "devicetaintrules", "DeviceTaintRule", _RULE_VERSIONS)
    rules = [rule for rule in map(read_taint_rule, documents) if rule.taint.effect in _EFFECTS]
    if not rules:
        return {}
    created = {
        str(document["metadata"]["name"]): str(document["metadata"].get("creationTimestamp") or "")
        for document in documents
    }
    classes = {
        found.name: found
        for found in map(read_device_class, await _listed(client, "deviceclasses", "DeviceClass", _VERSIONS))
    }
    slices = map(read_slice, await _listed(client, "resourceslices", "ResourceSlice", _VERSIONS))
    return tainted_devices(rules, list(slices), classes, created)


def tainted_devices(
    rules: Sequence[DeviceTaintRule],
    slices: Sequence[DeviceSlice],
    classes: dict[str, DeviceClass],
    created: dict[str, str],
) -> dict[str, list[NodeReason]]:
    """Return the reasons by node. Devices that several nodes can use are not counted."""
    selectors = Selectors()
    tainted: dict[tuple[str, str, str], int] = {}
    total: dict[tuple[str, str], int] = {}
    by_name = {rule.name: rule for rule in rules}
    newest: dict[tuple[str, str], int] = {}
    for part in slices:
        pool = (part.driver, part.pool)
        newest[pool] = max(newest.get(pool, 0), part.generation)
    for part in slices:
        if part.generation < newest[part.driver, part.pool]:
            continue  # an outdated part of the pool
        for device in part.devices:
            access = device.access or part.access
            if access is None or not access.node:
                continue
            total[access.node, part.driver] = total.get((access.node, part.driver), 0) + 1
            for rule in rules_of(rules, (part.driver, part.pool, device.name), device, classes, selectors):
                key = (access.node, rule.name, part.driver)
                tainted[key] = tainted.get(key, 0) + 1
    reasons: dict[str, list[NodeReason]] = {}
    for (node, name, driver), count in sorted(tainted.items()):
        taint = by_name[name].taint
        what = f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
        text = f"DeviceTaintRule {name}: {count} of {total[node, driver]} devices of {driver}: {what}"
        reasons.setdefault(node, []).append(NodeReason("DeviceTaint", text, created.get(name, "")))
    return reasons


async def _listed(client: KubeClient, plural: str, kind: str, versions: Sequence[str]) -> list[Any]:
    """Return the objects of a kind in the first served version; none if the user must not read them."""
    for version in versions:
        try:
            listed = await client.list_all(Resource(_GROUP, version, plural, kind, namespaced=False).path())
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            continue
        return list(listed["items"])
    return []

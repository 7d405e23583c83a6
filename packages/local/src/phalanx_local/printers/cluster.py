"""`kubectl get` columns of nodes, namespaces, events, services, ConfigMaps and Secrets."""

from __future__ import annotations

from typing import Any

from phalanx_local.objects import Json, dig, mapping, metadata, sequence, text
from phalanx_local.printers.base import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
    Printer,
    age,
    column,
    joined,
    labels_text,
    since,
)

_ROLE = "node-role.kubernetes.io/"


def _name(obj: Json) -> str:
    return text(metadata(obj).get("name"))


def _node(node: Json, now: float) -> list[Any]:
    info = mapping(dig(node, "status", "nodeInfo"))
    addresses = [mapping(item) for item in sequence(dig(node, "status", "addresses"))]
    by_type = {text(item.get("type")): text(item.get("address")) for item in reversed(addresses)}
    roles = sorted(
        key.removeprefix(_ROLE) for key in mapping(metadata(node).get("labels")) if key.startswith(_ROLE)
    )
    return [
        _name(node),
        _node_status(node),
        ",".join(roles) or NONE,
        age(node, now),
        text(info.get("kubeletVersion")),
        by_type.get("InternalIP") or NONE,
        by_type.get("ExternalIP") or NONE,
        text(info.get("osImage")) or UNKNOWN,
        text(info.get("kernelVersion")) or UNKNOWN,
        text(info.get("containerRuntimeVersion")) or UNKNOWN,
    ]


def _node_status(node: Json) -> str:
    ready = [
        mapping(item).get("status")
        for item in sequence(dig(node, "status", "conditions"))
        if mapping(item).get("type") == "Ready"
    ]
    words = ["Ready" if status == "True" else "NotReady" for status in ready] or ["Unknown"]
    if dig(node, "spec", "unschedulable") is True:
        words.append("SchedulingDisabled")
    return ",".join(words)


NODE_PRINTER = Printer(
    (
        NAME,
        column("Status"),
        column("Roles"),
        AGE,
        column("Version"),
        column("Internal-IP", priority=1),
        column("External-IP", priority=1),
        column("OS-Image", priority=1),
        column("Kernel-Version", priority=1),
        column("Container-Runtime", priority=1),
    ),
    _node,
)


def _api_service(item: Json, now: float) -> list[Any]:
    service = mapping(dig(item, "spec", "service"))
    conditions = [mapping(entry) for entry in sequence(dig(item, "status", "conditions"))]
    available = next((entry for entry in conditions if entry.get("type") == "Available"), {})
    status = text(available.get("status")) or "Unknown"
    if status == "False" and available.get("reason"):
        status = f"{status} ({text(available['reason'])})"
    where = f"{text(service.get('namespace'))}/{text(service.get('name'))}" if service else "Local"
    return [_name(item), where, status, age(item, now)]


API_SERVICE_PRINTER = Printer((NAME, column("Service"), column("Available"), AGE), _api_service)

NAMESPACE_PRINTER = Printer(
    (NAME, column("Status"), AGE),
    lambda obj, now: [_name(obj), text(dig(obj, "status", "phase")), age(obj, now)],
)


def _event(event: Json, now: float) -> list[Any]:
    involved = mapping(event.get("involvedObject") or event.get("regarding"))
    source = mapping(event.get("source") or event.get("deprecatedSource"))
    component = (
        text(source.get("component"))
        or text(event.get("reportingComponent"))
        or text(event.get("reportingController"))
    )
    series = mapping(event.get("series"))
    first = event.get("firstTimestamp") or event.get("deprecatedFirstTimestamp") or event.get("eventTime")
    last = (
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("deprecatedLastTimestamp")
        or event.get("eventTime")
        or metadata(event).get("creationTimestamp")
    )
    count = series.get("count") or event.get("count") or event.get("deprecatedCount") or 1
    kind = text(involved.get("kind")).lower()
    name = text(involved.get("name"))
    host = text(source.get("host"))
    if not source.get("component"):
        host = text(event.get("reportingInstance"))
    return [
        since(last, now),
        text(event.get("type")),
        text(event.get("reason")),
        f"{kind}/{name}" if kind else name,
        text(involved.get("fieldPath")),
        f"{component}, {host}" if host else component,
        text(event.get("message") or event.get("note")).strip(),
        since(first or last, now),
        count,
        _name(event),
    ]


EVENT_PRINTER = Printer(
    (
        column("Last Seen"),
        column("Type"),
        column("Reason"),
        column("Object"),
        column("Subobject", priority=1),
        column("Source", priority=1),
        column("Message"),
        column("First Seen", priority=1),
        column("Count", priority=1),
        NAME.__class__("Name", "string", NAME.description, 1, "name"),
    ),
    _event,
)


def _service(service: Json, now: float) -> list[Any]:
    spec = mapping(service.get("spec"))
    ports = []
    for port in map(mapping, sequence(spec.get("ports"))):
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        ports.append(f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}")
    external = [text(item) for item in sequence(spec.get("externalIPs"))]
    if spec.get("type") == "LoadBalancer" and not external:
        external = ["<pending>"]
    return [
        _name(service),
        text(spec.get("type")),
        text(spec.get("clusterIP")) or NONE,
        joined(external),
        joined(ports),
        age(service, now),
        labels_text(mapping(spec.get("selector"))),
    ]


SERVICE_PRINTER = Printer(
    (
        NAME,
        column("Type"),
        column("Cluster-IP"),
        column("External-IP"),
        column("Port(s)"),
        AGE,
        column("Selector", priority=1),
    ),
    _service,
)

CONFIG_MAP_PRINTER = Printer(
    (NAME, column("Data"), AGE),
    lambda obj, now: [
        _name(obj),
        len(mapping(obj.get("data"))) + len(mapping(obj.get("binaryData"))),
        age(obj, now),
    ],
)

SECRET_PRINTER = Printer(
    (NAME, column("Type"), column("Data"), AGE),
    lambda obj, now: [_name(obj), text(obj.get("type")), len(mapping(obj.get("data"))), age(obj, now)],
)

SERVICE_ACCOUNT_PRINTER = Printer((NAME, AGE), lambda obj, now: [_name(obj), age(obj, now)])

LEASE_PRINTER = Printer(
    (NAME, column("Holder"), AGE),
    lambda obj, now: [_name(obj), text(dig(obj, "spec", "holderIdentity")), age(obj, now)],
)

PRIORITY_CLASS_PRINTER = Printer(
    (NAME, column("Value", "integer"), column("Global-Default", "boolean"), AGE, column("PreemptionPolicy")),
    lambda obj, now: [
        _name(obj),
        obj.get("value", 0),
        obj.get("globalDefault") is True,
        age(obj, now),
        text(obj.get("preemptionPolicy")),
    ],
)


def _claim(claim: Json, now: float) -> list[Any]:
    spec, status = mapping(claim.get("spec")), mapping(claim.get("status"))
    phase = "Terminating" if "deletionTimestamp" in metadata(claim) else text(status.get("phase"))
    bound = bool(spec.get("volumeName"))
    return [
        _name(claim),
        phase,
        text(spec.get("volumeName")),
        text(mapping(status.get("capacity")).get("storage")) if bound else "",
        ",".join(ACCESS.get(text(mode), text(mode)) for mode in sequence(status.get("accessModes"))),
        text(spec.get("storageClassName")),
        text(spec.get("volumeAttributesClassName")) or "<unset>",
        age(claim, now),
        text(spec.get("volumeMode")) or "<unset>",
    ]


ACCESS = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}

CLAIM_PRINTER = Printer(
    (
        NAME,
        column("Status"),
        column("Volume"),
        column("Capacity"),
        column("Access Modes"),
        column("StorageClass"),
        column("VolumeAttributesClass"),
        AGE,
        column("VolumeMode", priority=1),
    ),
    _claim,
)

DEFINITION_PRINTER = Printer(
    (NAME, column("Created At", "date")),
    lambda obj, now: [_name(obj), text(metadata(obj).get("creationTimestamp"))],
)

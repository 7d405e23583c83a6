"""Cheap checks of a pod template before pods are created from it, with the API server's messages.

Checked: containers and their names, images, ports, resources; volumes and their mounts; the restart policy. Left to
the API server at the creation of the pods: labels and annotations, probes and other
handlers, security contexts, environment, the sources of volumes, affinity, spread constraints and tolerations.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from phalanx.admission.fields import Json, mapping, sequence, text
from phalanx.admission.names import label_faults
from phalanx.model.text.decoding import quoted
from phalanx.model.text.quantity import Quantity, QuantityError, read_quantity

_RESTART_POLICIES = ("Always", "OnFailure", "Never")
# Resources that can be overcommitted, so that a request can be below its limit.
_OVERCOMMITTED = ("cpu", "memory", "ephemeral-storage")
_PORTS = range(1, 65536)


def faults_of_template(template: Json) -> list[str]:
    """Return the faults of a pod template, each as `path: fault` with a path that begins with `template`."""
    spec = mapping(template.get("spec"))
    path = "template.spec"
    faults: list[str] = []
    containers = sequence(spec.get("containers"))
    if not containers:
        faults.append(f"{path}.containers: Required value")
    volumes = _names(spec.get("volumes"), f"{path}.volumes", faults)
    seen: set[str] = set()
    host_ports: set[tuple[str, str, int]] = set()
    for field in ("containers", "initContainers"):
        for index, item in enumerate(sequence(spec.get(field))):
            item_path = f"{path}.{field}[{index}]"
            faults += _container(mapping(item), item_path, seen, volumes)
            if field == "containers":
                faults += _ports(mapping(item), item_path, host_ports)
    policy = spec.get("restartPolicy")
    if policy is not None and policy not in _RESTART_POLICIES:
        allowed = ", ".join(f'"{policy_name}"' for policy_name in _RESTART_POLICIES)
        faults.append(f"{path}.restartPolicy: Unsupported value: {_quote(policy)}: supported values: {allowed}")
    return [*faults, *_pod_resources(spec, f"{path}.resources")]


def _container(container: Json, path: str, seen: set[str], volumes: set[str]) -> Iterator[str]:
    yield from _name(text(container.get("name")), f"{path}.name", seen)
    if not text(container.get("image")).strip():
        yield f"{path}.image: Required value"
    yield from _amounts(mapping(container.get("resources")), f"{path}.resources")
    mounted: set[str] = set()
    for index, item in enumerate(sequence(container.get("volumeMounts"))):
        mount, mount_path = mapping(item), f"{path}.volumeMounts[{index}]"
        name, target = text(mount.get("name")), text(mount.get("mountPath"))
        if not name:
            yield f"{mount_path}.name: Required value"
        elif name not in volumes:
            yield f'{mount_path}.name: Not found: "{name}"'
        if not target:
            yield f"{mount_path}.mountPath: Required value"
        elif target in mounted:
            yield f'{mount_path}.mountPath: Invalid value: "{target}": must be unique'
        mounted.add(target)


def _name(name: str, path: str, seen: set[str]) -> Iterator[str]:
    if not name:
        yield f"{path}: Required value"
        return
    for fault in label_faults(name):
        yield f'{path}: Invalid value: "{name}": {fault}'
    if name in seen:
        yield f'{path}: Duplicate value: "{name}"'
    seen.add(name)


def _names(items: object, path: str, faults: list[str]) -> set[str]:
    names: set[str] = set()
    for index, item in enumerate(sequence(items)):
        faults += _name(text(mapping(item).get("name")), f"{path}[{index}].name", names)
    return names


def _ports(container: Json, path: str, host_ports: set[tuple[str, str, int]]) -> Iterator[str]:
    names: set[str] = set()
    for index, item in enumerate(sequence(container.get("ports"))):
        port, place = mapping(item), f"{path}.ports[{index}]"
        name = text(port.get("name"))
        if name and name in names:
            yield f'{place}.name: Duplicate value: "{name}"'
        names.add(name)
        number, host = port.get("containerPort"), port.get("hostPort")
        if number is None:
            yield f"{place}.containerPort: Required value"
        elif not _is_port(number):
            yield f"{place}.containerPort: Invalid value: {quoted(number)}: must be between 1 and 65535, inclusive"
        if not host:
            continue
        if not _is_port(host):
            yield f"{place}.hostPort: Invalid value: {quoted(host)}: must be between 1 and 65535, inclusive"
            continue
        host_port = (text(port.get("hostIP")), text(port.get("protocol")) or "TCP", host)
        if host_port in host_ports:
            yield f'{place}.hostPort: Duplicate value: "{"/".join(map(str, host_port))}"'
        host_ports.add(host_port)


def _is_port(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in _PORTS


def _amounts(resources: Json, path: str) -> Iterator[str]:
    """Yield a fault for each resource quantity that is unreadable, negative, or requested above its limit."""
    read: dict[str, dict[str, Quantity]] = {}
    for field in ("limits", "requests"):
        read[field] = {}
        for name, value in mapping(resources.get(field)).items():
            try:
                amount = read_quantity(value)
            except QuantityError as error:
                yield f"{path}.{field}[{name}]: Invalid value: {_quote(value)}: {error.reason}"
                continue
            if amount.nano < 0:
                yield f"{path}.{field}[{name}]: Invalid value: {_quote(value)}: must be greater than or equal to 0"
            read[field][name] = amount
    for name, amount in read["requests"].items():
        limit = read["limits"].get(name)
        if limit is None:
            continue
        if name in _OVERCOMMITTED and amount > limit:
            yield _beyond(path, amount, f"less than or equal to {name} limit of {limit}")
        elif name not in _OVERCOMMITTED and amount != limit:
            yield _beyond(path, amount, f"equal to {name} limit of {limit}")


def _beyond(path: str, amount: Quantity, bound: str) -> str:
    return f'{path}.requests: Invalid value: "{amount}": must be {bound}'


def _pod_resources(spec: Json, path: str) -> Iterator[str]:
    """Yield a fault if the request of the whole pod (1.32) is below the sum of its containers' requests."""
    resources = mapping(spec.get("resources"))
    faults = list(_amounts(resources, path))
    yield from faults
    if faults:
        return
    for name, value in mapping(resources.get("requests")).items():
        containers = sum(
            amount.nano
            for item in sequence(spec.get("containers"))
            if (amount := container_request(mapping(item), name)) is not None
        )
        total = read_quantity(value)
        if total.nano < containers:
            aggregate = Quantity(containers, total.style)
            yield (
                f'{path}.requests[{name}]: Invalid value: "{total}": must be greater than or equal to aggregate '
                f"container requests of {aggregate}"
            )


def container_request(container: Json, name: str) -> Quantity | None:
    """Return a container's request of a resource, by default its limit; None if it has neither or it is
    unreadable."""
    resources = mapping(container.get("resources"))
    value: Any = mapping(resources.get("requests")).get(name, mapping(resources.get("limits")).get(name))
    try:
        return read_quantity(value) if value is not None else None
    except QuantityError:
        return None


def _quote(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) and len(value) <= 80 else quoted(value)

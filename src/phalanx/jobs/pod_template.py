"""Additions of job plugins to the manifest of a pod. Existing entries of its template are not changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from phalanx.model.pod_quota import mapping, sequence

Json = dict[str, Any]

CONTAINERS = ("containers",)
ALL_CONTAINERS = ("containers", "initContainers")


def containers(pod: Json, kinds: Sequence[str] = CONTAINERS) -> list[Json]:
    """Return the containers of the pod, without entries that are no objects, which the API server rejects."""
    spec = mapping(pod.get("spec"))
    return [container for kind in kinds for container in sequence(spec.get(kind)) if isinstance(container, dict)]


def add_env(container: Json, variables: Iterable[Json]) -> None:
    """Append environment variables to a container; for a repeated name, the last one counts."""
    _list(container, "env").extend(variables)


def variable(name: str, value: str) -> Json:
    return {"name": name, "value": value}


def add_port(container: Json, name: str, port: int) -> None:
    """Add a port to a container unless the container has it."""
    ports = _list(container, "ports")
    if not any(mapping(existing).get("containerPort") == port for existing in ports):
        ports.append({"name": name, "containerPort": port})


def add_volume(pod: Json, volume: Json) -> None:
    volumes = _list(pod["spec"], "volumes")
    if not any(mapping(existing).get("name") == volume["name"] for existing in volumes):
        volumes.append(volume)


def add_mount(container: Json, mount: Json) -> None:
    """Add a volume mount to a container unless it has a mount at the same path."""
    mounts = _list(container, "volumeMounts")
    if not any(mapping(existing).get("mountPath") == mount["mountPath"] for existing in mounts):
        mounts.append(mount)


def _list(holder: Json, field: str) -> list[Any]:
    """Return the list in a field of the manifest, created if it is absent. The API server rejects other types."""
    value = holder.get(field)
    if value is None:
        value = holder[field] = []
    return value if isinstance(value, list) else []

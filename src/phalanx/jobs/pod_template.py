"""Additions to a pod that is being made. What its template says already is left as it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from phalanx.model.pod_quota import mapping, sequence

Json = dict[str, Any]

CONTAINERS = ("containers",)
ALL_CONTAINERS = ("containers", "initContainers")


def containers(pod: Json, kinds: Sequence[str] = CONTAINERS) -> list[Json]:
    """Those of the pod; a template may hold what is none, and the API server will say so."""
    spec = mapping(pod.get("spec"))
    return [each for kind in kinds for each in sequence(spec.get(kind)) if isinstance(each, dict)]


def add_env(container: Json, variables: Iterable[Json]) -> None:
    """The last variable of a name is the one that counts."""
    _list(container, "env").extend(variables)


def variable(name: str, value: str) -> Json:
    return {"name": name, "value": value}


def add_port(container: Json, name: str, port: int) -> None:
    """Opens a port unless it is open."""
    ports = _list(container, "ports")
    if not any(mapping(each).get("containerPort") == port for each in ports):
        ports.append({"name": name, "containerPort": port})


def add_volume(pod: Json, volume: Json) -> None:
    volumes = _list(pod["spec"], "volumes")
    if not any(mapping(each).get("name") == volume["name"] for each in volumes):
        volumes.append(volume)


def add_mount(container: Json, mount: Json) -> None:
    """A path can be used once: the container's own mount stays."""
    mounts = _list(container, "volumeMounts")
    if not any(mapping(each).get("mountPath") == mount["mountPath"] for each in mounts):
        mounts.append(mount)


def _list(holder: Json, field: str) -> list[Any]:
    """The list, in place. One that is no list is left to the API server to refuse."""
    found = holder.get(field)
    if found is None:
        found = holder[field] = []
    return found if isinstance(found, list) else []

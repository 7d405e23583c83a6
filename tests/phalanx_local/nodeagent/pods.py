"""Short constructors of pods in the API."""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx_local.nodeagent.core_v1 import V1Pod


def container(name: str = "main", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "example/image", **fields}


def manifest(
    name: str = "p",
    *,
    node: str = "n0",
    notes: dict[str, str] | None = None,
    policy: str = "Never",
    containers: list[dict[str, Any]] | None = None,
    inits: list[dict[str, Any]] | None = None,
    uid: str = "",
    **spec: Any,
) -> dict[str, Any]:
    """A bound pod as the API server shows it. `notes` are annotations of phalanx.dev/."""
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or f"uid-{name}",
            "creationTimestamp": "2030-01-01T00:00:00Z",
            "annotations": {f"phalanx.dev/{key}": value for key, value in (notes or {}).items()},
        },
        "spec": {
            "nodeName": node,
            "restartPolicy": policy,
            "containers": [container()] if containers is None else containers,
            **spec,
        },
        "status": {"phase": "Pending"},
    }
    if inits:
        body["spec"]["initContainers"] = inits
    return body


def pod(name: str = "p", **fields: Any) -> V1Pod:
    return msgspec.convert(manifest(name, **fields), V1Pod)


def deleted(original: V1Pod, grace: int = 30) -> V1Pod:
    """Return the pod after a DELETE."""
    return edited(original, deletion_timestamp="2030-01-01T01:00:00Z", deletion_grace_period_seconds=grace)


def edited(original: V1Pod, **metadata: Any) -> V1Pod:
    return msgspec.structs.replace(original, metadata=msgspec.structs.replace(original.metadata, **metadata))


def with_status(original: V1Pod, patch: dict[str, Any]) -> V1Pod:
    """Return the pod after a status patch was applied to one without a status."""
    status = msgspec.convert({"phase": "Pending", **patch["status"]}, type(original.status))
    return msgspec.structs.replace(original, status=status)

"""Effects of an API server and its controllers on a plan's preparations: claims are bound, devices allocated."""

from __future__ import annotations

import json

from phalanx.model.devices.claims import AllocateClaim
from phalanx.model.preparations import Preparation
from phalanx.model.volumes import BindClaim
from tests.differential.oracle.storage import class_of
from tests.differential.oracle.world import Wire, World, named

_SELECTED_NODE = "volume.kubernetes.io/selected-node"


class RefusedError(Exception):
    """The preparation fails, and the pod is not bound (execution/volume_binding.py)."""


def carry_out(world: World, preparation: Preparation) -> list[tuple[str, Wire]]:
    """Changes the world; (kind, object) of everything that is different now."""
    match preparation:
        case BindClaim():
            return _bind(world, preparation)
        case AllocateClaim():
            return _allocate(world, preparation)
    raise AssertionError(f"nobody prepares {preparation}")


def _bind(world: World, wanted: BindClaim) -> list[tuple[str, Wire]]:
    claim = named(world.claims, wanted.name, wanted.namespace)
    assert claim is not None
    annotations = claim["metadata"].setdefault("annotations", {})
    if claim["spec"].get("volumeName"):
        # Two pods of one plan may share a claim: then they must mean the same.
        if wanted.volume:
            assert claim["spec"]["volumeName"] == wanted.volume, "it is bound to another volume"
        else:
            if annotations.get(_SELECTED_NODE) != wanted.node:
                raise RefusedError("it was provisioned for another node")
        return []
    if not wanted.volume:
        annotations[_SELECTED_NODE] = wanted.node
    volume = named(world.volumes, wanted.volume) if wanted.volume else _provision(world, claim)
    assert volume is not None
    reference = volume["spec"].setdefault("claimRef", {"namespace": wanted.namespace, "name": wanted.name})
    assert (reference["namespace"], reference["name"]) == (wanted.namespace, wanted.name), "it is another's"
    reference["uid"] = claim["metadata"]["uid"]
    volume["status"]["phase"] = claim["status"]["phase"] = "Bound"
    claim["spec"]["volumeName"] = volume["metadata"]["name"]
    annotations["pv.kubernetes.io/bind-completed"] = "yes"
    return [("volumes", volume), ("claims", claim)]


def _provision(world: World, claim: Wire) -> Wire:
    storage_class = class_of(world, claim)
    assert storage_class is not None
    name = f"pvc-{claim['metadata']['uid']}"
    volume: Wire = {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {
            "capacity": dict(claim["spec"]["resources"]["requests"]),
            "accessModes": list(claim["spec"]["accessModes"]),
            "storageClassName": storage_class["metadata"]["name"],
            "csi": {"driver": storage_class["provisioner"], "volumeHandle": name},
        },
        "status": {},
    }
    world.volumes.append(volume)
    return volume


def _allocate(world: World, wanted: AllocateClaim) -> list[tuple[str, Wire]]:
    assert not wanted.fault, wanted.fault
    claim = named(world.resource_claims, wanted.name, wanted.namespace)
    assert claim is not None
    status = claim.setdefault("status", {})
    if wanted.allocation:
        allocation = json.loads(wanted.allocation)
        # Two pods of one plan can share a claim, and both contain its allocation.
        assert status.setdefault("allocation", allocation) == allocation, "it has other devices"
        taken = [device for device in _devices(claim) if device in _others(world, claim)]
        assert not taken, f"somebody else has {taken}"
    consumer = {"resource": "pods", "name": wanted.pod, "uid": wanted.pod_uid}
    if consumer not in status.setdefault("reservedFor", []):
        status["reservedFor"].append(consumer)
    return [("resource_claims", claim)]


def _others(world: World, claim: Wire) -> list[tuple[str, str, str]]:
    return [device for other in world.resource_claims if other is not claim for device in _devices(other)]


def _devices(claim: Wire) -> list[tuple[str, str, str]]:
    devices = ((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}
    return [(result["driver"], result["pool"], result["device"]) for result in devices.get("results") or []]

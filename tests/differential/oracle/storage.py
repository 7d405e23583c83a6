"""Claims of a pod, and the class and volume of a claim.

Sources: staging/src/k8s.io/component-helpers/storage/ephemeral/ephemeral.go, storage/volume/helpers.go.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.differential.oracle.world import Wire, World, named, namespace_of

_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


@dataclass
class ClaimUse:
    """A volume of a pod that stands for a PersistentVolumeClaim; `claim` is None where there is none."""

    name: str
    ephemeral: bool
    claim: Wire | None

    def is_owned_by(self, pod: Wire) -> bool:
        """Return whether the claim of a generic ephemeral volume was created for exactly this pod."""
        assert self.claim is not None
        owners = self.claim["metadata"].get("ownerReferences") or []
        return any(owner.get("controller") and owner.get("uid") == pod["metadata"]["uid"] for owner in owners)


def volumes_of(pod: Wire) -> list[Wire]:
    return list(pod["spec"].get("volumes") or [])


def claims_of(world: World, pod: Wire) -> list[ClaimUse]:
    """Each once, however many volumes stand for it."""
    found: list[ClaimUse] = []
    for volume in volumes_of(pod):
        if volume.get("persistentVolumeClaim") is not None:
            name, ephemeral = volume["persistentVolumeClaim"]["claimName"], False
        elif volume.get("ephemeral") is not None:
            name, ephemeral = f"{pod['metadata']['name']}-{volume['name']}", True
        else:
            continue
        if all((use.name, use.ephemeral) != (name, ephemeral) for use in found):
            found.append(ClaimUse(name, ephemeral, world.claim(namespace_of(pod), name)))
    return found


def class_name(entry: Wire) -> str:
    """Return the class of a claim or a volume; the old annotation precedes the field."""
    annotations = entry["metadata"].get("annotations") or {}
    if _CLASS_ANNOTATION in annotations:
        return str(annotations[_CLASS_ANNOTATION])
    return str(entry["spec"].get("storageClassName") or "")


def class_of(world: World, claim: Wire) -> Wire | None:
    return named(world.classes, class_name(claim))


def volume_of(world: World, claim: Wire) -> Wire | None:
    return named(world.volumes, claim["spec"].get("volumeName") or "")

"""Volumes of a Volcano Job: existing PersistentVolumeClaims, and claims that are created for the job and deleted
with it."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from phalanx.dialects.field_owners import FieldOwner, field_owners
from phalanx.jobs.naming import claim_name, owned_metadata, volume_name
from phalanx.jobs.pod_template import add_mount, add_volume, containers
from phalanx.jobs.spec import Job
from phalanx.model.pod_quota import mapping, sequence

Json = dict[str, Any]

#: Manager of the generated claim names in `spec.volumes`.
CLAIM_NAMES_MANAGER = "phalanx-claim-names"


class JobVolume(msgspec.Struct, frozen=True):
    """PersistentVolumeClaim with its mount path in all containers of the job.

    `manifest` is the claim to create if it is missing; None if a user creates it.
    """

    mount_path: str
    claim: str
    manifest: Json | None = None


def volumes_of(job: Job) -> tuple[JobVolume, ...]:
    """Return the volumes of a job. Generated names follow from the job and the volume's position, so a second run
    creates no second claim."""
    job_volumes = []
    for position, volume in enumerate(job.spec.volumes):
        name = claim_name(job, position)
        # A generated name in the spec is the record of an earlier run.
        if volume.volume_claim_name and (volume.volume_claim is None or volume.volume_claim_name != name):
            job_volumes.append(JobVolume(volume.mount_path, volume.volume_claim_name))
        elif volume.volume_claim is not None:
            manifest = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": owned_metadata(job, name),
                "spec": copy.deepcopy(volume.volume_claim),
            }
            job_volumes.append(JobVolume(volume.mount_path, name, manifest))
    return tuple(job_volumes)


def claim_name_patch(job: Job, document: Json) -> list[Json]:
    """Return the JSON patch (RFC 6902) that writes the generated claim names into the spec of `document`.

    It is empty if another client applies the list of volumes as a whole: the next apply would conflict with it.
    """
    metadata, stated = mapping(document.get("metadata")), sequence(mapping(document.get("spec")).get("volumes"))
    if metadata.get("uid") != job.metadata.uid or any(map(_applies_whole_list, field_owners(metadata))):
        return []
    patch: list[Json] = []
    for position, volume in enumerate(map(mapping, stated)):
        if volume.get("volumeClaim") is not None and not volume.get("volumeClaimName"):
            at = f"/spec/volumes/{position}"
            patch.append({"op": "test", "path": f"{at}/volumeClaim", "value": volume["volumeClaim"]})
            patch.append({"op": "add", "path": f"{at}/volumeClaimName", "value": claim_name(job, position)})
    return [{"op": "test", "path": "/metadata/uid", "value": job.metadata.uid}, *patch] if patch else []


def _applies_whole_list(owner: FieldOwner) -> bool:
    # managedFields have no content below a list of type `atomic`, as in the definitions of other installations.
    return owner.operation == "Apply" and mapping(owner.fields.get("f:spec")).get("f:volumes") == {}


def missing_claim(name: str) -> str:
    """Return the message for a missing PersistentVolumeClaim, in upstream's words."""
    return f"pvc {name} is not found, the job will be in the Pending state until the PVC is created"


def volume_resources(job: Job) -> dict[str, str]:
    """Return the job's PersistentVolumeClaims as entries of `controlledResources` in its status."""
    return {f"volume-pvc-{volume.claim}": volume.claim for volume in volumes_of(job)}


def mount_volumes(job: Job, pod: Json) -> None:
    """Mount the job's volumes in all containers of a pod, but not in init containers, as upstream."""
    for volume in volumes_of(job):
        name = volume_name(f"{job.metadata.name}-{volume.claim}")
        add_volume(pod, {"name": name, "persistentVolumeClaim": {"claimName": volume.claim}})
        for container in containers(pod):
            add_mount(container, {"name": name, "mountPath": volume.mount_path})

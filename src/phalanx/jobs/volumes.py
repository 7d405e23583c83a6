"""The volumes of a job: claims that exist, and claims that are made for it and live as long as it does."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from phalanx.jobs.naming import claim_name, owned_metadata, volume_name
from phalanx.jobs.pod_template import add_mount, add_volume, containers
from phalanx.jobs.spec import Job

Json = dict[str, Any]


class JobVolume(msgspec.Struct, frozen=True):
    """A claim and where all containers of the job mount it. `manifest` is the claim to make if it is missing; None
    where somebody else makes it."""

    mount_path: str
    claim: str
    manifest: Json | None = None


def volumes_of(job: Job) -> tuple[JobVolume, ...]:
    """Names that are made up follow from the job and the volume's position: a second run makes no second claim."""
    found = []
    for position, volume in enumerate(job.spec.volumes):
        if volume.volume_claim_name:
            found.append(JobVolume(volume.mount_path, volume.volume_claim_name))
        elif volume.volume_claim is not None:
            name = claim_name(job, position)
            manifest = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": owned_metadata(job, name),
                "spec": copy.deepcopy(volume.volume_claim),
            }
            found.append(JobVolume(volume.mount_path, name, manifest))
    return tuple(found)


def missing_claim(name: str) -> str:
    """What a job is told whose claim does not exist, in upstream's words."""
    return f"pvc {name} is not found, the job will be in the Pending state until the PVC is created"


def volume_resources(job: Job) -> dict[str, str]:
    """The claims as the job's status lists them."""
    return {f"volume-pvc-{volume.claim}": volume.claim for volume in volumes_of(job)}


def mount_volumes(job: Job, pod: Json) -> None:
    """In all containers, as upstream not in init containers."""
    for volume in volumes_of(job):
        name = volume_name(f"{job.metadata.name}-{volume.claim}")
        add_volume(pod, {"name": name, "persistentVolumeClaim": {"claimName": volume.claim}})
        for container in containers(pod):
            add_mount(container, {"name": name, "mountPath": volume.mount_path})

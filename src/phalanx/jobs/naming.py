"""Names of the host names, volumes and PersistentVolumeClaims of a Volcano Job."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from phalanx.jobs.pods import owned_by, pod_name
from phalanx.jobs.spec import Job, TaskSpec
from phalanx.model.pod_quota import mapping, text

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_MAX_LABEL, _MAX_NAME = 63, 253
_DIGITS = 12


def host(job: Job, task: TaskSpec, index: int) -> str:
    """Return the host name of a pod within the job, which the plugin svc provides."""
    spec = mapping(task.template.get("spec"))
    hostname = text(spec.get("hostname")) or pod_name(job.metadata.name, task.name, index)
    return f"{hostname}.{text(spec.get('subdomain')) or job.metadata.name}"


def has_one_host(task: TaskSpec) -> bool:
    """Return whether all pods of the task have the same host name, from their template."""
    return bool(mapping(task.template.get("spec")).get("hostname"))


def hosts(job: Job, task: TaskSpec) -> list[str]:
    count = min(task.replicas, 1) if has_one_host(task) else task.replicas
    return [host(job, task, index) for index in range(count)]


def owned_metadata(job: Job, name: str) -> dict[str, Any]:
    """Return the metadata of an object that is owned by the job and deleted with it."""
    return {"name": name, "namespace": job.metadata.namespace, "ownerReferences": owned_by(job)}


def volume_name(name: str) -> str:
    """Return `name` if it is a valid volume name of a pod, else a similar valid name."""
    if len(name) <= _MAX_LABEL and _LABEL.fullmatch(name):
        return name
    prefix = re.sub(r"[^-a-z0-9]", "-", name.lower())[: _MAX_LABEL - _DIGITS - 1].strip("-")
    return f"{prefix or 'v'}-{digest(name)}"


def claim_name(job: Job, position: int) -> str:
    """Return the name of the PersistentVolumeClaim for a job's volume: equal in every run, different for every
    job."""
    suffix = f"-pvc-{digest(job.metadata.uid, str(position))}"
    return job.metadata.name[: _MAX_NAME - len(suffix)].rstrip("-.") + suffix


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_DIGITS]

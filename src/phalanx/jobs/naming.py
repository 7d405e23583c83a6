"""How the hosts, volumes and claims of a job are called."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from phalanx.jobs.pods import owned_by, pod_name
from phalanx.jobs.spec import Job, TaskSpec
from phalanx.model.pod_quota import mapping, text

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LONGEST_LABEL, _LONGEST_NAME = 63, 253
_DIGITS = 12


def host(job: Job, task: TaskSpec, index: int) -> str:
    """Under which name the pods of the job find this one, thanks to the plugin svc."""
    spec = mapping(task.template.get("spec"))
    hostname = text(spec.get("hostname")) or pod_name(job.metadata.name, task.name, index)
    return f"{hostname}.{text(spec.get('subdomain')) or job.metadata.name}"


def has_one_host(task: TaskSpec) -> bool:
    """Whether all pods of the task have the same name, because their template states it."""
    return bool(mapping(task.template.get("spec")).get("hostname"))


def hosts(job: Job, task: TaskSpec) -> list[str]:
    count = min(task.replicas, 1) if has_one_host(task) else task.replicas
    return [host(job, task, index) for index in range(count)]


def owned_metadata(job: Job, name: str) -> dict[str, Any]:
    """Metadata of an object that lives as long as the job."""
    return {"name": name, "namespace": job.metadata.namespace, "ownerReferences": owned_by(job)}


def volume_name(name: str) -> str:
    """The name itself, if a pod's volume may be called so; else one that is like it."""
    if len(name) <= _LONGEST_LABEL and _LABEL.fullmatch(name):
        return name
    kept = re.sub(r"[^-a-z0-9]", "-", name.lower())[: _LONGEST_LABEL - _DIGITS - 1].strip("-")
    return f"{kept or 'v'}-{digest(name)}"


def claim_name(job: Job, position: int) -> str:
    """The claim that is made for a volume of the job: the same in every run, and another for every job."""
    suffix = f"-pvc-{digest(job.metadata.uid, str(position))}"
    return job.metadata.name[: _LONGEST_NAME - len(suffix)].rstrip("-.") + suffix


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_DIGITS]

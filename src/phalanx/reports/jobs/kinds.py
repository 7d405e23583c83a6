"""Kinds of jobs, and their names on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phalanx.dialects.registry import installed_dialects
from phalanx.kube.paths import Resource

VOLCANO_JOBS = Resource("batch.volcano.sh", "v1alpha1", "jobs", "Job")
NATIVE_JOBS = Resource("batch", "v1", "jobs", "Job")
JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
COMMANDS = Resource("bus.volcano.sh", "v1alpha1", "commands", "Command")
QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)

VCJOB, JOB, JOB_SET, GANG = "vcjob", "job", "jobset", "gang"
RESOURCES = {VCJOB: VOLCANO_JOBS, JOB: NATIVE_JOBS, JOB_SET: JOB_SETS}

# Words before the slash on the command line.
WORDS = {
    "vcjob": VCJOB,
    "vcjobs": VCJOB,
    "vj": VCJOB,
    "jobs.batch.volcano.sh": VCJOB,
    "job.batch.volcano.sh": VCJOB,
    "job": JOB,
    "jobs": JOB,
    "job.batch": JOB,
    "jobs.batch": JOB,
    "jobset": JOB_SET,
    "jobsets": JOB_SET,
    "gang": GANG,
    "gangs": GANG,
    "podgroup": GANG,
    "podgroups": GANG,
    "pg": GANG,
}


def kind_of(document: Mapping[str, Any]) -> str:
    """Return the job kind of an API document: VCJOB, JOB, JOB_SET or GANG; "" for any other kind."""
    group = str(document.get("apiVersion")).rpartition("/")[0]
    for kind, resource in RESOURCES.items():
        if (group, document.get("kind")) == (resource.group, resource.kind):
            return kind
    return (
        GANG
        if (group, document.get("kind")) in {(resource.group, resource.kind) for resource in group_kinds()}
        else ""
    )


def group_kinds() -> list[Resource]:
    """Return the PodGroup kinds of every API in all supported versions, the preferred first."""
    return [
        Resource(group.kind.group, version, group.kind.plural, group.kind.kind)
        for dialect in installed_dialects()
        for group in dialect.groups
        if group.kind.kind == "PodGroup"
        for version in group.kind.versions
    ]

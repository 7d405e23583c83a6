"""The templates that are scheduled as gangs, and the pods that stand for one when a cluster is asked. Pure."""

from __future__ import annotations

from typing import Any

from phalanx.dialects.kinds import ServedKind
from phalanx.hub.jobs.copies import job_question
from phalanx.hub.jobs.kinds import JOB_KINDS, JobKind, at
from phalanx.hub.names import GROUP_KINDS
from phalanx.jobs.suspended import PodSetRule, SuspendableKind

Json = dict[str, Any]

VOLCANO_JOB = JobKind(
    SuspendableKind(
        ServedKind("batch.volcano.sh", "v1alpha1", "jobs", "Job"),
        (PodSetRule(("spec", "tasks", "*"), ("template",), (("replicas",),)),),
    )
)
TEMPLATE_KINDS = (*JOB_KINDS, VOLCANO_JOB)


def template_kind(resource: object) -> JobKind | None:
    """By a binding's reference to its template; None for a kind that is not scheduled here."""
    named = at(resource, ("apiVersion",)), at(resource, ("kind",))
    return next((each for each in TEMPLATE_KINDS if (each.resource.api_version, each.name) == named), None)


def unknown_kind(resource: object) -> str:
    """What is said about a template of another kind."""
    named = f"{at(resource, ('kind',))} of {at(resource, ('apiVersion',))}"
    known = ", ".join(sorted({each.name for each in TEMPLATE_KINDS}))
    return (
        f"{named} is not scheduled as a gang (known are {known}): give it a policy without this schedulerName, "
        "or let it go along with its job (propagateDeps: true)"
    )


def question(kind: JobKind, template: Json) -> list[Json]:
    """The PodGroup and pods that stand for a template. Raises TooManyPodsError."""
    found = job_question(kind, template)
    if kind is not VOLCANO_JOB:
        return found
    head, *pods = found
    group = GROUP_KINDS[1]
    spec = dict(head["spec"])
    least = at(template, ("spec", "minAvailable"))
    if isinstance(least, int) and 0 < least < spec["minMember"]:
        spec["minMember"] = least
    for field, told in (("queue", "queue"), ("priorityClassName", "priorityClassName")):
        if isinstance(value := at(template, ("spec", field)), str) and value:
            spec[told] = value
    for pod in pods:
        metadata = pod["metadata"]
        metadata["labels"].pop(GROUP_KINDS[0].label, None)
        metadata["annotations"][group.annotations[0]] = head["metadata"]["name"]
    made = {"apiVersion": group.resource.api_version, "kind": group.resource.kind, "metadata": head["metadata"]}
    return [{**made, "spec": spec}, *pods]

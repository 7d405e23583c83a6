"""Templates of Karmada that are scheduled as gangs, and the pods that represent them in a forecast. No I/O."""

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
    """Return the job kind of a binding's template; None for a kind that is not scheduled here."""
    named = at(resource, ("apiVersion",)), at(resource, ("kind",))
    return next((kind for kind in TEMPLATE_KINDS if (kind.resource.api_version, kind.name) == named), None)


def unknown_kind(resource: object) -> str:
    """Return the message about a binding whose template has another kind."""
    named = f"{at(resource, ('kind',))} of {at(resource, ('apiVersion',))}"
    known = ", ".join(sorted({kind.name for kind in TEMPLATE_KINDS}))
    return (
        f"{named} is not scheduled as a gang (known kinds: {known}); use a policy without this schedulerName, "
        "or propagate it with its job (propagateDeps: true)"
    )


def question(kind: JobKind, template: Json) -> list[Json]:
    """Return the PodGroup and pods that represent a template in a forecast. Raises TooManyPodsError."""
    documents = job_question(kind, template)
    if kind is not VOLCANO_JOB:
        return documents
    head, *pods = documents
    group = GROUP_KINDS[1]
    spec = dict(head["spec"])
    min_available = at(template, ("spec", "minAvailable"))
    if isinstance(min_available, int) and 0 < min_available < spec["minMember"]:
        spec["minMember"] = min_available
    for field, group_field in (("queue", "queue"), ("priorityClassName", "priorityClassName")):
        if isinstance(value := at(template, ("spec", field)), str) and value:
            spec[group_field] = value
    for pod in pods:
        metadata = pod["metadata"]
        metadata["labels"].pop(GROUP_KINDS[0].label, None)
        metadata["annotations"][group.annotations[0]] = head["metadata"]["name"]
    new_head = {"apiVersion": group.resource.api_version, "kind": group.resource.kind, "metadata": head["metadata"]}
    return [{**new_head, "spec": spec}, *pods]

"""Check of users' rights to use a queue.

A queue can be used by users with the verb `use` on it, and by everyone in a namespace whose annotation names it (a
tenant cannot annotate a Namespace). Every kind that names a queue is checked, including the templates of
controllers, which have the right to use every queue. cli/policies/queues.yaml has the same rule in CEL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from phalanx.admission.context import DEFAULT
from phalanx.admission.fields import Json, annotations_of, mapping, sequence, text
from phalanx.dialects.gangs.declaration import QUEUE_ANNOTATION
from phalanx.jobs.suspended import QUEUE_LABEL, SUSPENDABLE

QUEUES_ANNOTATION = "phalanx.dev/queues"

Path = tuple[str, ...]

_OWN: Path = ("metadata", "labels")
#: Kinds (plural.group) that wait suspended in the queue of a label, and kinds that create them: paths of
#: the labels, `*` for each item of a list. A controller creates the PodGroups of such jobs.
LABELLED: Mapping[str, tuple[Path, ...]] = MappingProxyType(
    {f"{kind.served.plural}.{kind.served.group}": (_OWN,) for kind in SUSPENDABLE}
    | {
        "cronjobs.batch": (("spec", "jobTemplate", *_OWN),),
        "jobsets.jobset.x-k8s.io": (_OWN, ("spec", "replicatedJobs", "*", "template", *_OWN)),
        "trainjobs.trainer.kubeflow.org": (_OWN, ("spec", "labels")),
    }
)


def queues_named(resource: str, document: Json) -> set[str]:
    """Return the queues that an object of a resource (plural.group) names, also in its templates, without queue
    `default`, which every user can use."""
    spec = mapping(document.get("spec"))
    if resource in LABELLED:
        queues = {
            text(labels.get(QUEUE_LABEL)) for path in LABELLED[resource] for labels in _values_at(document, path)
        }
    elif resource == "pods":
        queues = set(_queues_of_pod(document))
    elif resource == "cronjobs.batch.volcano.sh":
        queues = set(_queues_of_job(mapping(mapping(spec.get("jobTemplate")).get("spec"))))
    elif resource == "jobflows.flow.volcano.sh":
        queues = {
            queue
            for step in sequence(spec.get("flows"))
            for queue in _queues_of_job(mapping(mapping(mapping(step).get("patch")).get("jobSpec")))
        }
    else:
        queues = set(_queues_of_job(spec))
    return queues - {"", DEFAULT}


def _queues_of_pod(pod: Json) -> Iterator[str]:
    yield text(annotations_of(pod).get(QUEUE_ANNOTATION))
    yield text(mapping(mapping(pod.get("metadata")).get("labels")).get(QUEUE_ANNOTATION))


def _queues_of_job(spec: Json) -> Iterator[str]:
    """Yield the queues that the spec of a Job, a JobTemplate or a PodGroup names."""
    yield text(spec.get("queue"))
    for task in sequence(spec.get("tasks")):
        yield from _queues_of_pod(mapping(mapping(task).get("template")))


def _values_at(value: Any, path: Path) -> Iterator[dict[str, Any]]:
    if not path:
        yield mapping(value)
    elif path[0] == "*":
        for item in sequence(value):
            yield from _values_at(item, path[1:])
    else:
        yield from _values_at(mapping(value).get(path[0]), path[1:])


def queues_listed(namespace: Json) -> set[str]:
    """Return the queues that every user can use in a Namespace, because its annotation lists them."""
    notes = annotations_of(namespace)
    listed = {name.strip() for name in text(notes.get(QUEUES_ANNOTATION)).split(",")}
    return (listed | {text(notes.get(QUEUE_ANNOTATION))}) - {""}


def queues_to_ask_for(resource: str, document: Json, old: Json | None, namespace: Json) -> list[str]:
    """Return the queues for which the requester needs the verb `use`: newly named queues that the namespace does
    not list."""
    before = queues_named(resource, old) if old is not None else set()
    return sorted(queues_named(resource, document) - before - queues_listed(namespace))


def refusal_of_use(queue: str, namespace: str) -> str:
    """Return the refusal for a user without the right to use a queue, in the words of the CEL policy."""
    return (
        f"queue {queue} is not allowed in this namespace; ask an administrator to add it to the annotation "
        f"{QUEUES_ANNOTATION} of namespace {namespace}, or for the verb use on queues.scheduling.volcano.sh/{queue}"
    )

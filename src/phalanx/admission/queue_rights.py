"""Who may submit to which queue.

A queue may be used by whoever has the verb `use` on it, and by all of a namespace whose annotation names it (a
tenant cannot write annotations of a Namespace). Every kind that names a queue is asked, also those from which a
controller, which may use every queue, makes the jobs. The same rule is told in CEL by cli/policies/queues.yaml.
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
#: Kinds (plural.group) that wait suspended in the queue of a label, and kinds that make such: where labels stand,
#: `*` for each of a list. The PodGroups of such jobs are made by a controller.
LABELLED: Mapping[str, tuple[Path, ...]] = MappingProxyType(
    {f"{kind.served.plural}.{kind.served.group}": (_OWN,) for kind in SUSPENDABLE}
    | {
        "cronjobs.batch": (("spec", "jobTemplate", *_OWN),),
        "jobsets.jobset.x-k8s.io": (_OWN, ("spec", "replicatedJobs", "*", "template", *_OWN)),
        "trainjobs.trainer.kubeflow.org": (_OWN, ("spec", "labels")),
    }
)


def queues_named(resource: str, document: Json) -> set[str]:
    """The queues that an object of a resource (plural.group) names, its templates included; `default` and none are
    everybody's."""
    spec = mapping(document.get("spec"))
    if resource in LABELLED:
        found = {text(labels.get(QUEUE_LABEL)) for path in LABELLED[resource] for labels in _at(document, path)}
    elif resource == "pods":
        found = set(_of_pod(document))
    elif resource == "cronjobs.batch.volcano.sh":
        found = set(_of_job(mapping(mapping(spec.get("jobTemplate")).get("spec"))))
    elif resource == "jobflows.flow.volcano.sh":
        found = {
            queue
            for step in sequence(spec.get("flows"))
            for queue in _of_job(mapping(mapping(mapping(step).get("patch")).get("jobSpec")))
        }
    else:
        found = set(_of_job(spec))
    return found - {"", DEFAULT}


def _of_pod(pod: Json) -> Iterator[str]:
    yield text(annotations_of(pod).get(QUEUE_ANNOTATION))
    yield text(mapping(mapping(pod.get("metadata")).get("labels")).get(QUEUE_ANNOTATION))


def _of_job(spec: Json) -> Iterator[str]:
    """Of a Job, a JobTemplate or a PodGroup."""
    yield text(spec.get("queue"))
    for task in sequence(spec.get("tasks")):
        yield from _of_pod(mapping(mapping(task).get("template")))


def _at(value: Any, path: Path) -> Iterator[dict[str, Any]]:
    if not path:
        yield mapping(value)
    elif path[0] == "*":
        for each in sequence(value):
            yield from _at(each, path[1:])
    else:
        yield from _at(mapping(value).get(path[0]), path[1:])


def queues_listed(namespace: Json) -> set[str]:
    """The queues that a Namespace may use, whoever asks."""
    notes = annotations_of(namespace)
    listed = {name.strip() for name in text(notes.get(QUEUES_ANNOTATION)).split(",")}
    return (listed | {text(notes.get(QUEUE_ANNOTATION))}) - {""}


def queues_to_ask_for(resource: str, document: Json, old: Json | None, namespace: Json) -> list[str]:
    """The queues for which a requester needs the verb `use`: those that are new and not the namespace's."""
    before = queues_named(resource, old) if old is not None else set()
    return sorted(queues_named(resource, document) - before - queues_listed(namespace))


def refusal_of_use(queue: str, namespace: str) -> str:
    """In the words of the policy."""
    return (
        f"queue {queue} may not be used here; have an administrator name it in the annotation {QUEUES_ANNOTATION} "
        f"of namespace {namespace}, or give you the verb use on queues.scheduling.volcano.sh/{queue}"
    )

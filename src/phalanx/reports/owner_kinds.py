"""Kinds of jobs that own gangs.

Users name a gang by such a job, which owns the pods or the operator's PodGroup.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from phalanx.dialects.workloads.table import BUILT_IN_RULES, owner_words
from phalanx.jobs.suspended import SUSPENDABLE, SuspendableKind
from phalanx.kube.paths import Resource

#: (API group, plural, kind) of jobs with pods that belong to a lower object or to a driver pod.
_ABOVE = (
    ("ray.io", "rayservices", "RayService"),
    ("sparkoperator.k8s.io", "sparkapplications", "SparkApplication"),
)
# Short names as the APIs define them.
_SHORT_NAMES = MappingProxyType({"lws": "leaderworkerset", "sparkapp": "sparkapplication"})


def job_kinds() -> Iterator[tuple[str, str, str]]:
    """Yield (API group, plural, kind) of each job kind that users submit, once."""
    ruled = (rule.owner for rule in BUILT_IN_RULES if rule.owner is not None)
    stated = [(resource.group, resource.plural, resource.kind) for resource in ruled]
    suspendable = [(kind.served.group, kind.served.plural, kind.served.kind) for kind in SUSPENDABLE]
    yield from dict.fromkeys((*stated, *suspendable, *_ABOVE))


def job_words() -> Mapping[str, str]:
    """Return the job kind for each word that users type for it: kind, plural and short name, all in lower case."""
    words = owner_words()
    for _, plural, kind in job_kinds():
        words |= {kind.lower(): kind.lower(), plural: kind.lower()}
    return MappingProxyType(words | _SHORT_NAMES)


def suspendable_kind(resource: Resource) -> SuspendableKind | None:
    """Return the way to suspend objects of a kind; None if they cannot be suspended."""
    served = ((kind, kind.served) for kind in SUSPENDABLE)
    asked = (resource.group, resource.kind)
    return next((kind for kind, served_kind in served if (served_kind.group, served_kind.kind) == asked), None)

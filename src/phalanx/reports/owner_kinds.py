"""Kinds whose objects own gangs, as people call them: their pods, or the PodGroups that their operators make, are
asked about by the name of the job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from phalanx.dialects.workloads.table import BUILT_IN_RULES, owner_words
from phalanx.jobs.suspended import SUSPENDABLE, SuspendableKind
from phalanx.kube.paths import Resource

#: (API group, plural, kind) of those whose pods belong to an object below them, or to the pods of their drivers.
_ABOVE = (
    ("ray.io", "rayservices", "RayService"),
    ("sparkoperator.k8s.io", "sparkapplications", "SparkApplication"),
)
# As the APIs themselves call them for short.
_SHORT_NAMES = MappingProxyType({"lws": "leaderworkerset", "sparkapp": "sparkapplication"})


def job_kinds() -> Iterator[tuple[str, str, str]]:
    """(API group, plural, kind) of what people submit, each once."""
    ruled = (rule.owner for rule in BUILT_IN_RULES if rule.owner is not None)
    stated = [(each.group, each.plural, each.kind) for each in ruled]
    suspendable = [(each.served.group, each.served.plural, each.served.kind) for each in SUSPENDABLE]
    yield from dict.fromkeys((*stated, *suspendable, *_ABOVE))


def job_words() -> Mapping[str, str]:
    """What people may call the kind of such an object (the plural and the API's own short name, too), and the kind,
    all in small letters."""
    words = owner_words()
    for _, plural, kind in job_kinds():
        words |= {kind.lower(): kind.lower(), plural: kind.lower()}
    return MappingProxyType(words | _SHORT_NAMES)


def suspendable_kind(resource: Resource) -> SuspendableKind | None:
    """How objects of a kind are suspended, where they can be."""
    served = ((kind, kind.served) for kind in SUSPENDABLE)
    asked = (resource.group, resource.kind)
    return next((kind for kind, each in served if (each.group, each.kind) == asked), None)

"""Gangs of Grove's PodGangs: pods name them in a label, and the object states the minimum of each PodClique."""

from __future__ import annotations

from phalanx.dialects.core import PodObject
from phalanx.dialects.kinds import WantedKind
from phalanx.dialects.workloads.rule import Membership, OwnerReader, WorkloadRule, WorkloadSize, whole

_LABEL = "grove.io/podgang"
_POD_GANG = WantedKind("scheduler.grove.io", "podgangs", "PodGang", ("v1alpha1",))


def _member(pod: PodObject) -> Membership | None:
    labels = pod.metadata.labels
    name = labels.get(_LABEL, "")
    if not name:
        return None
    clique = labels.get("grove.io/podclique", "")
    return Membership(f"podgang:{name}", f"PodGang {name}", clique, kind=(_POD_GANG.group, _POD_GANG.plural))


def _sizes(gang: OwnerReader) -> tuple[WorkloadSize, ...]:
    if gang.opts_out():
        return (WorkloadSize(f"podgang:{gang.name}", uid=gang.uid),)
    minima = {
        str(group.get("name")): whole(group, f"{path}.minReplicas")
        for path, group in gang.objects(gang.spec, "spec.podgroups")
    }
    roles = tuple(sorted((name, count) for name, count in minima.items() if count))
    return (WorkloadSize(f"podgang:{gang.name}", max(1, sum(minima.values())), roles, uid=gang.uid),)


POD_GANG = WorkloadRule("PodGang", _member, labels=(_LABEL,), owner=_POD_GANG, sizes=_sizes)

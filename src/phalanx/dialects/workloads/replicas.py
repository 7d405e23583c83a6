"""ReplicaSets and StatefulSets: how many pods they want at present, which limits the minimum that their pods state.

In a rolling update the new ReplicaSet of a Deployment first wants fewer pods than the minimum; a StatefulSet with
`podManagementPolicy: OrderedReady` creates the next pod only when the one before it is ready.
"""

from __future__ import annotations

from phalanx.dialects.core import OwnerReference
from phalanx.dialects.kinds import WantedKind
from phalanx.dialects.workloads.rule import KindKey, OwnerReader, WorkloadRule, WorkloadSize, by_owner, whole

_KINDS = {
    kind.kind: kind
    for kind in (
        WantedKind("apps", "replicasets", "ReplicaSet", ("v1",)),
        WantedKind("apps", "statefulsets", "StatefulSet", ("v1",)),
    )
}


def replicated_kind(owner: OwnerReference | None) -> KindKey | None:
    """Return the kind of a pod's controller if its number of replicas limits a stated minimum."""
    if owner is None or owner.api_version.rpartition("/")[0] != "apps" or owner.kind not in _KINDS:
        return None
    kind = _KINDS[owner.kind]
    return kind.group, kind.plural


def _sizes_of(kind: str, owner: OwnerReader) -> tuple[WorkloadSize, ...]:
    wanted = max(1, whole(owner.spec, "spec.replicas", 1))
    if kind == "StatefulSet" and owner.spec.get("podManagementPolicy") != "Parallel":
        wanted = 1
    # Gangs of a controller's pods are named after its kind, or after its uid alone (Volcano's group-min-member).
    names = (by_owner(kind, owner.name, owner.uid), owner.uid)
    return tuple(WorkloadSize(name, wanted=wanted, uid=owner.uid) for name in names)


def _rule(kind: WantedKind) -> WorkloadRule:
    # The rule groups no pods: it has neither labels nor controllers.
    return WorkloadRule(kind.kind, lambda _: None, owner=kind, sizes=lambda owner: _sizes_of(kind.kind, owner))


REPLICA_RULES = tuple(map(_rule, _KINDS.values()))

"""Gangs of RayClusters, also as part of RayJob and RayService: head and workers start together."""

from __future__ import annotations

from phalanx.dialects.core import PodObject
from phalanx.dialects.gangs.declaration import controlling_owner
from phalanx.dialects.kinds import WantedKind
from phalanx.dialects.workloads.rule import (
    Membership,
    OwnerReader,
    WorkloadPart,
    WorkloadRule,
    WorkloadSize,
    by_owner,
    group_of,
    one_gang,
    whole,
)
from phalanx.model.selectors import Requirement
from phalanx.model.topology import SubgroupRule

_GROUP = "ray.io/group"
_REPLICA = "ray.io/worker-group-replica-name"
_HEAD = "headgroup"
_CLUSTER = WantedKind("ray.io", "rayclusters", "RayCluster", ("v1",))


def _member(pod: PodObject) -> Membership | None:
    """Return the gang of a RayCluster's pod. The submitter of a RayJob belongs to a Job, and starts on its own."""
    owner, group = controlling_owner(pod.metadata), pod.metadata.labels.get(_GROUP, "")
    if owner is None or owner.kind != "RayCluster":
        return None
    if pod.metadata.labels.get("ray.io/node-type") not in ("head", "worker"):
        return None
    kind = (_CLUSTER.group, _CLUSTER.plural)
    return Membership(by_owner(owner.kind, owner.name, owner.uid), f"RayCluster {owner.name}", group, kind=kind)


def _sizes(cluster: OwnerReader) -> tuple[WorkloadSize, ...]:
    spec = cluster.spec
    scales = spec.get("enableInTreeAutoscaling") is True
    roles, units = {_HEAD: 1}, []
    for path, group in cluster.objects(spec, "spec.workerGroupSpecs"):
        if group.get("suspend") is True:
            continue
        minimum = whole(group, f"{path}.minReplicas")
        maximum = whole(group, f"{path}.maxReplicas", 2**31 - 1)
        wanted = minimum if scales else max(minimum, min(whole(group, f"{path}.replicas", minimum), maximum))
        hosts = max(1, whole(group, f"{path}.numOfHosts", 1))
        name = str(group.get("groupName"))
        roles[name] = wanted * hosts
        if hosts > 1:
            # Each replica starts as a whole. Older operators set no label; then only the number counts.
            units.append(SubgroupRule(name, (Requirement(_GROUP, "In", (name,)),), (_REPLICA,), hosts))
    # KubeRay does not update the number in its PodGroup (scheduler-plugins) after the cluster's creation.
    part = WorkloadPart("cluster", sum(roles.values()))
    of_group = WorkloadSize(group_of(cluster.uid), uid=cluster.uid, parts=(part,))
    return (*one_gang(cluster, _CLUSTER.kind, roles, tuple(units)), of_group)


RAY_CLUSTER = WorkloadRule(
    "RayCluster",
    _member,
    controllers=((_CLUSTER.group, _CLUSTER.kind),),
    owner=_CLUSTER,
    sizes=_sizes,
    staged=True,
)

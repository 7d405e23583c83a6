"""VolumeRestrictions. Source: pkg/scheduler/framework/plugins/volumerestrictions/volume_restrictions.go."""

from __future__ import annotations

from tests.differential.oracle.storage import claims_of, volumes_of
from tests.differential.oracle.world import Wire, World, namespace_of


def objection(world: World, pod: Wire, node: Wire) -> str:
    for use in claims_of(world, pod):
        if use.claim is None and not use.ephemeral:
            return f'persistentvolumeclaim "{use.name}" not found'
    for tenant in world.tenants(node["metadata"]["name"]):
        if any(_conflict(own, other) for own in volumes_of(pod) for other in volumes_of(tenant)):
            return "node(s) had no available disk"
    if _sole_use_is_taken(world, pod):
        return (
            "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
            "another pod"
        )
    return ""


def _conflict(own: Wire, other: Wire) -> bool:
    """Two pods with the same disk cannot share a node, unless both only read it (EBS: not even then)."""
    for kind, names in (
        ("gcePersistentDisk", ("pdName",)),
        ("awsElasticBlockStore", ("volumeID",)),
        ("iscsi", ("iqn",)),
        ("rbd", ("pool", "image")),
    ):
        mine, theirs = own.get(kind), other.get(kind)
        if mine is None or theirs is None:
            continue
        same = all(mine.get(name) == theirs.get(name) for name in names)
        if kind == "rbd":
            same = same and bool(set(mine.get("monitors") or []) & set(theirs.get("monitors") or []))
        both_read = bool(mine.get("readOnly")) and bool(theirs.get("readOnly"))
        if same and (kind == "awsElasticBlockStore" or not both_read):
            return True
    return False


def _sole_use_is_taken(world: World, pod: Wire) -> bool:
    """A claim with access mode ReadWriteOncePod that any pod with a node uses, wherever that is.

    Claims of generic ephemeral volumes are not looked at: they belong to one pod anyway.
    """
    sole = {
        use.name
        for use in claims_of(world, pod)
        if use.claim is not None
        and not use.ephemeral
        and "ReadWriteOncePod" in (use.claim["spec"].get("accessModes") or [])
    }
    for other in world.running():
        if world.node(other["spec"]["nodeName"]) is None or namespace_of(other) != namespace_of(pod):
            continue
        if any(use.name in sole and not use.ephemeral for use in claims_of(world, other)):
            return True
    return False

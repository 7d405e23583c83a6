"""Recount of volumes, attachments and disks from the pods that use them."""

from __future__ import annotations

from collections import Counter

from phalanx.cluster.pods.records import NO_NODE
from phalanx.cluster.state import ClusterState
from phalanx.cluster.volumes.attachments import ATTACHMENTS, Attachments
from phalanx.cluster.volumes.disks import DISKS, Disks
from phalanx.cluster.volumes.supply import VOLUMES, Promise, VolumeSupply
from phalanx.model.pod import MemberState
from phalanx.model.volumes import Disk, SoleUse

_HOLDING = (MemberState.ASSUMED, MemberState.BOUND, MemberState.RUNNING, MemberState.TERMINATING)


def audit_volumes(state: ClusterState) -> None:
    """Raise AssertionError where a count differs from the pods."""
    allocators = state.nodes.allocators
    attachments, disks, supply = allocators[ATTACHMENTS], allocators[DISKS], allocators[VOLUMES]
    assert isinstance(attachments, Attachments)
    assert isinstance(disks, Disks)
    assert isinstance(supply, VolumeSupply)
    used: dict[int, Counter[tuple[str, str]]] = {}
    mounted: dict[int, Counter[Disk]] = {}
    users: Counter[str] = Counter()
    promised: Counter[str] = Counter()
    for record in state.pods.values():
        if record.row == NO_NODE or record.state not in _HOLDING:
            continue
        needs = record.pod_class.spec.volumes
        if attachments.concerns(record.pod_class.spec):
            used.setdefault(record.row, Counter()).update(record.pod.volumes.attached)
        if held := [need for need in needs if isinstance(need, Disk)]:
            mounted.setdefault(record.row, Counter()).update(held)
        users.update(need.claim for need in needs if isinstance(need, SoleUse))
        promise = record.allocated.get(VOLUMES)
        if isinstance(promise, Promise):
            promised.update(filter(None, promise.volumes))
    assert {row: counts for row, counts in used.items() if counts} == attachments._used._held
    assert mounted == disks._mounted._held
    assert +users == +disks._users
    assert dict(promised) == supply._promised
    free = {name for places in supply._free.values() for site in places._sites.values() for name in site.things}
    assert free == {
        name for name, volume in supply._volumes.items() if not volume.reserved and name not in promised
    }

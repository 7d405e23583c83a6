"""Supply of volumes for PersistentVolumeClaims that are bound at placement: available volumes, and room for
provisioning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from phalanx.cluster.allocators.base import NO_ALTERNATIVES, UNLIMITED_COPIES, Alternatives, NodeAllocator
from phalanx.cluster.change_log import ChangeLog
from phalanx.cluster.nodes.labels import Rows, row_numbers
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.cluster.volumes.alternatives import Candidate, different_choices
from phalanx.cluster.volumes.places import Places, Site, buckets_of
from phalanx.model.gang import Gang
from phalanx.model.matching import Labels, all_hold, reaches
from phalanx.model.pod import Pod, PodClass
from phalanx.model.preparations import Preparation
from phalanx.model.selectors import NodeSelectorTerm, Requirement
from phalanx.model.volumes import (
    BindClaim,
    StorageCapacity,
    StorageCapacityGone,
    StorageClass,
    StorageClassGone,
    StorageDriver,
    UnboundClaim,
    UnusableVolume,
    Volume,
    VolumeGone,
)

if TYPE_CHECKING:
    from phalanx.cluster.nodes.rows import NodeRows

VOLUMES = "volumes"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"

_HOST = "kubernetes.io/hostname"

Claims = tuple[UnboundClaim, ...]
Sites = dict[str, list[Site[Volume]]]


class Promise(msgspec.Struct, frozen=True):
    """Volumes chosen for one pod: for each of its unbound claims the volume, "" for one to be provisioned on
    `node`."""

    node: str
    volumes: tuple[str, ...]


class _Capacity(msgspec.Struct, frozen=True):
    """A CSIStorageCapacity, indexed by the nodes that can use it."""

    name: str
    rank: int
    affinity: tuple[NodeSelectorTerm, ...] | None


class VolumeSupply(NodeAllocator):
    """Allocator of volumes for PersistentVolumeClaims with delayed binding (kube-scheduler 1.36, VolumeBinding).

    A claim gets the smallest free volume that is suitable and reachable; otherwise one is provisioned, if its class
    permits it there and a driver with published capacity has enough. A volume for a placed pod is promised: no
    other pod gets it until the pod is gone or the API shows its claim.
    """

    name = VOLUMES

    def __init__(self, nodes: NodeRows) -> None:
        self._nodes = nodes
        self.changes = ChangeLog()
        self._volumes: dict[str, Volume] = {}
        self._free: dict[str, Places[Volume]] = {}
        self._wide: dict[str, int] = {}
        self._promised: dict[str, int] = {}
        self._classes: dict[str, StorageClass] = {}
        self._capacities: dict[str, tuple[str, _Capacity]] = {}
        self._room: dict[str, Places[_Capacity]] = {}
        self._drivers: dict[str, StorageDriver] = {}

    # Queries for a class

    def concerns(self, pod_class: PodClass) -> bool:
        return any(isinstance(need, UnboundClaim | UnusableVolume) for need in pod_class.volumes)

    def shared(self, pod_class: PodClass) -> bool:
        return any(claim.storage_class in self._wide for claim in _claims(pod_class))

    def refuse(self, pod_class: PodClass) -> str | None:
        return next((need.reason for need in pod_class.volumes if isinstance(need, UnusableVolume)), None)

    def copies(self, pod_class: PodClass, rows: Rows) -> IntArray:
        claims = _claims(pod_class)
        copies: IntArray = np.zeros(self._nodes.alive[rows].shape, dtype=np.int64)
        if self.refuse(pod_class) is not None:
            return copies
        if self._anywhere(claims):
            copies[:] = UNLIMITED_COPIES
            return copies
        for position, row in self._each(rows):
            copies[position] = self._copies(claims, row)
        return copies

    def undercounts(self, pod_class: PodClass) -> bool:
        return len(_claims(pod_class)) > 1

    def most_copies(self, pod_class: PodClass, rows: Rows) -> IntArray:
        copies, claims = self.copies(pod_class, rows), _claims(pod_class)
        for position, row in self._each(rows):
            if not 0 < copies[position] < UNLIMITED_COPIES:
                continue
            labels = self._nodes.labels.of(row)
            sites = self._sites(claims, labels)
            counts = [
                len(self._candidates(claim, row, labels, sites))
                for claim in claims
                if self._obstacle(claim, row, labels)
            ]
            copies[position] = max(int(copies[position]), min(counts, default=0))
        return copies

    def explain(self, pod_class: PodClass, rows: Rows) -> list[tuple[str, BoolArray]]:
        shape, claims = self._nodes.alive[rows].shape, _claims(pod_class)
        refusal = self.refuse(pod_class)
        if refusal is not None:
            return [(refusal, np.ones(shape, dtype=np.bool_))]
        reasons = {reason: np.zeros(shape, dtype=np.bool_) for reason in (NO_VOLUME, NO_SPACE)}
        for position, row in self._each(rows):
            reason = self._objection(claims, row)
            if reason:
                reasons[reason][position] = True
        return list(reasons.items())

    def _each(self, rows: Rows) -> Iterator[tuple[int, int]]:
        """Yield (position in the result, row) of every row with a node."""
        numbers = row_numbers(rows, self._nodes.capacity).tolist()
        return ((position, row) for position, row in enumerate(numbers) if self._nodes.alive[row])

    def _anywhere(self, claims: Claims) -> bool:
        """Return whether volumes can be provisioned for all claims on every node."""
        for claim in claims:
            known = self._classes.get(claim.storage_class)
            if claim.node or known is None or not known.provisioner or known.topologies:
                return False
            driver = self._drivers.get(known.provisioner)
            if driver is not None and driver.tracks_capacity:
                return False
        return True

    def _copies(self, claims: Claims, row: int) -> int:
        """Return the number of pods with these claims that the row admits one after the other; an upper bound if
        it shares volumes with other rows."""
        labels = self._nodes.labels.of(row)
        sites = self._sites(claims, labels)
        if self._match(claims, row, labels, sites, set()) is None:
            return 0
        unprovisionable = [claim for claim in claims if self._obstacle(claim, row, labels)]
        if not unprovisionable:
            return UNLIMITED_COPIES
        if any(claim.volume for claim in unprovisionable):
            return 1
        if any(claim.storage_class in self._wide for claim in unprovisionable):
            return min(sum(len(site.things) for site in sites[claim.storage_class]) for claim in unprovisionable)
        used: set[str] = set()
        copies = 0
        while (chosen := self._match(claims, row, labels, sites, used)) is not None:
            used.update(chosen)
            copies += 1
        return copies

    def _objection(self, claims: Claims, row: int) -> str:
        """Return the reason why a node row admits no pod with these claims; "" if it does."""
        if any(claim.node and claim.node != self._nodes.names[row] for claim in claims):
            return NO_VOLUME
        labels, used = self._nodes.labels.of(row), set[str]()
        sites = self._sites(claims, labels)
        for claim in claims:
            volume = self._smallest(claim, labels, sites, used)
            if volume:
                used.add(volume)
            elif obstacle := self._obstacle(claim, row, labels):
                return obstacle
        return ""

    def _sites(self, claims: Claims, labels: Labels) -> Sites:
        """Return the sites with free volumes for a node with these labels, by storage class."""
        names = {claim.storage_class for claim in claims}
        return {name: self._free[name].at(labels) if name in self._free else [] for name in names}

    def _match(self, claims: Claims, row: int, labels: Labels, sites: Sites, used: set[str]) -> list[str] | None:
        """Return a volume for each claim of a pod, "" for one to be provisioned; None if the node row cannot serve
        them all."""
        used_names, chosen = set(used), []
        for claim in claims:
            if claim.node and claim.node != self._nodes.names[row]:
                return None
            volume = self._smallest(claim, labels, sites, used_names)
            if not volume and self._obstacle(claim, row, labels):
                return None
            used_names.add(volume)
            chosen.append(volume)
        return chosen

    def _smallest(self, claim: UnboundClaim, labels: Labels, sites: Sites, used: set[str]) -> str:
        """Return the smallest suitable volume for a claim, "" for none. A claim that is being provisioned matches
        no other volume."""
        if claim.node:
            return ""
        if claim.volume:
            volume = self._volumes.get(claim.volume)
            return volume.name if volume is not None and reaches(volume.affinity, labels) else ""
        best = (0, "")
        for site in sites[claim.storage_class]:
            for volume in site.from_rank(claim.size):
                if volume.name not in used and _suits(volume, claim):
                    best = min((volume.size, volume.name), best) if best[1] else (volume.size, volume.name)
                    break
        return best[1]

    def _obstacle(self, claim: UnboundClaim, row: int, labels: Labels) -> str:
        """Return the reason why no volume can be provisioned for a claim on a node row; "" if one can."""
        known = self._classes.get(claim.storage_class)
        if known is None or not known.provisioner:
            return NO_VOLUME
        if known.topologies and not any(
            all(labels.get(key) in values for key, values in term) for term in known.topologies
        ):
            return NO_VOLUME
        driver = self._drivers.get(known.provisioner)
        if driver is None or not driver.tracks_capacity or not claim.size:
            return ""
        places = self._room.get(claim.storage_class)
        enough = places and any(site.order[-1][0] >= claim.size for site in places.at(labels))
        return "" if enough else NO_SPACE

    # Allocations

    def take(self, pod: Pod, row: int) -> object | None:
        claims = _claims(pod.pod_class)
        labels = self._nodes.labels.of(row)
        chosen = self._match(claims, row, labels, self._sites(claims, labels), set())
        if chosen is None or not claims:
            return None
        promise = Promise(self._nodes.names[row], tuple(chosen))
        self.book(promise, row, 1)
        return promise

    def alternatives(self, pod: Pod, row: int, limit: int) -> Alternatives:
        claims = _claims(pod.pod_class)
        labels = self._nodes.labels.of(row)
        sites = self._sites(claims, labels)
        if not claims or self._match(claims, row, labels, sites, set()) is None:
            return NO_ALTERNATIVES
        candidates = [self._candidates(claim, row, labels, sites) for claim in claims]
        choices, complete = different_choices(candidates, limit)
        node = self._nodes.names[row]
        return Alternatives([Promise(node, chosen) for chosen in choices], complete)

    def _candidates(self, claim: UnboundClaim, row: int, labels: Labels, sites: Sites) -> list[Candidate]:
        """Return the volumes that a claim can get on a row, the smallest first; last "" for one to provision."""
        if claim.node or claim.volume:
            return [(self._smallest(claim, labels, sites, set()), claim)]
        suitable = [
            volume
            for site in sites[claim.storage_class]
            for volume in site.from_rank(claim.size)
            if _suits(volume, claim)
        ]
        suitable.sort(key=lambda volume: (volume.size, volume.name))
        candidates: list[Candidate] = [
            (volume.name, (volume.size, volume.storage_class, volume.affinity, _traits(volume)))
            for volume in suitable
        ]
        return candidates if self._obstacle(claim, row, labels) else [*candidates, ("", "")]

    def observed(self, pod: Pod, row: int) -> object | None:
        """Return None: the pending volumes of a bound pod are handled by its claims and the scheduler that
        placed it."""
        return None

    def book(self, allocated: object, row: int, sign: int) -> None:
        assert isinstance(allocated, Promise)
        for name in filter(None, allocated.volumes):
            count = self._promised.get(name, 0) + sign
            if count > 0:
                self._promised[name] = count
            else:
                del self._promised[name]
            volume = self._volumes.get(name)
            if volume is None or volume.reserved or count not in (0, 1):
                continue
            if sign > 0:
                self._hide(volume)
            elif count == 0:
                self._show(volume)

    def preparations(self, pod: Pod, allocated: object, gang: Gang | None) -> tuple[Preparation, ...]:
        assert isinstance(allocated, Promise)
        return tuple(
            BindClaim(pod.namespace, claim, allocated.node, volume)
            for claim, volume in zip(pod.volumes.unbound, allocated.volumes, strict=True)
        )

    # Events

    def learn(self, fact: object) -> bool:
        match fact:
            case Volume():
                return self._offer(fact)
            case VolumeGone(name):
                return self._withdraw(name)
            case StorageClass():
                grown = self._classes.get(fact.name) != fact
                self._classes[fact.name] = fact
                return grown and self._changed_everywhere()
            case StorageClassGone(name):
                return self._classes.pop(name, None) is not None and self._changed_everywhere()
            case StorageCapacity():
                self._forget_capacity(fact.key)
                terms = (NodeSelectorTerm(fact.topology),) if fact.topology else None
                room = _Capacity(fact.key, fact.limit, terms)
                self._capacities[fact.key] = (fact.storage_class, room)
                self._room.setdefault(fact.storage_class, Places()).add(room)
                self._changed_at(terms)
                return True
            case StorageCapacityGone(key):
                self._forget_capacity(key)
                return False
            case StorageDriver():
                last = self._drivers.get(fact.name)
                self._drivers[fact.name] = fact
                return last != fact and self._changed_everywhere()
        return False

    def _offer(self, volume: Volume) -> bool:
        if self._volumes.get(volume.name) == volume:
            return False
        self._withdraw(volume.name)
        self._volumes[volume.name] = volume
        if volume.reserved:
            self._changed_at(volume.affinity)
        elif volume.name not in self._promised:
            self._show(volume)
        return True

    def _withdraw(self, name: str) -> bool:
        volume = self._volumes.pop(name, None)
        if volume is None:
            return False
        if volume.reserved:
            self._changed_at(volume.affinity)
        elif name not in self._promised:
            self._hide(volume)
        return False

    def _show(self, volume: Volume) -> None:
        site = self._free.setdefault(volume.storage_class, Places()).add(volume)
        if _is_wide(volume):
            self._wide[volume.storage_class] = self._wide.get(volume.storage_class, 0) + 1
        if not _has_twin(volume, site):
            self._changed_at(volume.affinity)

    def _hide(self, volume: Volume) -> None:
        places = self._free[volume.storage_class]
        site = places.remove(volume)
        if not places:
            del self._free[volume.storage_class]
        if _is_wide(volume):
            self._wide[volume.storage_class] -= 1
            if not self._wide[volume.storage_class]:
                del self._wide[volume.storage_class]
        if not _has_twin(volume, site):
            self._changed_at(volume.affinity)

    def _forget_capacity(self, key: str) -> None:
        storage_class, room = self._capacities.pop(key, ("", None))
        if room is not None:
            self._room[storage_class].remove(room)
            if not self._room[storage_class]:
                del self._room[storage_class]
            self._changed_at(room.affinity)

    def _changed_at(self, terms: tuple[NodeSelectorTerm, ...] | None) -> None:
        """Record the node rows that meet one of the terms as changed, and possibly further rows."""
        buckets, nodes = buckets_of(terms), self._nodes
        if buckets is None:
            self._changed_everywhere()
            return
        values: dict[str, list[str]] = {}
        for key, value in buckets:
            values.setdefault(key, []).append(value)
        for key, wanted in values.items():
            in_bucket = nodes.labels.satisfies(Requirement(key, "In", tuple(wanted)), slice(None))
            self.changes.note_all(np.flatnonzero(in_bucket).tolist())

    def _changed_everywhere(self) -> bool:
        self.changes.note_all(self._nodes.rows().tolist())
        return True


def _claims(pod_class: PodClass) -> Claims:
    return tuple(need for need in pod_class.volumes if isinstance(need, UnboundClaim))


def _suits(volume: Volume, claim: UnboundClaim) -> bool:
    """Return whether a free volume satisfies a claim, regardless of its location."""
    return (
        volume.size >= claim.size
        and volume.block == claim.block
        and volume.attributes == claim.attributes
        and set(claim.modes) <= set(volume.modes)
        and (not claim.selector or all_hold(claim.selector, dict(volume.labels)))
    )


def _is_wide(volume: Volume) -> bool:
    """Return whether the volume can be reached from several nodes."""
    buckets = buckets_of(volume.affinity)
    return buckets is None or len(buckets) > 1 or any(key != _HOST for key, _ in buckets)


def _has_twin(volume: Volume, site: Site[Volume]) -> bool:
    """Return whether a site for several nodes has another equivalent volume: then one more or less does not
    change the feasibility of nodes."""
    if not _is_wide(volume):
        return False
    for other in site.from_rank(volume.rank):
        if other.rank != volume.rank:
            return False
        if other.name != volume.name and _traits(other) == _traits(volume):
            return True
    return False


def _traits(volume: Volume) -> tuple[object, ...]:
    return volume.modes, volume.block, volume.attributes, volume.labels

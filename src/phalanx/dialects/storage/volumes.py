"""Enricher for volumes: the effect of PersistentVolumeClaims, volumes, classes, CSI drivers and attachments on
pods.

A pod's claims are resolved into its needs on a node (`model/volumes.py`). A claim that no node can serve is a
refusal with kube-scheduler's message, until the claim changes. Volumes and attachments are passed to their
allocators as facts.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from phalanx.dialects.core import PodObject, VolumeObject
from phalanx.dialects.enricher import Changes, PodEnricher, no_changes
from phalanx.dialects.kinds import ServedKind, WantedKind
from phalanx.dialects.reader import Document
from phalanx.dialects.storage.csi import driver_of
from phalanx.dialects.storage.pod_volumes import NONE_NAMED, NamedVolumes, named_volumes
from phalanx.dialects.storage.storage_facts import StorageFacts
from phalanx.dialects.storage.storage_objects import (
    NO_PROVISIONER,
    StoredAttachment,
    StoredClass,
    StoredVolume,
    VolumeClaimObject,
    read_attachment,
    read_capacity,
    read_claim,
    read_class,
    read_driver,
    read_node_storage,
    read_volume,
)
from phalanx.model.events import AllocatorFact, ClusterEvent
from phalanx.model.gang import Gang
from phalanx.model.pod import Pod, PodClass
from phalanx.model.volumes import (
    NO_VOLUMES,
    Attachment,
    BoundVolume,
    ClaimAttachment,
    NodeAttachments,
    NodeStorage,
    PodVolumes,
    SoleUse,
    StorageCapacityGone,
    StorageClassGone,
    StorageDriver,
    UnboundClaim,
    UnusableVolume,
    VolumeGone,
    VolumeNeed,
)

CLAIMS, VOLUMES, CLASSES = "persistentvolumeclaims", "persistentvolumes", "storageclasses"
NODES, DRIVERS, CAPACITIES, ATTACHMENTS = "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments"

_STORAGE = "storage.k8s.io"
_SOLE = "ReadWriteOncePod"
_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"
_LOST_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
# Limit for pairs of a class and its needs; a cache with more entries is cleared.
_CACHE_SIZE = 50_000
# Limit for the cached volume lists without relevant volumes.
_MOST_LISTS = 2_000


class _Resolved(msgspec.Struct, frozen=True):
    """Resolved needs of a pod's volumes, and the names of these volumes."""

    needs: tuple[VolumeNeed, ...] = ()
    names: PodVolumes = NO_VOLUMES


_UNRESOLVED = _Resolved()
# Facts about an object, and the uids of pods that have to be enriched again.
StorageChanges = tuple[list[AllocatorFact], set[str]]
_NO_POD = ("", "", NONE_NAMED)


class Volumes(PodEnricher):
    """Resolves the volumes of pods. A change of an object costs time per dependent pod."""

    kinds = (
        WantedKind("", CLAIMS, "PersistentVolumeClaim", ("v1",)),
        WantedKind("", VOLUMES, "PersistentVolume", ("v1",)),
        WantedKind(_STORAGE, CLASSES, "StorageClass", ("v1",)),
        WantedKind(_STORAGE, NODES, "CSINode", ("v1",)),
        WantedKind(_STORAGE, DRIVERS, "CSIDriver", ("v1",)),
        WantedKind(_STORAGE, CAPACITIES, "CSIStorageCapacity", ("v1",)),
        WantedKind(_STORAGE, ATTACHMENTS, "VolumeAttachment", ("v1",)),
    )

    def __init__(self) -> None:
        self._pods: dict[str, tuple[str, str, NamedVolumes]] = {}
        # Volume lists by their id, which is unique while the lists are stored.
        self._irrelevant_lists: dict[int, list[VolumeObject]] = {}
        self._resolved: dict[str, _Resolved] = {}
        self._users: dict[str, set[str]] = {}
        self._inline: dict[tuple[str, str], set[str]] = {}
        self._claims: dict[str, VolumeClaimObject] = {}
        self._volumes: dict[str, StoredVolume] = {}
        self._classes: dict[str, StoredClass] = {}
        self._attachments: dict[str, StoredAttachment] = {}
        self._known: dict[str, set[str]] = {kind.plural: set() for kind in self.kinds}
        # Claims by the objects that they depend on.
        self._of_class: dict[str, set[str]] = {}
        self._of_volume: dict[str, set[str]] = {}
        self._reserved: dict[str, set[str]] = {}
        self._attached_on: dict[str, set[str]] = {}
        self._attached_as: dict[str, set[str]] = {}
        self._facts = StorageFacts()
        self._twins: dict[tuple[PodClass, tuple[VolumeNeed, ...]], PodClass] = {}

    # pods

    def concerns(self, pod: PodObject, pod_class: PodClass) -> bool:
        return named_volumes(pod) is not NONE_NAMED

    def pod(self, pod: PodObject, spec: Pod) -> Changes:
        named = NONE_NAMED if spec.finished else self._named(pod)
        last = self._pods.get(spec.uid, _NO_POD)[2]
        if named is last or named == last:
            return no_changes()
        touched = self._remove_pod(spec) | self._add_pod(spec, named)
        return [], self._resolve(touched)

    def _named(self, pod: PodObject) -> NamedVolumes:
        """Return the pod's volumes that affect where it can run. Identically written specs share one list, mostly
        an empty one."""
        volumes = pod.spec.volumes
        if not volumes or id(volumes) in self._irrelevant_lists:
            return NONE_NAMED
        named = named_volumes(pod)
        if named is NONE_NAMED:
            if len(self._irrelevant_lists) >= _MOST_LISTS:
                self._irrelevant_lists.clear()
            self._irrelevant_lists[id(volumes)] = volumes
        return named

    def pod_gone(self, spec: Pod) -> Changes:
        return [], self._resolve(self._remove_pod(spec))

    @property
    def idle(self) -> bool:
        return not self._resolved

    def enriched(self, spec: Pod, gang: Gang | None) -> Pod:
        resolved = self._resolved.get(spec.uid)
        if resolved is None:
            return spec
        key = (spec.pod_class, resolved.needs)
        twin = self._twins.get(key)
        if twin is None:
            if len(self._twins) >= _CACHE_SIZE:
                self._twins.clear()
            twin = self._twins[key] = msgspec.structs.replace(spec.pod_class, volumes=resolved.needs)
        return msgspec.structs.replace(spec, pod_class=twin, volumes=resolved.names)

    def _add_pod(self, spec: Pod, named: NamedVolumes) -> set[str]:
        """Add a pod with volumes; return the pods that share a volume with it, itself included."""
        if not named:
            return set()
        self._pods[spec.uid] = (spec.namespace, spec.name, named)
        touched = {spec.uid}
        for use in named.claims:
            touched |= _add(self._users, f"{spec.namespace}/{use.name}", spec.uid)
        for source in named.attached:
            touched |= _add(self._inline, source, spec.uid)
        return touched

    def _remove_pod(self, spec: Pod) -> set[str]:
        namespace, _, named = self._pods.pop(spec.uid, _NO_POD)
        self._resolved.pop(spec.uid, None)
        touched = {spec.uid} if named else set()
        for use in named.claims:
            touched |= _drop(self._users, f"{namespace}/{use.name}", spec.uid)
        for source in named.attached:
            touched |= _drop(self._inline, source, spec.uid)
        return touched

    def _resolve(self, uids: Iterable[str]) -> set[str]:
        """Resolve the volumes of these pods; return the pods with a changed result."""
        changed = set()
        for uid in uids:
            if uid not in self._pods:
                changed.add(uid)
                continue
            resolved = self._needs(uid, *self._pods[uid])
            if resolved != self._resolved.get(uid, _UNRESOLVED):
                self._resolved[uid] = resolved
                changed.add(uid)
        return changed

    def _needs(self, uid: str, namespace: str, pod: str, named: NamedVolumes) -> _Resolved:
        needs: list[VolumeNeed] = list(named.disks)
        unbound: list[tuple[UnboundClaim, str]] = []
        attached = list(named.attached)
        refusal = self._refusal(uid, namespace, pod, named)
        if refusal:
            needs.append(UnusableVolume(refusal))
        for use in named.claims:
            key = f"{namespace}/{use.name}"
            claim = self._claims.get(key)
            attached.append(("", key))
            if claim is None:
                continue
            if _SOLE in claim.modes and not use.own:
                needs.append(SoleUse(key))
            driver = self._attachment(claim).driver
            if driver:
                needs.append(Attachment(driver, ("", key) if len(self._users[key]) > 1 else None))
            if refusal:
                continue
            if not claim.bound:
                unbound.append((self._unbound(claim), claim.name))
            elif claim.volume in self._volumes:
                volume = self._volumes[claim.volume]
                if volume.spec.affinity is not None or (volume.zones and not use.own):
                    needs.append(BoundVolume(volume.spec.affinity, () if use.own else volume.zones))
        needs += [
            Attachment(source[0], source if len(self._inline[source]) > 1 else None) for source in named.attached
        ]
        # Claims being provisioned come first, then the smallest, as in kube-scheduler.
        unbound = sorted(dict.fromkeys(unbound), key=lambda pair: (not pair[0].node, pair[0].size, repr(pair[0])))
        names = PodVolumes(tuple(name for _, name in unbound), tuple(dict.fromkeys(attached)))
        return _Resolved((*sorted(_once(needs), key=repr), *(claim for claim, _ in unbound)), names)

    def _refusal(self, uid: str, namespace: str, pod: str, named: NamedVolumes) -> str:
        """Return the reason why no node is suitable; "" if one can be (kube-scheduler 1.36: the PreFilters of
        VolumeRestrictions, VolumeBinding and VolumeZone in this order)."""
        claims = [(use, self._claims.get(f"{namespace}/{use.name}")) for use in named.claims]
        for use, claim in claims:
            if claim is None and not use.own:
                return f'persistentvolumeclaim "{use.name}" not found'
        for use, claim in claims:
            if claim is None:
                return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{use.name}"'
            if claim.fault:
                return f'persistentvolumeclaim "{use.name}" cannot be read: {claim.fault}'
            if claim.lost:
                return f'persistentvolumeclaim "{use.name}" bound to non-existent persistentvolume "{claim.volume}"'
            if claim.deleting:
                return f'persistentvolumeclaim "{use.name}" is being deleted'
            if use.own and claim.owner != uid:
                return f"PVC {claim.key} was not created for pod {namespace}/{pod} (pod is not owner)"
        for _, claim in claims:
            if claim is not None and not claim.bound and (claim.volume or not self._is_delayed(claim)):
                return _IMMEDIATE + self._missing_volume(claim)
        for use, claim in claims:
            if claim is not None and claim.bound and claim.volume not in self._volumes:
                return _LOST_VOLUME if use.own else f'persistentvolume "{claim.volume}" not found'
        return ""

    def _missing_volume(self, claim: VolumeClaimObject) -> str:
        """Return in brackets what an unbound claim lacks: its class, or the volume of a provisioner."""
        known = self._classes.get(claim.storage_class)
        if claim.volume or not claim.storage_class:
            return ""
        if known is None:
            return f' (storageclass "{claim.storage_class}" not found)'
        if known.provisioner in ("", NO_PROVISIONER):
            return ""
        return f" (waits for claim {claim.name}, which {known.provisioner} has to provision)"

    def _is_delayed(self, claim: VolumeClaimObject) -> bool:
        known = self._classes.get(claim.storage_class)
        return known is not None and known.delayed

    def _unbound(self, claim: VolumeClaimObject) -> UnboundClaim:
        names = sorted(self._reserved.get(claim.key, ()))
        reserved = next((name for name in names if self._volumes[name].is_reserved_for(claim)), "")
        return UnboundClaim(
            storage_class=claim.storage_class,
            size=claim.size,
            modes=claim.modes,
            block=claim.block,
            attributes=claim.attributes,
            selector=claim.selector,
            node=claim.node,
            volume=reserved,
        )

    def _attachment(self, claim: VolumeClaimObject) -> ClaimAttachment:
        volume = self._volumes.get(claim.volume) if claim.volume else None
        if volume is not None:
            return ClaimAttachment(claim.key, *(volume.attached or ("", "")))
        known = self._classes.get(claim.storage_class)
        driver = driver_of(known.provisioner) if known is not None and known.provisioner != NO_PROVISIONER else ""
        return ClaimAttachment(claim.key, driver, f"claim {claim.key}" if driver else "")

    # objects

    def updated(self, kind: ServedKind, document: Document) -> Changes:
        return self._publish(self._read_object(kind, document))

    def removed(self, kind: ServedKind, namespace: str, name: str) -> Changes:
        return self._publish(self._remove(kind, f"{namespace}/{name}" if namespace else name))

    def malformed(self, kind: ServedKind, namespace: str, name: str, uid: str, error: str) -> Changes:
        """Process an undecodable storage object: a PersistentVolumeClaim holds its pods; any other object counts as
        deleted."""
        if kind.plural != CLAIMS:
            return self.removed(kind, namespace, name)
        claim = VolumeClaimObject(namespace, name, uid, fault=error)
        self._known[CLAIMS].add(claim.key)
        return self._publish(self._claim(claim.key, claim))

    def unserved(self, kind: ServedKind) -> Changes:
        facts: list[ClusterEvent] = []
        touched: set[str] = set()
        for key in sorted(self._known[kind.plural]):
            events, uids = self._publish(self._remove(kind, key))
            facts += events
            touched |= uids
        return facts, touched

    def _publish(self, changes: StorageChanges) -> Changes:
        return self._facts.new(changes[0]), changes[1]

    def _read_object(self, kind: ServedKind, document: Document) -> StorageChanges:
        match kind.plural:
            case "persistentvolumeclaims":
                claim = read_claim(document)
                self._known[CLAIMS].add(claim.key)
                return self._claim(claim.key, claim)
            case "persistentvolumes":
                volume = read_volume(document)
                self._known[VOLUMES].add(volume.spec.name)
                return self._volume(volume.spec.name, volume)
            case "storageclasses":
                known = read_class(document)
                self._known[CLASSES].add(known.spec.name)
                return self._class(known.spec.name, known)
            case "csinodes":
                storage = read_node_storage(document)
                self._known[NODES].add(storage.node)
                return [AllocatorFact("attachments", storage)], set()
            case "csidrivers":
                driver = read_driver(document)
                self._known[DRIVERS].add(driver.name)
                return _driver(driver), set()
            case "csistoragecapacities":
                capacity = read_capacity(document)
                if capacity is None:
                    metadata = document["metadata"]
                    return self._remove(kind, f"{metadata.get('namespace') or ''}/{metadata['name']}")
                self._known[CAPACITIES].add(capacity.key)
                return [AllocatorFact("volumes", capacity)], set()
        name = str(document["metadata"]["name"])
        self._known[ATTACHMENTS].add(name)
        return self._replace_attachment(name, read_attachment(document)), set()

    def _remove(self, kind: ServedKind, key: str) -> StorageChanges:
        """Remove a storage object; `key` is namespace/name, or the name of a cluster-scoped one."""
        self._known[kind.plural].discard(key)
        match kind.plural:
            case "persistentvolumeclaims":
                return self._claim(key, None)
            case "persistentvolumes":
                return self._volume(key, None)
            case "storageclasses":
                return self._class(key, None)
            case "csinodes":
                return [AllocatorFact("attachments", NodeStorage(key))], set()
            case "csidrivers":
                return _driver(StorageDriver(key)), set()
            case "csistoragecapacities":
                return [AllocatorFact("volumes", StorageCapacityGone(key))], set()
        return self._replace_attachment(key, None), set()

    def _claim(self, key: str, claim: VolumeClaimObject | None) -> StorageChanges:
        last = self._claims.get(key)
        if claim == last:
            return [], set()
        if last is not None:
            _drop(self._of_class, last.storage_class, key)
            _drop(self._of_volume, last.volume, key)
            del self._claims[key]
        if claim is None:
            facts: list[AllocatorFact] = [AllocatorFact("attachments", ClaimAttachment(key))]
        else:
            self._claims[key] = claim
            _add(self._of_class, claim.storage_class, key)
            _add(self._of_volume, claim.volume, key)
            facts = [AllocatorFact("attachments", self._attachment(claim))]
        return facts, self._resolve(self._users.get(key, ()))

    def _volume(self, name: str, volume: StoredVolume | None) -> StorageChanges:
        last = self._volumes.get(name)
        if volume == last:
            return [], set()
        claims = set(self._of_volume.get(name, ()))
        if last is not None:
            _drop(self._reserved, last.claim, name)
            claims.add(last.claim)
            del self._volumes[name]
        if volume is not None:
            self._volumes[name] = volume
            _add(self._reserved, volume.claim, name)
            claims.add(volume.claim)
        facts: list[AllocatorFact] = [AllocatorFact("volumes", _offer(name, volume))]
        facts += [
            AllocatorFact("attachments", self._attachment(self._claims[key]))
            for key in sorted(claims & self._claims.keys())
        ]
        nodes = {self._attachments[attachment_name].node for attachment_name in self._attached_as.get(name, ())}
        facts += map(self._attachments_of, sorted(nodes))
        return facts, self._resolve({uid for key in claims for uid in self._users.get(key, ())})

    def _class(self, name: str, known: StoredClass | None) -> StorageChanges:
        if known == self._classes.get(name):
            return [], set()
        if known is None:
            del self._classes[name]
            facts: list[AllocatorFact] = [AllocatorFact("volumes", StorageClassGone(name))]
        else:
            self._classes[name] = known
            facts = [AllocatorFact("volumes", known.spec)]
        claims = sorted(self._of_class.get(name, ()))
        facts += [AllocatorFact("attachments", self._attachment(self._claims[key])) for key in claims]
        return facts, self._resolve({uid for key in claims for uid in self._users.get(key, ())})

    def _replace_attachment(self, name: str, attachment: StoredAttachment | None) -> list[AllocatorFact]:
        last = self._attachments.pop(name, None)
        if last is not None:
            _drop(self._attached_on, last.node, name)
            _drop(self._attached_as, last.volume, name)
        if attachment is not None:
            self._attachments[name] = attachment
            _add(self._attached_on, attachment.node, name)
            _add(self._attached_as, attachment.volume, name)
        return [self._attachments_of(state.node) for state in (last, attachment) if state is not None]

    def _attachments_of(self, node: str) -> AllocatorFact:
        handles = set()
        for name in self._attached_on.get(node, ()):
            attachment = self._attachments[name]
            volume = self._volumes.get(attachment.volume)
            # Like upstream, only genuine CSI volumes count, and no translated ones.
            if attachment.driver and volume is not None and volume.handle is not None:
                handles.add((attachment.driver, volume.handle))
        return AllocatorFact("attachments", NodeAttachments(node, tuple(sorted(handles))))


def _offer(name: str, volume: StoredVolume | None) -> object:
    """Return a PersistentVolume for the scheduler if it is available, or reserved by name for a claim that is not
    bound to it yet."""
    if volume is None or volume.deleting or not (volume.claim or volume.available):
        return VolumeGone(name)
    return volume.spec


def _driver(driver: StorageDriver) -> list[AllocatorFact]:
    return [AllocatorFact("volumes", driver), AllocatorFact("attachments", driver)]


def _once(needs: Iterable[VolumeNeed]) -> list[VolumeNeed]:
    """Return distinct volume needs of a pod, except that every attached volume in the pod's own spec counts."""
    uncounted = [need for need in needs if isinstance(need, Attachment) and need.volume is None]
    return uncounted + list(dict.fromkeys(need for need in needs if need not in uncounted))


def _add(index: dict[str, set[str]] | dict[tuple[str, str], set[str]], key: object, member: str) -> set[str]:
    """Add a pod to those that use a volume; return the previous sole user, which now shares it."""
    members: set[str] = index.setdefault(key, set())  # type: ignore[arg-type]
    former_sole_member = set(members) if len(members) == 1 else set()
    members.add(member)
    return former_sole_member - members if member in former_sole_member else former_sole_member


def _drop(index: dict[str, set[str]] | dict[tuple[str, str], set[str]], key: object, member: str) -> set[str]:
    """Remove a pod from those that use a volume; return the pod that is now the sole user."""
    members: set[str] = index.get(key, set())  # type: ignore[call-overload]
    members.discard(member)
    if not members:
        index.pop(key, None)  # type: ignore[call-overload]
    return set(members) if len(members) == 1 else set()

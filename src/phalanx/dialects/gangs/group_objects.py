"""PodGroups and Workloads that declare gangs: their last seen declarations and statuses."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from hashlib import blake2b
from sys import intern
from typing import Any

import msgspec

from phalanx.dialects.dialect import GroupKind
from phalanx.dialects.gangs.gang_index import GangIndex
from phalanx.dialects.gangs.generated_pod_groups import GeneratedPodGroup, generated_pod_group
from phalanx.dialects.gangs.group_spec import GroupSpec
from phalanx.dialects.gangs.job_owner import job_of_group
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.reader import Document, is_whole
from phalanx.model.events import ClusterEvent
from phalanx.model.gang import GangKey, GroupRef, Problem

log = logging.getLogger(__name__)

Address = tuple[ServedKind, str, str]
"""(kind, namespace, name) of an object."""


class GroupRecord(msgspec.Struct, frozen=True):
    """Input for the status of a gang's own object, beside the gang and its counts.

    `status`, `generation` and `hypernode` (its annotation) are the object's last seen values. `occupied_by` names
    the owners of the oldest member, for kinds whose status does. `ours` is False if every active member belongs to
    another scheduler: then the status is not ours to write.
    """

    ref: GroupRef
    status: Mapping[str, Any]
    generation: int
    occupied_by: str
    ours: bool
    hypernode: str = ""


class Seen(msgspec.Struct, frozen=True, gc=False):
    """Last seen status, its phase, and generation of a PodGroup, and its annotation with the HyperNode of its
    members.

    The status is encoded, since it is rarely read and a dictionary of it needs three times the memory. It stays a
    dictionary if it cannot be encoded, because of numbers that no Kubernetes type allows. `declaration` is a digest
    of all that the gang is read from beside the status; empty if the object is read anew for each change.
    """

    stored_status: bytes | dict[str, Any] = b""
    generation: int = 0
    hypernode: str = ""
    declaration: bytes = b""
    phase: str = ""

    @property
    def status(self) -> Mapping[str, Any]:
        if isinstance(self.stored_status, dict):
            return self.stored_status
        status: dict[str, Any] = msgspec.msgpack.decode(self.stored_status) if self.stored_status else {}
        return status


_UNSEEN = Seen()
# Metadata that changes with each write of a status.
_VOLATILE = frozenset({"resourceVersion", "managedFields", "generation"})
_DIGEST_BYTES = 16


class GroupObjects:
    """Processes PodGroups and Workloads and passes their gang declarations to the gang index.

    `want` is called with the kinds of owners whose objects are to be read.
    """

    def __init__(
        self, gangs: GangIndex, kinds: Mapping[tuple[str, str], GroupKind], want: Callable[[tuple[str, str]], None]
    ) -> None:
        self._kinds = kinds
        self._want = want
        self._gangs = gangs
        self._seen: dict[Address, Seen] = {}
        self._specs: dict[Address, tuple[GroupSpec, ...]] = {}
        self._made: dict[GangKey, dict[ServedKind, GeneratedPodGroup]] = {}

    def priority_class_of(self, value: int) -> str:
        """Return the name of the PriorityClass with a value; "" if there is none."""
        return self._gangs.priority_class_of(value)

    def postpone(self) -> None:
        """Postpone the resolution of gangs until `catch_up`, after the first listing, when all objects have
        arrived."""
        self._gangs.postpone()

    def catch_up(self) -> list[ClusterEvent]:
        return self._gangs.catch_up()

    def updated(self, kind: ServedKind, document: Document) -> list[ClusterEvent]:
        metadata = document["metadata"]
        # Thousands of gangs have the same namespace, which is stored once.
        address = (kind, intern(str(metadata.get("namespace") or "")), str(metadata["name"]))
        rules = self._kinds[kind.group, kind.plural]
        digest = _declaration_digest(document) if rules.restate is not None else b""
        if rules.restate is not None and digest and digest == self._seen.get(address, _UNSEEN).declaration:
            # The common case: a scheduler has written the status.
            self._seen[address] = seen_of(document, rules.hypernode, digest)
            status, specs = document.get("status") or {}, self._specs.get(address, ())
            return self._declare(address, tuple([rules.restate(spec, status) for spec in specs]))
        made = generated_pod_group(kind, document)
        self._note_made(address, made)
        try:
            specs = rules.read(kind, document)
        except Exception as error:
            log.exception("%s of %s/%s cannot be read", kind.plural, *address[1:])
            fault = f"{type(error).__name__}: {error}"
            specs, digest = (unreadable_group(*address, str(metadata.get("uid") or ""), fault),), b""
        # Generated PodGroups depend on the owners of their fields, which the digest excludes.
        self._seen[address] = seen_of(document, rules.hypernode, digest if made is None else b"")
        if (job := job_of_group(metadata)) is not None:
            specs = tuple(msgspec.structs.replace(spec, job=job) for spec in specs)
        for spec in specs:
            if spec.owner_kind is not None:
                self._want(spec.owner_kind)
        return self._declare(address, specs)

    def malformed(self, kind: ServedKind, namespace: str, name: str, uid: str, error: str) -> list[ClusterEvent]:
        address = (kind, namespace, name)
        self._seen.pop(address, None)
        self._note_made(address, None)
        return self._declare(address, (unreadable_group(kind, namespace, name, uid, error),))

    def removed(self, kind: ServedKind, namespace: str, name: str) -> list[ClusterEvent]:
        address = (kind, namespace, name)
        self._seen.pop(address, None)
        self._note_made(address, None)
        return self._declare(address, ())

    def unserved(self, kind: ServedKind) -> list[ClusterEvent]:
        events: list[ClusterEvent] = []
        for address in sorted(address for address in self._specs if address[0] == kind):
            events += self.removed(*address)
        return events

    def phase(self, key: GangKey) -> str:
        """Return the phase in the status of a gang's PodGroup; "" if it has none."""
        gang = self._gangs.gang(key)
        return self.seen(gang.source).phase if gang is not None and gang.source else ""

    def seen(self, ref: GroupRef) -> Seen:
        kind = ServedKind(ref.group, ref.version, ref.plural, ref.kind)
        return self._seen.get((kind, ref.namespace, ref.name), _UNSEEN)

    def made(self, key: GangKey) -> list[GeneratedPodGroup]:
        """Return the PodGroups of this name that the scheduler generated."""
        return list(self._made.get(key, {}).values())

    def _note_made(self, address: Address, made: GeneratedPodGroup | None) -> None:
        kind, key = address[0], GangKey(address[1], address[2])
        if made is not None:
            self._made.setdefault(key, {})[kind] = made
        elif key in self._made:
            self._made[key].pop(kind, None)
            if not self._made[key]:
                del self._made[key]

    def _declare(self, address: Address, specs: tuple[GroupSpec, ...]) -> list[ClusterEvent]:
        last = self._specs.pop(address, ())
        if specs:
            self._specs[address] = specs
        return self._gangs.replace(address[1], last, specs) if specs != last else []


def _declaration_digest(document: Document) -> bytes:
    """Return a digest of an object without its status; empty if its status is no object, or the rest cannot be
    encoded."""
    status = document.get("status")
    if status is not None and not isinstance(status, dict):
        return b""
    metadata = [item for item in document["metadata"].items() if item[0] not in _VOLATILE]
    rest = [item for item in document.items() if item[0] not in ("metadata", "status")]
    try:
        return blake2b(msgspec.msgpack.encode((metadata, rest)), digest_size=_DIGEST_BYTES).digest()
    except (OverflowError, ValueError, RecursionError):
        return b""


def seen_of(document: Document, annotation: str = "", declaration: bytes = b"") -> Seen:
    """Return status, generation and HyperNode of a PodGroup; `annotation` is the key of its HyperNode,
    `declaration` the digest of the rest of the object."""
    status, generation = document.get("status"), document["metadata"].get("generation")
    phase = status.get("phase") if isinstance(status, dict) else ""
    annotations = document["metadata"].get("annotations")
    hypernode = annotations.get(annotation) if annotation and isinstance(annotations, dict) else ""
    return Seen(
        _stored(status) if status and isinstance(status, dict) else b"",
        generation if is_whole(generation) else 0,
        hypernode if isinstance(hypernode, str) else "",
        declaration,
        intern(phase) if isinstance(phase, str) else "",
    )


def _stored(status: dict[str, Any]) -> bytes | dict[str, Any]:
    try:
        return msgspec.msgpack.encode(status)
    except (OverflowError, ValueError, RecursionError):
        return status


def unreadable_group(resource: ServedKind, namespace: str, name: str, uid: str, error: str) -> GroupSpec:
    """Return a substitute for an undecodable object: its gang is held, and the problem names the error.

    The object could forbid eviction, or partial eviction, so the members are not evicted.
    """
    ref = GroupRef(resource.group, resource.version, resource.kind, resource.plural, namespace, name, uid)
    wrong = f"{resource.kind} {namespace}/{name} ({resource.group}) cannot be read: {error}"
    problem = Problem.of("InvalidPodGroup", wrong, "apply it again")
    return GroupSpec(ref, name, unit=True, preemptable=False, problem=problem)

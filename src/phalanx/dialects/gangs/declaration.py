"""Gang declaration of one pod, before its conflicts are resolved (docs/rules/coscheduling.md, 1.1 and 1.3).

This module reads neither other pods nor group objects. Values are unparsed, so that the resolver can quote them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter

import msgspec

from phalanx.dialects.core import Metadata, OwnerReference, PodObject
from phalanx.dialects.gangs import extras as koordinator
from phalanx.dialects.gangs.extras import Extras, Stated, read_extras
from phalanx.dialects.gangs.naming import GangNaming, Precedence

log = logging.getLogger(__name__)

OWN_GROUP = "phalanx.dev/pod-group"
OWN_MIN_COUNT = "phalanx.dev/min-count"
OWN_DISRUPTION_MODE = "phalanx.dev/disruption-mode"
OWN_TOPOLOGY_KEY = "phalanx.dev/topology-key"
QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"
#: Annotation and label that Volcano's job controller writes: the queue of the job.
JOB_QUEUE = "volcano.sh/queue-name"
TASK_SPEC = "volcano.sh/task-spec"


class Declaration(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """Gang declaration of one pod. `name` is the gang's name, from `key`. `conflicts` are other gang names that the
    pod states. `disruption_mode` and `topology_key` are from our own annotations.

    If the owner of a pod defines its gang (`phalanx.dialects.workloads`), `role` is its role, `usual_minimum` the
    size that its labels state, and `owner` the (API group, plural) of the kind of object with more details.
    `part` is the workload part of a pod in a gang with an object, where parts can be created one after the
    other. `basic_minimum` is the minimum that the pod states beside the name of a native group; it counts where
    the group has a basic policy.
    """

    naming: GangNaming
    name: str
    key: str
    minimum: Stated | None = None
    extras: Extras = koordinator.NO_EXTRAS
    queue: Stated | None = None
    conflicts: tuple[Stated, ...] = ()
    disruption_mode: Stated | None = None
    topology_key: Stated | None = None
    role: str = ""
    usual_minimum: Stated | None = None
    owner: tuple[str, str] | None = None
    part: str = ""
    basic_minimum: Stated | None = None


# Rank of the naming, place in the pod (reader, labels, annotations), and rank within that place.
_Order = tuple[int, int, int]
_Reader = tuple[_Order, GangNaming, Callable[[PodObject], tuple[Stated, ...]]]
_Name = tuple[_Order, GangNaming, Stated]
_UNUSED: tuple[str, tuple[tuple[_Order, GangNaming], ...]] = ("", ())
# By the key of a label or annotation: the key with its place, as shown, and its conventions.
_Keys = dict[str, tuple[str, list[tuple[_Order, GangNaming]]]]


class GangDeclarations:
    """Reads the gang declarations of pods, by all known naming conventions."""

    def __init__(self, namings: Sequence[GangNaming]) -> None:
        ordered = sorted(namings, key=lambda naming: naming.precedence)
        named = [naming for naming in ordered if naming.precedence is not Precedence.UNNAMED]
        self._readers = [
            ((rank, 0, 0), naming, naming.read) for rank, naming in enumerate(named) if naming.read is not None
        ]
        self._labels = _by_key("label", 1, (naming.labels for naming in named), named)
        self._annotations = _by_key("annotation", 2, (naming.annotations for naming in named), named)
        # Most pods have at most one of these keys, which a set operation detects at once.
        self._keys = frozenset((*self._labels, *self._annotations))
        alone = [naming for naming in named if naming.rules.alone]
        self._alone = (
            frozenset(key for naming in alone for key in naming.labels),
            frozenset(key for naming in alone for key in naming.annotations),
        )
        self._unnamed = [
            ((0, 0, 0), naming, naming.read)
            for naming in ordered
            if naming.precedence is Precedence.UNNAMED and naming.read is not None
        ]
        shared = tuple(minimum for naming in namings for minimum in naming.minima if minimum.name_key)
        self._minima = {
            naming: (*(minimum for minimum in naming.minima if not minimum.name_key), *shared) for naming in namings
        }
        self._minimum_keys = frozenset(minimum.key for naming in namings for minimum in naming.minima)

    def declare(self, pod: PodObject) -> Declaration | None:
        """Return the pod's gang declaration; None for a pod without a gang."""
        metadata = pod.metadata
        labels, annotations = metadata.labels, metadata.annotations
        names = self._read(self._readers, pod)
        self._find_names(names, self._labels, labels, annotations)
        if annotations:
            self._find_names(names, self._annotations, annotations, annotations)
        names = names or self._read(self._unnamed, pod)
        if not names:
            return None
        if len(names) > 1:
            names.sort(key=itemgetter(0))
        _, naming, chosen = names[0]
        return Declaration(
            naming=naming,
            name=chosen.value,
            key=chosen.key,
            minimum=self._minimum(metadata, naming, chosen.value),
            extras=read_extras(labels, annotations),
            queue=stated_queue(metadata),
            conflicts=tuple([name for _, _, name in names[1:] if name.value != chosen.value]),
            disruption_mode=_own(annotations, OWN_DISRUPTION_MODE, chosen.value) if annotations else None,
            topology_key=_own(annotations, OWN_TOPOLOGY_KEY, chosen.value) if annotations else None,
            basic_minimum=self._minimum_of(names[1:], metadata) if naming.needed else None,
        )

    def _find_names(
        self,
        names: list[_Name],
        ways: _Keys,
        values: Mapping[str, str],
        annotations: Mapping[str, str],
    ) -> None:
        """Add to `names` the gang names in a pod's labels, or in its annotations."""
        for key in self._keys.intersection(values):
            shown, conventions = ways.get(key, _UNUSED)
            for order, naming in conventions:
                if values[key] and not (naming.unless and _is_none(naming, annotations)):
                    names.append((order, naming, Stated(shown, values[key])))

    def nameless(self, metadata: Metadata) -> str:
        """Return the message for a pod whose label or annotation for the gang name is empty, probably by mistake;
        "" for other pods."""
        if self._keys.isdisjoint(metadata.labels) and self._keys.isdisjoint(metadata.annotations):
            return ""
        empty_keys = [f"label {key}" for key in self._labels if metadata.labels.get(key) == ""]
        empty_keys += [f"annotation {key}" for key in self._annotations if metadata.annotations.get(key) == ""]
        if not empty_keys:
            return ""
        return (
            f"{empty_keys[0]} is empty, so the pod belongs to no group and is scheduled on its own; write the "
            "group's name into it and create the pod again, or remove it"
        )

    def may_declare_alone(self, metadata: Metadata) -> bool:
        """Return whether a pod names a gang that can exist without a PodGroup; cheap."""
        return not (self._alone[0].isdisjoint(metadata.labels) and self._alone[1].isdisjoint(metadata.annotations))

    def _read(self, readers: list[_Reader], pod: PodObject) -> list[_Name]:
        names: list[_Name] = []
        for entry in readers:
            order, naming, read = entry
            try:
                if stated_names := read(pod):
                    names += [(order, naming, name) for name in stated_names]
            except Exception:
                # Every pod passes here: a bug in one dialect must not hide all pods.
                name = naming.rules.name
                log.exception("reading the gang names of %r has failed; they are ignored from now on", name)
                self._readers = [reader for reader in self._readers if reader is not entry]
                self._unnamed = [reader for reader in self._unnamed if reader is not entry]
        return names

    def _minimum_of(self, names: Iterable[_Name], metadata: Metadata) -> Stated | None:
        """Return the minimum of the first name that has one."""
        minima = (self._minimum(metadata, naming, name.value) for _, naming, name in names)
        return next((minimum for minimum in minima if minimum is not None), None)

    def _minimum(self, metadata: Metadata, naming: GangNaming, gang: str) -> Stated | None:
        """Return the minimum that a pod states for `gang`; one beside the name of another gang does not count."""
        if self._minimum_keys.isdisjoint(metadata.labels) and self._minimum_keys.isdisjoint(metadata.annotations):
            return None
        for minimum in self._minima[naming]:
            values = metadata.labels if minimum.label else metadata.annotations
            text = values.get(minimum.key)
            if not text:
                continue
            beside = values.get(minimum.name_key) if minimum.needs_name else values.get(minimum.name_key, gang)
            if beside == gang:
                return Stated(f"{'label' if minimum.label else 'annotation'} {minimum.key}", text)
        return None


def _by_key(place: str, rank_of_place: int, keys: Iterable[Sequence[str]], namings: Sequence[GangNaming]) -> _Keys:
    """Return the naming conventions that use each label or annotation key, in their order."""
    namings_by_key: _Keys = {}
    for rank, (naming, own) in enumerate(zip(namings, keys, strict=True)):
        for position, key in enumerate(own):
            _, conventions = namings_by_key.setdefault(key, (f"{place} {key}", []))
            conventions.append(((rank, rank_of_place, position), naming))
    return namings_by_key


def _is_none(naming: GangNaming, annotations: Mapping[str, str]) -> bool:
    return any(annotations.get(key) == value for key, value in naming.unless)


def role_of(metadata: Metadata) -> str:
    return metadata.annotations.get(TASK_SPEC) or metadata.labels.get(TASK_SPEC) or ""


def stated_queue(metadata: Metadata) -> Stated | None:
    """Return the queue that a pod's own metadata names; the annotation has precedence over the label."""
    if value := metadata.annotations.get(QUEUE_ANNOTATION):
        return Stated(f"annotation {QUEUE_ANNOTATION}", value)
    if value := metadata.labels.get(QUEUE_ANNOTATION):
        return Stated(f"label {QUEUE_ANNOTATION}", value)
    return None


def job_queue(metadata: Metadata) -> str:
    """Return the queue of the Volcano Job that owns a pod, as its controller has recorded it; "" for other pods.

    Users can write the keys on pods of their own, where they name no queue.
    """
    owner = controlling_owner(metadata)
    if owner is None or owner.kind != "Job" or not owner.api_version.startswith("batch.volcano.sh/"):
        return ""
    return metadata.annotations.get(JOB_QUEUE) or metadata.labels.get(JOB_QUEUE, "")


def controlling_owner(metadata: Metadata) -> OwnerReference | None:
    for owner in metadata.owner_references:
        if owner.controller:
            return owner
    return None


def owner_names(metadata: Metadata) -> str:
    """Return the names of all owners of a pod, in the format of scheduler-plugins for `occupiedBy`."""
    owners = metadata.owner_references
    if len(owners) == 1:
        return f"{metadata.namespace}/{owners[0].name}"
    return ",".join(sorted([f"{metadata.namespace}/{owner.name}" for owner in owners]))


def _own(annotations: Mapping[str, str], key: str, gang: str) -> Stated | None:
    """Return the value of one of our own annotations on a pod if it belongs to this gang."""
    if not annotations.get(key) or annotations.get(OWN_GROUP) != gang:
        return None
    return Stated(f"annotation {key}", annotations[key])

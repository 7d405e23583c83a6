"""What one pod says about its gang, before anyone decides what holds (coscheduling.md, 1.1 and 1.3).

Nothing here looks at other pods or at group objects. Values stay as they were written, so that the resolver can
quote them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.dialects.core import Metadata, OwnerReference, PodObject
from phalanx.dialects.gangs import extras as koordinator
from phalanx.dialects.gangs.extras import Extras, Stated, read_extras
from phalanx.dialects.gangs.made_groups import DIALECTS
from phalanx.model.gang import Dialect

X_K8S_LABEL = "scheduling.x-k8s.io/pod-group"
SIGS_LABEL = "pod-group.scheduling.sigs.k8s.io"
GROUP_NAME_ANNOTATION = "scheduling.k8s.io/group-name"
GROUP_MIN_MEMBER = ("scheduling.k8s.io/group-min-member", "scheduling.volcano.sh/group-min-member")
OWN_GROUP = "phalanx.dev/pod-group"
OWN_MIN_COUNT = "phalanx.dev/min-count"
OWN_DISRUPTION_MODE = "phalanx.dev/disruption-mode"
OWN_TOPOLOGY_KEY = "phalanx.dev/topology-key"
QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"
TASK_SPEC = "volcano.sh/task-spec"
TASK_INDEX = "volcano.sh/task-index"
NO_INDEX = 2**31

# In order of precedence; the field of the native API (D7) comes before all of them, then our own annotation.
_NAME_LABELS = (
    (Dialect.X_K8S, X_K8S_LABEL),
    (Dialect.SIGS, SIGS_LABEL),
    (Dialect.SIGS_NAME, "pod-group.scheduling.sigs.k8s.io/name"),
    (Dialect.SIGS_NAME, "pod-group.scheduling.x-k8s.io/name"),
    (Dialect.LIGHTWEIGHT, "pod-group/name"),
)
_NAME_ANNOTATIONS = (
    (Dialect.KOORDINATOR, koordinator.NAME),
    (Dialect.KUBE_BATCH, GROUP_NAME_ANNOTATION),
)
_OWN_NAME = (Dialect.OWN, OWN_GROUP)
# The names of gangs that need no object.
_LABELS_ALONE = tuple(key for dialect, key in _NAME_LABELS if dialect in DIALECTS)
_ANNOTATIONS_ALONE = tuple(key for dialect, key in _NAME_ANNOTATIONS if dialect in DIALECTS)
# The key of a minimum, and the key of the name that it belongs to.
_MINIMUM_LABELS = (
    ("pod-group.scheduling.sigs.k8s.io/min-available", "pod-group.scheduling.sigs.k8s.io/name"),
    ("pod-group.scheduling.x-k8s.io/min-available", "pod-group.scheduling.x-k8s.io/name"),
    ("pod-group/min-available", "pod-group/name"),
)


class Declaration(msgspec.Struct, frozen=True, cache_hash=True):
    """`name` is the gang's, from `key`. `conflicts` are other names that the pod states and that do not hold.
    `disruption_mode` and `topology_key` are those of our own annotations.
    """

    dialect: Dialect
    name: str
    key: str
    minimum: Stated | None = None
    extras: Extras = koordinator.NO_EXTRAS
    queue: Stated | None = None
    conflicts: tuple[Stated, ...] = ()
    disruption_mode: Stated | None = None
    topology_key: Stated | None = None


def declare(pod: PodObject) -> Declaration | None:
    """The gang that the pod wants to be in; None for a pod on its own."""
    metadata = pod.metadata
    labels, annotations = metadata.labels, metadata.annotations
    names: list[tuple[Dialect, Stated]] = []
    group, workload = pod.spec.scheduling_group, pod.spec.workload_ref
    if group is not None and group.pod_group_name:
        names.append((Dialect.NATIVE, Stated("spec.schedulingGroup.podGroupName", group.pod_group_name)))
    if workload is not None and workload.name:
        parts = (workload.name, workload.pod_group, workload.pod_group_replica_key)
        names.append((Dialect.NATIVE, Stated("spec.workloadRef", "/".join(filter(None, parts)))))
    if annotations.get(OWN_GROUP):
        names.append((Dialect.OWN, Stated(f"annotation {OWN_GROUP}", annotations[OWN_GROUP])))
    for dialect, key in _NAME_LABELS:
        if labels.get(key):
            names.append((dialect, Stated(f"label {key}", labels[key])))
    for dialect, key in _NAME_ANNOTATIONS:
        if annotations.get(key):
            names.append((dialect, Stated(f"annotation {key}", annotations[key])))
    if not names:
        return _shadow(metadata)
    dialect, chosen = names[0]
    return Declaration(
        dialect=dialect,
        name=chosen.value,
        key=chosen.key,
        minimum=_minimum(labels, annotations, chosen.value),
        extras=read_extras(labels, annotations),
        queue=stated_queue(metadata),
        conflicts=tuple(name for _, name in names[1:] if name.value != chosen.value),
        disruption_mode=_own(annotations, OWN_DISRUPTION_MODE, chosen.value),
        topology_key=_own(annotations, OWN_TOPOLOGY_KEY, chosen.value),
    )


def nameless(metadata: Metadata) -> str:
    """What to tell whoever leaves the name of a group empty and may have meant one (seed 000), "" for others."""
    labels, annotations = metadata.labels, metadata.annotations
    found = [f"label {key}" for _, key in _NAME_LABELS if labels.get(key) == ""]
    found += [f"annotation {key}" for _, key in (*_NAME_ANNOTATIONS, _OWN_NAME) if annotations.get(key) == ""]
    if not found:
        return ""
    return (
        f"{found[0]} is empty, so the pod belongs to no group and is scheduled on its own; write the group's name "
        "into it and create the pod again, or leave it out"
    )


def may_declare_alone(metadata: Metadata) -> bool:
    """Whether a pod has one of the names of a gang that needs no object; cheap."""
    labels = metadata.labels
    return any(key in labels for key in _LABELS_ALONE) or any(
        key in metadata.annotations for key in _ANNOTATIONS_ALONE
    )


def role_of(metadata: Metadata) -> str:
    return metadata.annotations.get(TASK_SPEC) or metadata.labels.get(TASK_SPEC) or ""


def index_of(metadata: Metadata) -> int:
    """The pod's place among its siblings; a pod that states none comes after those that do."""
    for key in (koordinator.TOPOLOGY_INDEX, TASK_INDEX):
        text = metadata.annotations.get(key) or metadata.labels.get(key) or ""
        if text.isascii() and text.isdecimal():
            return min(int(text[:12]), NO_INDEX)
    return NO_INDEX


def stated_queue(metadata: Metadata) -> Stated | None:
    """The queue that a pod names itself; the annotation comes before the label."""
    for place, values in (("annotation", metadata.annotations), ("label", metadata.labels)):
        value = values.get(QUEUE_ANNOTATION, "")
        if value:
            return Stated(f"{place} {QUEUE_ANNOTATION}", value)
    return None


def controller_of(metadata: Metadata) -> OwnerReference | None:
    return next((owner for owner in metadata.owner_references if owner.controller), None)


def _minimum(labels: Mapping[str, str], annotations: Mapping[str, str], gang: str) -> Stated | None:
    """A minimum that was written beside the name of another gang is not this gang's."""
    for key, name_key in _MINIMUM_LABELS:
        if labels.get(key) and labels.get(name_key, gang) == gang:
            return Stated(f"label {key}", labels[key])
    own = _own(annotations, OWN_MIN_COUNT, gang)
    if own is not None:
        return own
    key = koordinator.MIN_AVAILABLE
    if annotations.get(key) and annotations.get(koordinator.NAME, gang) == gang:
        return Stated(f"annotation {key}", annotations[key])
    return None


def _own(annotations: Mapping[str, str], key: str, gang: str) -> Stated | None:
    """What one of our own annotations says about the gang."""
    if not annotations.get(key) or annotations.get(OWN_GROUP) != gang:
        return None
    return Stated(f"annotation {key}", annotations[key])


def _shadow(metadata: Metadata) -> Declaration | None:
    """D9: pods without a group name, grouped by their controller."""
    for key in GROUP_MIN_MEMBER:
        value = metadata.annotations.get(key, "")
        if value:
            owner = controller_of(metadata)
            return Declaration(
                dialect=Dialect.SHADOW,
                name=owner.uid if owner and owner.uid else metadata.uid,
                key=f"annotation {key}",
                minimum=Stated(f"annotation {key}", value),
                extras=read_extras(metadata.labels, metadata.annotations),
                queue=stated_queue(metadata),
            )
    return None

"""Eviction rules that pods, and the objects of their gangs, state for themselves.

Volcano's keys are parsed as Volcano parses them: `volcano.sh/preemptable` with Go's ParseBool, the annotation
before the label, and an invalid value forbids eviction (pod_info.go); `volcano.sh/cooldown-time` as a duration, the
label before the annotation (plugins/cdp).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.dialects.core import Metadata, OwnerReference, PodObject, PodSpec
from phalanx.dialects.lenient import DecodingFault
from phalanx.dialects.times import parse_duration, parse_moment
from phalanx.model.eviction_condition import EVICTION, ToldEviction, read_eviction
from phalanx.model.text.decoding import quoted

PREEMPTABLE = "volcano.sh/preemptable"
COOLDOWN = "volcano.sh/cooldown-time"
CHECKPOINT = "phalanx.dev/checkpointed-at"
DEFAULT_GRACE = 30

# Condition of a pod that is about to be deleted, and its reason when a scheduler sets it.
DISRUPTION_TARGET = "DisruptionTarget"
PREEMPTION_BY_SCHEDULER = "PreemptionByScheduler"

#: Annotation of static pods, which the kubelet creates itself (kubernetes, pkg/kubelet/types).
MIRROR = "kubernetes.io/config.mirror"

SYSTEM_CLASSES = frozenset(("system-cluster-critical", "system-node-critical"))
# Only the system's classes have a higher priority (kubernetes, pkg/apis/scheduling/types.go).
HIGHEST_USER_PRIORITY = 1_000_000_000
_CRITICAL_PRIORITY = 2_000_000_000

# Kinds of controllers that replace each pod that ends.
_ENDLESS_OWNERS = frozenset(("ReplicaSet", "Deployment", "ReplicationController", "StatefulSet", "DaemonSet"))

_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE = frozenset(("0", "f", "F", "false", "FALSE", "False"))


class Terms(msgspec.Struct, frozen=True):
    """What a pod's owner states about its eviction; `faults` lists unreadable values.

    `cooldown` is in seconds from the binding on, `checkpoint` in seconds since the epoch.
    """

    preemptable: bool = True
    cooldown: int = 0
    checkpoint: int = 0
    faults: tuple[DecodingFault, ...] = ()


NO_TERMS = Terms()
TERM_KEYS = frozenset((PREEMPTABLE, COOLDOWN, CHECKPOINT))


def eviction_terms(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Terms:
    if TERM_KEYS.isdisjoint(annotations) and TERM_KEYS.isdisjoint(labels):
        return NO_TERMS
    faults: list[DecodingFault] = []
    return Terms(
        preemptable=preemptable_of(labels, annotations, faults),
        cooldown=_cooldown(labels, annotations, faults),
        checkpoint=_checkpoint(annotations.get(CHECKPOINT, ""), faults),
        faults=tuple(faults),
    )


def preemptable_of(labels: Mapping[str, str], annotations: Mapping[str, str], faults: list[DecodingFault]) -> bool:
    """Return whether the owner of a pod or group permits eviction; the default is True."""
    path, value = _stated(PREEMPTABLE, ("annotations", annotations), ("labels", labels))
    if value is None or value in _TRUE:
        return True
    if value not in _FALSE:
        faults.append(DecodingFault(path, f'{quoted(value)} is not "true" or "false"; it forbids eviction'))
    return False


def hides_terms(fault: DecodingFault) -> bool:
    """Return whether an undecodable field of a pod can hide that the owner forbids eviction."""
    return fault.path in ("metadata", "metadata.labels", "metadata.annotations")


def grace_of(pod: PodObject) -> int:
    """Return the termination grace period of a terminating pod in seconds: the one of its deletion, if it is
    stated."""
    of_deletion = pod.metadata.deletion_grace_period_seconds
    return stated_grace(pod.spec) if of_deletion is None else _grace(of_deletion)


def stated_grace(spec: PodSpec) -> int:
    """Return the termination grace period in a pod's spec in seconds."""
    seconds = spec.termination_grace_period_seconds
    return DEFAULT_GRACE if seconds is None else _grace(seconds)


def _grace(seconds: int) -> int:
    # The API server replaces a negative grace period by one second.
    return 1 if seconds < 0 else min(seconds, 2**31 - 1)


def bound_at(pod: PodObject) -> str | None:
    """Return the time at which the pod was bound, as its conditions state it."""
    types = pod.condition_types()
    if "PodScheduled" not in types:
        return None
    scheduled = pod.status.conditions[types.index("PodScheduled")]
    return scheduled.last_transition_time if scheduled.status == "True" else None


def told_eviction(pod: PodObject) -> ToldEviction | None:
    """Return by which of our schedulers the pod is being evicted and why, as its conditions say."""
    types = pod.condition_types()
    if DISRUPTION_TARGET not in types or EVICTION not in types:
        return None
    target = pod.status.conditions[types.index(DISRUPTION_TARGET)]
    own = pod.status.conditions[types.index(EVICTION)]
    # Either may have been taken back by somebody else: Kubernetes' disruption controller does so with the first.
    if (target.status, target.reason, own.status) != ("True", PREEMPTION_BY_SCHEDULER, "True"):
        return None
    # Both are written by one request: another scheduler may have condemned the pod since.
    if target.last_transition_time != own.last_transition_time:
        return None
    return read_eviction(own.reason, own.message)


def condemned_by(pod: PodObject) -> str:
    """Return the name of our scheduler that is evicting the pod, as its conditions say; "" for none."""
    told = told_eviction(pod)
    return told.scheduler if told is not None else ""


def is_of_daemon_set(metadata: Metadata) -> bool:
    """Return whether a DaemonSet would recreate the pod on its node at once, so that eviction is useless."""
    return any(owner.controller and owner.kind == "DaemonSet" for owner in metadata.owner_references)


def never_ends(restart_policy: str, owner: OwnerReference | None) -> bool:
    """Return whether the kubelet restarts the pod whenever it ends (the default), or its owner replaces it."""
    return restart_policy in ("", "Always") or (owner is not None and owner.kind in _ENDLESS_OWNERS)


def is_critical(spec: PodSpec, in_system_namespace: bool) -> bool:
    """Return whether the cluster itself needs the pod: kubelet's IsCriticalPod without static pods, and the classes
    of Volcano's conformance plugin. In a tenant's namespace, class and priority make no pod critical."""
    if not in_system_namespace:
        return False
    high = spec.priority is not None and spec.priority >= _CRITICAL_PRIORITY
    return high or spec.priority_class_name in SYSTEM_CLASSES


def is_static(pod: PodObject) -> bool:
    """Return whether the kubelet of the pod's own node created it: eviction is useless, and the pod is critical.

    The kubelet states the node as the owner. A user with write access can add such an owner after the binding, but
    cannot add the annotation of a mirror pod then (kubernetes, pkg/apis/core/validation). So both are required.
    """
    metadata, node = pod.metadata, pod.spec.node_name
    if not node or MIRROR not in metadata.annotations:
        return False
    return any(
        owner.controller and (owner.kind, owner.api_version) == ("Node", "v1") and owner.name == node
        for owner in metadata.owner_references
    )


def _cooldown(labels: Mapping[str, str], annotations: Mapping[str, str], faults: list[DecodingFault]) -> int:
    path, value = _stated(COOLDOWN, ("labels", labels), ("annotations", annotations))
    if value is None:
        return 0
    try:
        seconds = parse_duration(value)
    except ValueError as error:
        faults.append(DecodingFault(path, f"{error}; the value is ignored"))
        return 0
    if seconds < 0:
        faults.append(DecodingFault(path, f"{quoted(value)} is negative; the value is ignored"))
    return max(0, seconds)


def _checkpoint(text: str, faults: list[DecodingFault]) -> int:
    """Parse a checkpoint time. A time without a zone is rejected: a program's local time can be hours off."""
    if not text:
        return 0
    moment = parse_moment(text)
    if moment is None or moment.tzinfo is None:
        example = "2026-01-31T12:00:00Z"
        faults.append(
            DecodingFault(
                f"metadata.annotations[{CHECKPOINT}]",
                f"{quoted(text)} is not a time such as {example}; the value is ignored",
            )
        )
        return 0
    return max(0, int(moment.timestamp()))


def _stated(key: str, *places: tuple[str, Mapping[str, str]]) -> tuple[str, str | None]:
    """Return the path and value of the first of a pod's labels and annotations that has the key."""
    for place, values in places:
        value = values.get(key)
        if value is not None:
            return f"metadata.{place}[{key}]", value
    return "", None

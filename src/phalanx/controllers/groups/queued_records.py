"""Records of suspended jobs, of their PodGroups and of the groups' pods, as their controller stores them."""

from __future__ import annotations

import msgspec

from phalanx.dialects.core import Condition, Metadata, Wire
from phalanx.dialects.gangs.declaration import controlling_owner
from phalanx.dialects.pods.evictability import DISRUPTION_TARGET, PREEMPTION_BY_SCHEDULER
from phalanx.jobs.suspended import GROUP_NAME, QUEUE_LABEL, SUSPENDABLE
from phalanx.kube.changes import Key
from phalanx.model.node_request import ADMISSION_WITHDRAWN

QueueKey = tuple[str, Key]
"""Key of a job: (kind, (namespace, name))."""


class QueuedJob(msgspec.Struct, frozen=True):
    uid: str
    resource_version: str
    raw: bytes


class QueuedGroup(msgspec.Struct, frozen=True):
    """PodGroup of a queued suspended job. `owner` is the job's uid, `job` its key. `withdrawn`: its admission
    was withdrawn, because no node came for it."""

    uid: str
    resource_version: str
    raw: bytes
    name: str
    owner: str
    job: QueueKey
    phase: str
    withdrawn: bool = False


class QueuedPod(msgspec.Struct, frozen=True):
    """Pod of a suspended job's PodGroup. `evicted` by the scheduler; `stays` if it has succeeded, or has a node and
    is neither failed nor evicted."""

    uid: str
    resource_version: str
    group: Key
    evicted: bool
    stays: bool


class _Named(Wire):
    metadata: Metadata


class _GroupStatus(Wire):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class _Group(_Named):
    status: _GroupStatus = msgspec.field(default_factory=_GroupStatus)


class _PodStatus(Wire):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class _PodSpec(Wire):
    node_name: str = ""


class _Pod(_Named):
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


_POD = msgspec.json.Decoder(_Pod, strict=False)
_NAMED = msgspec.json.Decoder(_Named)
_GROUP = msgspec.json.Decoder(_Group)
QUEUED_KINDS = {kind.served.kind: kind for kind in SUSPENDABLE}


def read_job(raw: bytes) -> QueuedJob | None:
    metadata = _NAMED.decode(raw).metadata
    if QUEUE_LABEL not in metadata.labels or metadata.deletion_timestamp is not None:
        return None
    return QueuedJob(metadata.uid, metadata.resource_version, raw)


def read_group(raw: bytes) -> QueuedGroup | None:
    group = _GROUP.decode(raw)
    metadata = group.metadata
    owner = controlling_owner(metadata)
    kind = QUEUED_KINDS.get(owner.kind) if owner is not None else None
    if owner is None or kind is None or kind.served.group != owner.api_version.rpartition("/")[0]:
        return None
    if metadata.deletion_timestamp is not None:
        return None
    job = (owner.kind, (metadata.namespace, owner.name))
    withdrawn = any(
        condition.type == ADMISSION_WITHDRAWN and condition.status == "True"
        for condition in group.status.conditions
    )
    return QueuedGroup(
        metadata.uid, metadata.resource_version, raw, metadata.name, owner.uid, job, group.status.phase, withdrawn
    )


_GROUP_NAME = GROUP_NAME.encode()
_PREFIXES = tuple(f"{name.lower()}-" for name in QUEUED_KINDS)


def read_pod(raw: bytes) -> QueuedPod | None:
    if _GROUP_NAME not in raw:  # most pods have no group
        return None
    pod = _POD.decode(raw)
    metadata, status = pod.metadata, pod.status
    group = metadata.annotations.get(GROUP_NAME, "")
    if not group.startswith(_PREFIXES):
        return None
    evicted = any(
        condition.type == DISRUPTION_TARGET
        and condition.status == "True"
        and condition.reason == PREEMPTION_BY_SCHEDULER
        for condition in status.conditions
    )
    leaving = evicted or metadata.deletion_timestamp is not None
    # A replacement without a node waits for the room that its predecessor lost.
    placed = bool(pod.spec.node_name) and status.phase != "Failed" and not leaving
    stays = status.phase == "Succeeded" or placed
    return QueuedPod(metadata.uid, metadata.resource_version, (metadata.namespace, group), evicted, stays)

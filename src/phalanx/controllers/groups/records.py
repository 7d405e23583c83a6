"""Records of gang members and PodGroups for group restarts."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from phalanx.dialects.core import (
    Condition,
    Metadata,
    OwnerReference,
    PodObject,
    PodSpec,
    SchedulingGroup,
    Wire,
    WorkloadRef,
)
from phalanx.dialects.gangs.declaration import GangDeclarations, controlling_owner
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.registry import Dialects
from phalanx.dialects.times import parse_time
from phalanx.jobs.group_restarts import RESTART_POLICY, GroupMember
from phalanx.model.text.decoding import decode_json


class _Terminated(Wire):
    exit_code: int = 0


class _State(Wire):
    terminated: _Terminated | None = None


class _ContainerStatus(Wire):
    state: _State = msgspec.field(default_factory=_State)


class _Status(Wire):
    phase: str = "Pending"
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[_ContainerStatus, ...] = ()
    init_container_statuses: tuple[_ContainerStatus, ...] = ()


class _Spec(Wire):
    scheduling_group: SchedulingGroup | None = None
    workload_ref: WorkloadRef | None = None


class _Pod(Wire):
    metadata: Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class MemberRecord(msgspec.Struct, frozen=True):
    """Pod of a gang, for the group restart controller.

    `gang` is `namespace/name`; `objects` are the API groups of the PodGroups that it can belong to, empty for all.
    """

    uid: str
    resource_version: str
    namespace: str
    gang: str
    objects: tuple[str, ...]
    owner: OwnerReference | None
    member: GroupMember


_POD = msgspec.json.Decoder(_Pod, strict=False)
_EVICTION_REASONS = ("PreemptionByScheduler", "EvictionByEvictionAPI")


def member_reader(declarations: GangDeclarations) -> Callable[[bytes], MemberRecord | None]:
    """Return a decoder of pods; the decoder returns None for pods without a gang."""

    def read(raw: bytes) -> MemberRecord | None:
        pod = _POD.decode(raw)
        metadata, status = pod.metadata, pod.status
        owner = controlling_owner(metadata)
        spec = PodSpec(scheduling_group=pod.spec.scheduling_group, workload_ref=pod.spec.workload_ref)
        declared = declarations.declare(PodObject(metadata, spec))
        if declared is None:
            return None
        containers = (*status.init_container_statuses, *status.container_statuses)
        member = GroupMember(
            name=metadata.name,
            uid=metadata.uid,
            created=parse_time(metadata.creation_timestamp),
            phase=status.phase,
            owner=owner.uid if owner is not None else "",
            deleting=metadata.deletion_timestamp is not None,
            evicted=any(
                condition.type == "DisruptionTarget"
                and condition.status == "True"
                and condition.reason in _EVICTION_REASONS
                for condition in status.conditions
            ),
            exit_codes=tuple(
                container.state.terminated.exit_code
                for container in containers
                if container.state.terminated is not None
            ),
        )
        return MemberRecord(
            metadata.uid,
            metadata.resource_version,
            metadata.namespace,
            f"{metadata.namespace}/{declared.name}",
            declared.naming.objects,
            owner,
            member,
        )

    return read


class RestartableGroup(msgspec.Struct, frozen=True):
    """PodGroup with a restart policy."""

    uid: str
    resource_version: str
    gang: str
    minimum: int
    annotations: dict[str, str]
    deleting: bool


class _Named(Wire):
    metadata: Metadata


_NAMED = msgspec.json.Decoder(_Named)


def group_reader(dialects: Dialects, kind: ServedKind) -> Callable[[bytes], RestartableGroup | None]:
    """Return a decoder of PodGroups of one kind; the decoder returns None for groups without a restart policy or
    without a gang."""

    def read(raw: bytes) -> RestartableGroup | None:
        metadata = _NAMED.decode(raw).metadata
        if RESTART_POLICY not in metadata.annotations:
            return None
        specs = [spec for spec in dialects.read_group(kind, decode_json(raw)) if not spec.made]
        if len(specs) != 1 or specs[0].problem is not None:
            return None
        return RestartableGroup(
            metadata.uid,
            metadata.resource_version,
            f"{metadata.namespace}/{specs[0].gang}",
            specs[0].min_member,
            metadata.annotations,
            metadata.deletion_timestamp is not None,
        )

    return read

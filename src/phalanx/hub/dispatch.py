"""The record of one gang: which cluster may start it, in which epoch, and which copies exactly."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from phalanx.dialects.times import format_time, parse_time
from phalanx.hub.names import COPIES_FINALIZER, DISPATCHES
from phalanx.kube.own_objects import LABELS

_MOST_ATTEMPTS = 10


class Phase(enum.Enum):
    """Pending: nowhere. Copying: gated copies are made in `cluster`. Granted: the gates of those that are named in
    `granted` may be lifted. Recalling: those are taken back unless one of them has started. Withdrawing: all copies
    of the epoch are being deleted. Ended: all pods have ended."""

    PENDING = "Pending"
    COPYING = "Copying"
    GRANTED = "Granted"
    RECALLING = "Recalling"
    WITHDRAWING = "Withdrawing"
    ENDED = "Ended"


class GangReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The PodGroup, or the job, at the hub; the record is about this very object."""

    api_version: str
    name: str
    uid: str
    kind: str = "PodGroup"


class GrantedCopy(msgspec.Struct, frozen=True, rename="camel", array_like=False):
    """One pod: its name, its uid at the hub, and the uid of the copy that may start for it."""

    name: str
    origin_uid: str
    uid: str


class DispatchAttempt(msgspec.Struct, frozen=True, rename="camel"):
    """An epoch that is over: Withdrawn (its copies are gone), SpillOver (so, because it starts sooner elsewhere),
    Refused (the cluster does not take them), Silent (it
    did not answer before anything was granted), or Lost (it was given up by the gang's policy; what runs there is
    not known)."""

    epoch: int
    cluster: str
    outcome: str
    message: str = ""
    time: str = ""


class ForecastAnswer(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a cluster said when it was asked: it would start at `start` (RFC 3339), or why not."""

    cluster: str
    start: str = ""
    message: str = ""


class DispatchStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`epoch` counts the choices of a cluster; a copy may start only under the newest, and only in phase Granted.
    `unknown_since` is when the cluster was found not to answer. `promised` is when the cluster said that it would
    start it. `reason` and `message` say why it is as it is."""

    phase: str = Phase.PENDING.value
    epoch: int = 0
    cluster: str = ""
    since: str = ""
    granted: tuple[GrantedCopy, ...] = ()
    promised: str = ""
    unknown_since: str = ""
    reason: str = ""
    message: str = ""
    attempts: tuple[DispatchAttempt, ...] = ()
    answers: tuple[ForecastAnswer, ...] = ()
    succeeded: int = 0
    failed: int = 0
    conditions: tuple[dict[str, Any], ...] = ()

    def moved(self, phase: Phase, now: int, **fields: Any) -> DispatchStatus:
        """In another phase since now, with `reason` and `message` of its own."""
        fresh = {"reason": "", "message": "", "unknown_since": "", **fields}
        return msgspec.structs.replace(self, phase=phase.value, since=format_time(now), **fresh)

    def ended_attempt(self, outcome: str, message: str, now: int) -> DispatchStatus:
        """Nowhere; the epoch's number is never used again."""
        entry = DispatchAttempt(self.epoch, self.cluster, outcome, message, format_time(now))
        attempts = (*self.attempts, entry)[-_MOST_ATTEMPTS:]
        return self.moved(
            Phase.PENDING,
            now,
            cluster="",
            granted=(),
            promised="",
            attempts=attempts,
            reason=outcome,
            message=message,
        )

    @property
    def unknown_time(self) -> int:
        """Seconds since the epoch; 0 while the cluster answers."""
        return parse_time(self.unknown_since)


class Dispatch(msgspec.Struct, frozen=True):
    """A Dispatch object. `version` is its resourceVersion: whoever writes it must have read this one."""

    namespace: str
    name: str
    uid: str
    version: str
    gang: GangReference
    status: DispatchStatus
    deleting: bool = False
    created: int = 0

    @property
    def phase(self) -> Phase:
        return Phase(self.status.phase)

    @property
    def resource_version(self) -> str:
        return self.version


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    creation_timestamp: str | None = None


class _Spec(msgspec.Struct):
    gang: GangReference


class _Object(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec
    status: DispatchStatus = DispatchStatus()


_DECODER = msgspec.json.Decoder(_Object)


def read_dispatch(raw: bytes) -> Dispatch:
    """Raises msgspec.ValidationError for what no hub has written: it is not acted upon."""
    found = _DECODER.decode(raw)
    if found.status.phase not in {phase.value for phase in Phase} or found.status.epoch < 0:
        raise msgspec.ValidationError("status.phase or status.epoch is none that a hub writes")
    metadata = found.metadata
    return Dispatch(
        metadata.namespace,
        metadata.name,
        metadata.uid,
        metadata.resource_version,
        found.spec.gang,
        found.status,
        metadata.deletion_timestamp is not None,
        parse_time(metadata.creation_timestamp),
    )


def dispatch_name(gang: str, uid: str) -> str:
    """One name for one gang's uid: a gang that is made anew under its old name has another record."""
    return f"{gang[:230].rstrip('-.')}-{uid.replace('-', '')[:10].lower()}"


def new_dispatch(namespace: str, gang: GangReference) -> dict[str, Any]:
    """The object to create."""
    return {
        "apiVersion": DISPATCHES.api_version,
        "kind": DISPATCHES.kind,
        "metadata": {
            "name": dispatch_name(gang.name, gang.uid),
            "namespace": namespace,
            "labels": dict(LABELS),
            "finalizers": [COPIES_FINALIZER],
        },
        "spec": {"gang": msgspec.to_builtins(gang)},
    }


def with_status(dispatch: Dispatch, status: DispatchStatus) -> dict[str, Any]:
    """The object to replace the status of; it is refused (409) where somebody has written since it was read."""
    return {
        "apiVersion": DISPATCHES.api_version,
        "kind": DISPATCHES.kind,
        "metadata": {
            "name": dispatch.name,
            "namespace": dispatch.namespace,
            "uid": dispatch.uid,
            "resourceVersion": dispatch.version,
        },
        "spec": {"gang": msgspec.to_builtins(dispatch.gang)},
        "status": msgspec.to_builtins(status),
    }

"""Dispatch record of one gang: its member cluster, its epoch, and exactly the copies that can start."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from phalanx.dialects.times import format_time, parse_time
from phalanx.hub.names import COPIES_FINALIZER, DISPATCHES
from phalanx.kube.own_objects import LABELS

_MOST_ATTEMPTS = 10


class Phase(enum.Enum):
    """Phase of a dispatch.

    Pending: in no cluster. Copying: gated copies are created in `cluster`. Granted: the gates of the copies in
    `granted` are being removed. Recalling: these copies are deleted unless one has started. Withdrawing: all copies
    of the epoch are being deleted. Ended: all pods have ended.
    """

    PENDING = "Pending"
    COPYING = "Copying"
    GRANTED = "Granted"
    RECALLING = "Recalling"
    WITHDRAWING = "Withdrawing"
    ENDED = "Ended"


class GangReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Reference to the PodGroup or job at the hub, by uid."""

    api_version: str
    name: str
    uid: str
    kind: str = "PodGroup"


class GrantedCopy(msgspec.Struct, frozen=True, rename="camel", array_like=False):
    """Grant for one pod: its name, its uid at the hub, and the uid of the copy that can start."""

    name: str
    origin_uid: str
    uid: str


class DispatchAttempt(msgspec.Struct, frozen=True, rename="camel"):
    """Ended epoch of a dispatch, with its outcome.

    Outcomes: Withdrawn (all copies are deleted), SpillOver (withdrawn for an earlier start in another cluster),
    Refused (the cluster rejects the copies), Silent (the cluster did not answer before anything was granted), Lost
    (given up by the gang's policy; the state of the copies is unknown).
    """

    epoch: int
    cluster: str
    outcome: str
    message: str = ""
    time: str = ""


class ForecastAnswer(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Forecast of one member cluster: the start of the gang (`start`, RFC 3339), or the reason why there is
    none."""

    cluster: str
    start: str = ""
    message: str = ""


class DispatchStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Status of a Dispatch.

    `epoch` counts the choices of a cluster; a copy starts only under the newest epoch, and only in phase Granted.
    `unknown_since` is the time since when the cluster has not answered. `promised` is the start that the cluster
    forecast. `reason` and `message` explain the phase.
    """

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
        """Return this status in another phase as of `now`, with the new phase's `reason` and `message`."""
        fresh = {"reason": "", "message": "", "unknown_since": "", **fields}
        return msgspec.structs.replace(self, phase=phase.value, since=format_time(now), **fresh)

    def ended_attempt(self, outcome: str, message: str, now: int) -> DispatchStatus:
        """Return the pending status after an ended epoch; the number of the epoch is never used again."""
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
        """Time since when the cluster has not answered, in seconds since the epoch; 0 while it answers."""
        return parse_time(self.unknown_since)


class Dispatch(msgspec.Struct, frozen=True):
    """Dispatch object of a gang; `version` is its resourceVersion, and a write must be based on it."""

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
    """Decode a Dispatch. Raises msgspec.ValidationError for an object that no hub has written: it is ignored."""
    decoded = _DECODER.decode(raw)
    if decoded.status.phase not in {phase.value for phase in Phase} or decoded.status.epoch < 0:
        raise msgspec.ValidationError("invalid status.phase or status.epoch")
    metadata = decoded.metadata
    return Dispatch(
        metadata.namespace,
        metadata.name,
        metadata.uid,
        metadata.resource_version,
        decoded.spec.gang,
        decoded.status,
        metadata.deletion_timestamp is not None,
        parse_time(metadata.creation_timestamp),
    )


def dispatch_name(gang: str, uid: str) -> str:
    """Return the name of the Dispatch for a gang's uid: a new gang with an old name has another record."""
    return f"{gang[:230].rstrip('-.')}-{uid.replace('-', '')[:10].lower()}"


def new_dispatch(namespace: str, gang: GangReference) -> dict[str, Any]:
    """Return the manifest of a new Dispatch for a gang."""
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
    """Return the Dispatch with a new status for an update; the API server answers 409 for an outdated version."""
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

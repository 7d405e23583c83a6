"""Summary of a Dispatch for users: the cluster, all clusters' forecasts, the smallest helpful change."""

from __future__ import annotations

import msgspec

from phalanx.hub.dispatch import Phase
from phalanx.hub.objects import Json, printable

_HELP = {
    "QuotaExceeded": "raise the queue's capability at the hub, or wait until some of its gangs have ended",
    "NoCluster": "allow more clusters (phalanx.dev/clusters), or free resources: see `phalanx why` in one of them",
    "StageIn": "complete the stage-in objects, or remove the annotation phalanx.dev/stage-in",
    "DataSourceClaim": "create a DataSource of that system, type, name and attributes, or delete the claim",
}


class ClusterAnswer(msgspec.Struct, kw_only=True):
    """Forecast of one member cluster for users; `start` (RFC 3339) is "" without a start, and `message` then
    explains the reason."""

    cluster: str
    start: str = ""
    message: str = ""


class EndedAttempt(msgspec.Struct, kw_only=True):
    """Ended epoch of a Dispatch and its outcome, for users."""

    epoch: int
    cluster: str
    outcome: str
    message: str = ""
    time: str = ""


class DispatchAnswer(msgspec.Struct, kw_only=True):
    """Summary of a Dispatch for users.

    `gang` is namespace/name. `promised` is the start that its cluster forecast. `unknownSince` is the time since
    when the cluster has not answered, "" while it answers. `change` is the smallest helpful change.
    """

    gang: str
    kind: str
    phase: str
    epoch: int
    cluster: str
    since: str
    promised: str
    unknownSince: str  # noqa: N815 (as in the object)
    reason: str
    message: str
    answers: list[ClusterAnswer]
    attempts: list[EndedAttempt]
    change: str


def dispatch_answer(record: Json) -> DispatchAnswer:
    """Return the summary of a Dispatch from the API server, with printable texts only."""
    status = record.get("status") or {}
    gang = (record.get("spec") or {}).get("gang") or {}
    phase, reason = printable(status.get("phase", Phase.PENDING.value)), printable(status.get("reason", ""))
    return DispatchAnswer(
        gang=f"{record['metadata']['namespace']}/{printable(gang.get('name', ''))}",
        kind=printable(gang.get("kind", "PodGroup")),
        phase=phase,
        epoch=_number(status.get("epoch")),
        cluster=printable(status.get("cluster", "")),
        since=printable(status.get("since", "")),
        promised=printable(status.get("promised", "")),
        unknownSince=printable(status.get("unknownSince", "")),
        reason=reason,
        message=printable(status.get("message", "")),
        answers=[
            ClusterAnswer(**{key: printable(entry.get(key, "")) for key in ("cluster", "start", "message")})
            for entry in _entries(status.get("answers"))
        ],
        attempts=[
            EndedAttempt(
                epoch=_number(entry.get("epoch")),
                **{key: printable(entry.get(key, "")) for key in ("cluster", "outcome", "message", "time")},
            )
            for entry in _entries(status.get("attempts"))
        ],
        change=_HELP.get(reason, "") if phase == Phase.PENDING.value else "",
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _entries(value: object) -> list[Json]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []

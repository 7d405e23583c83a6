"""What a Dispatch says, for people: where a gang is, what each cluster answered, and what would help."""

from __future__ import annotations

import msgspec

from phalanx.hub.dispatch import Phase
from phalanx.hub.objects import Json, printable

_HELP = {
    "QuotaExceeded": "raise the queue's capability at the hub, or wait until some of its gangs have ended",
    "NoCluster": "let it go to more clusters (phalanx.dev/clusters), or make room: `phalanx why` in one",
    "StageIn": "see why what brings its data in is not complete, or take phalanx.dev/stage-in off",
    "DataSourceClaim": "a DataSource of that system, type, name and attributes, or delete the claim",
}


class ClusterAnswer(msgspec.Struct, kw_only=True):
    """`start` (RFC 3339) is "" where it would not start; `message` says why, or what would have to go."""

    cluster: str
    start: str = ""
    message: str = ""


class EndedAttempt(msgspec.Struct, kw_only=True):
    """An epoch that is over, and how it ended."""

    epoch: int
    cluster: str
    outcome: str
    message: str = ""
    time: str = ""


class DispatchAnswer(msgspec.Struct, kw_only=True):
    """`gang` is namespace/name. `promised` is when its cluster said that it would start, `unknownSince` since when
    that has not answered, "" while it does. `change` is the smallest change that would help."""

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
    """Of a Dispatch as it came from the API server; the texts of other clusters are made harmless."""
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
            ClusterAnswer(**{key: printable(each.get(key, "")) for key in ("cluster", "start", "message")})
            for each in _entries(status.get("answers"))
        ],
        attempts=[
            EndedAttempt(
                epoch=_number(each.get("epoch")),
                **{key: printable(each.get(key, "")) for key in ("cluster", "outcome", "message", "time")},
            )
            for each in _entries(status.get("attempts"))
        ],
        change=_HELP.get(reason, "") if phase == Phase.PENDING.value else "",
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _entries(value: object) -> list[Json]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []

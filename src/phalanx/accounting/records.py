"""Rows of runs and members in the usage database, and their update from the state of a pod."""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx.accounting.facts import PodFact, PodOutcome, Precision
from phalanx.accounting.sums import decode_parts, encode_parts


class MemberRow(msgspec.Struct):
    """Row of the table `members`: one pod of a run."""

    uid: str
    run: int
    payer: int
    name: str
    role: str
    node: str
    created: int
    bound: int | None = None
    bound_precision: int = 0
    ended: int | None = None
    end_precision: int = 0
    ended_before: int | None = None
    leaves: int | None = None
    outcome: str = ""
    reason: str = ""
    evicted: int | None = None
    parts: str = "[]"


class RunRow(msgspec.Struct):
    """Row of the table `runs`: one run of a gang."""

    id: int
    uid: str
    namespace: str
    name: str
    gang: str
    gang_uid: str
    kind: str
    payer: int
    state: str
    reason: str
    submitted: int
    admitted: int | None = None
    admitted_precision: int = 0
    started: int | None = None
    wait: int | None = None
    ended: int | None = None
    end_precision: int = 0
    members: int = 0
    evictions: int = 0
    notify: str = ""


class Lost(msgspec.Struct, frozen=True):
    """Pod whose deletion was not observed: it existed at `since` and does not exist at `before`."""

    uid: str
    since: int
    before: int


class Clock(msgspec.Struct, frozen=True):
    """Time of the recording. If the recorder did not watch the cluster before (`watched` is False), the time of a
    change is an estimate."""

    now: int
    watched: bool

    @property
    def precision(self) -> Precision:
        return Precision.OBSERVED if self.watched else Precision.ESTIMATED


def new_member(fact: PodFact, run: int, payer: int) -> MemberRow:
    return MemberRow(fact.uid, run, payer, fact.name, fact.role, fact.node, fact.created)


def update(row: MemberRow, fact: PodFact, clock: Clock) -> None:
    """Update a member's row from the state of its pod, unless the pod has ended.

    Missing times are replaced by our clock; no time is in the future or before an earlier one.
    """
    if row.ended is not None:
        return
    amounts, now = dict(fact.amounts), clock.now
    if fact.placed and row.bound is None:
        known = fact.bound or (fact.ended if fact.outcome else 0)
        row.bound = max(fact.created, min(known or now, now))
        row.bound_precision = Precision.REPORTED if fact.bound else clock.precision
        row.node = fact.node
        row.parts = encode_parts([(row.bound, None, amounts)])
    elif row.bound is not None and not fact.outcome:
        parts = decode_parts(row.parts)
        since, _, last = parts[-1]
        if last != amounts:
            # The pod was resized in place; no field has the time of that.
            earlier_parts = [*parts[:-1], (since, now, last)] if now > since else parts[:-1]
            row.parts = encode_parts([*earlier_parts, (max(now, since), None, amounts)])
    row.leaves = fact.leaves or row.leaves
    row.evicted, row.reason = (fact.evicted or None), fact.reason
    if fact.outcome:
        reported = Precision.OBSERVED if fact.observed else Precision.REPORTED
        _end(row, fact.outcome, min(fact.ended or now, now), reported if fact.ended else clock.precision)


def record_loss(row: MemberRow, lost: Lost) -> None:
    """Record the end of a pod whose deletion was not observed, at the end of its grace period if that lies between
    the two known times."""
    if row.ended is not None:
        return
    row.ended_before = lost.before
    outcome = PodOutcome.EVICTED if row.evicted or row.reason else PodOutcome.UNKNOWN
    _end(row, outcome, min(max(lost.since, row.leaves or 0), lost.before), Precision.ESTIMATED)


def _end(row: MemberRow, outcome: str, moment: int, precision: Precision) -> None:
    parts = decode_parts(row.parts)
    row.ended = max(moment, parts[-1][0] if parts else row.created)
    row.end_precision = precision
    row.outcome = outcome
    if outcome == PodOutcome.EVICTED and row.evicted is None:
        row.evicted = row.ended
    row.parts = encode_parts(
        [(since, row.ended if until is None else until, amounts) for since, until, amounts in parts]
    )


def columns(row: MemberRow | RunRow) -> dict[str, Any]:
    return msgspec.structs.asdict(row)

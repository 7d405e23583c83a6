"""Spill-over: recall a gang that waits in a member cluster when another cluster starts it clearly earlier.

Hysteresis: the gain has to exceed the user's tolerance, twice that while the promised start is met, and twice as
much again for each move of the gang. The gang must have waited for as long, and two consecutive checks must agree.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from phalanx.dialects.times import format_time, parse_time
from phalanx.hub.choice.assignment import Candidate, best
from phalanx.hub.choice.estimates import AskedGang, Estimates
from phalanx.hub.choice.rounds import MOST_ASKED, Rounds
from phalanx.hub.dispatch import Dispatch, Phase
from phalanx.hub.gangs import HubObjects
from phalanx.hub.jobs.kinds import job_kind
from phalanx.hub.members.connection import ClusterConnection
from phalanx.hub.names import SPILL_AFTER
from phalanx.hub.objects import Json
from phalanx.hub.protocol import SPILL_OVER
from phalanx.model.text.duration import parse_duration

#: Default seconds by which a start is allowed to slip.
TOLERANCE = 600
NEVER = "Never"
_MOST_DOUBLINGS = 6


class WaitingThere(msgspec.Struct, frozen=True):
    """Gang that waits in member cluster `cluster` for its `promised` start.

    `since` is the begin of the wait; both are in seconds since the epoch.

    It has moved `moves` times already; `tolerance` is in seconds.
    """

    uid: str
    cluster: str
    promised: int
    since: int
    moves: int = 0
    tolerance: int = TOLERANCE


def reason_to_move(waiting: WaitingThere, own: Candidate, others: Iterable[Candidate], now: int) -> str:
    """Return the reason to recall the gang to another cluster, in one sentence; "" for none.

    A cluster without a forecast is assumed to keep its promised start.
    """
    if own.start is None and not own.never:
        return ""
    margin = waiting.tolerance * 2 ** min(waiting.moves, _MOST_DOUBLINGS)
    alternative = best([candidate for candidate in others if candidate.start is not None], now)
    if alternative is None or now - waiting.since < margin:
        return ""
    start = math.inf if own.never else float(own.begins(now))
    slipped = start > waiting.promised + waiting.tolerance
    if start - alternative.begins(now) < (margin if slipped else 2 * margin):
        return ""
    current_start = "never" if own.never or own.start is None else format_time(own.start)
    promise = f"{waiting.cluster} promised {format_time(waiting.promised)}, and says {current_start} now"
    return f"{promise}; {alternative.name} would start it at {format_time(alternative.begins(now))}"


class SpillOver:
    """Periodic check of all gangs that wait in member clusters.

    `recalls` has the reason of each recall by a record's uid and epoch. `changed` is called with the uid of the
    gang's PodGroup.
    """

    def __init__(
        self,
        objects: HubObjects,
        connections: Mapping[str, ClusterConnection],
        specs: Mapping[str, Json],
        estimates: Estimates,
        rounds: Rounds,
        changed: Callable[[str], None],
        period: float,
    ) -> None:
        self.recalls: dict[tuple[str, int], str] = {}
        self._objects = objects
        self._connections = connections
        self._specs = specs
        self._estimates = estimates
        self._rounds = rounds
        self._changed = changed
        self._period = period
        #: Reasons that the previous check found.
        self._doubts: set[tuple[str, int]] = set()

    async def run(self) -> None:
        """Check waiting gangs periodically until cancelled."""
        while True:
            await asyncio.sleep(self._period)
            await self.look()

    async def look(self) -> None:
        waiting = self._waiting()
        reasons: dict[tuple[str, int], str] = {}
        if waiting:
            now = int(time.time())
            gangs = {record.uid: self._rounds.asked_gang(record) for record, _ in waiting}
            answers = await self._ask(waiting, gangs)
            for record, waiting_gang in sorted(waiting, key=lambda pair: (pair[1].promised, pair[1].uid)):
                asked = gangs[record.uid]
                own = answers.get(record.status.cluster, {}).get(asked.name, Candidate(record.status.cluster))
                others = [
                    answer
                    for name, other_answers in answers.items()
                    if name != record.status.cluster and (answer := other_answers.get(record.uid)) is not None
                ]
                reason = reason_to_move(waiting_gang, own, others, now)
                if reason:
                    reasons[record.uid, record.status.epoch] = reason
        self.recalls = {key: reason for key, reason in reasons.items() if key in self._doubts}
        self._doubts = set(reasons)
        for uid, _ in self.recalls:
            self._changed(self._objects.gang_of(uid))

    def recall(self, record: Dispatch) -> str:
        return self.recalls.get((record.uid, record.status.epoch), "")

    def _waiting(self) -> list[tuple[Dispatch, WaitingThere]]:
        """Return the gangs that wait in member clusters, the oldest promised start first."""
        waiting = []
        for record in self._objects.records.values():
            status = record.status
            if record.phase is not Phase.GRANTED or not status.promised or not self._rounds.waits(record):
                continue
            if job_kind(record.gang.api_version, record.gang.kind) is not None:
                # Its controller creates pods at any time: no version of the job shows that none has a node.
                continue
            tolerance = self._tolerance(record)
            if tolerance is not None:
                moves = sum(attempt.outcome == SPILL_OVER for attempt in status.attempts)
                promised, since = parse_time(status.promised), parse_time(status.since)
                waiting_gang = WaitingThere(record.uid, status.cluster, promised, since, moves, tolerance)
                waiting.append((record, waiting_gang))
        return sorted(waiting, key=lambda pair: pair[1].promised)[:MOST_ASKED]

    def _tolerance(self, record: Dispatch) -> int | None:
        """Return the delay in seconds after which a gang is recalled; None for a gang that is never recalled.

        The gang's value precedes the cluster's.
        """
        kind_and_group = self._objects.group(record.gang.uid)
        text = kind_and_group[1].annotation(SPILL_AFTER) if kind_and_group is not None else NEVER
        text = text or str(self._specs.get(record.status.cluster, {}).get("spillAfter") or "")
        if text == NEVER:
            return None
        try:
            return max(0, int(parse_duration(text))) if text else TOLERANCE
        except (ValueError, OverflowError):
            return TOLERANCE

    async def _ask(
        self, waiting: Sequence[tuple[Dispatch, WaitingThere]], gangs: Mapping[str, AskedGang]
    ) -> dict[str, dict[str, Candidate]]:
        async def ask_cluster(name: str, connection: ClusterConnection) -> tuple[str, dict[str, Candidate]]:
            waiting_there = [gangs[record.uid].name for record, _ in waiting if record.status.cluster == name]
            waiting_elsewhere = [
                gangs[record.uid]
                for record, _ in waiting
                if record.status.cluster != name and self._rounds.may_go(record, name)
            ]
            if not waiting_there and not waiting_elsewhere:
                return name, {}
            return name, await self._estimates.ask(connection, waiting_elsewhere, waiting_there)

        ready = [(name, connection) for name, connection in self._connections.items() if connection.ready]
        return dict(await asyncio.gather(*(ask_cluster(name, connection) for name, connection in ready)))

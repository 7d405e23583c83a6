"""Gangs that were sent somewhere and wait there: whether another cluster starts them clearly sooner by now.

Nothing flaps: the gain has to exceed what the user tolerates, twice that while the promise is kept, twice as much
again for each time that the gang has moved; it must have waited for as long; and two looks in a row must agree.
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

#: Seconds by which a start may slip where nobody says anything else.
TOLERANCE = 600
NEVER = "Never"
_MOST_DOUBLINGS = 6


class WaitingThere(msgspec.Struct, frozen=True):
    """A gang that waits in `cluster` since `since`, which `promised` its start (both in seconds since the epoch).
    It has moved `moves` times already; `tolerance` is in seconds."""

    uid: str
    cluster: str
    promised: int
    since: int
    moves: int = 0
    tolerance: int = TOLERANCE


def reason_to_move(waiting: WaitingThere, own: Candidate, others: Iterable[Candidate], now: int) -> str:
    """Why it should be taken back, in one sentence; "" where it stays. Who cannot say when it starts is believed
    to start it as promised."""
    if own.start is None and not own.never:
        return ""
    margin = waiting.tolerance * 2 ** min(waiting.moves, _MOST_DOUBLINGS)
    there = best([each for each in others if each.start is not None], now)
    if there is None or now - waiting.since < margin:
        return ""
    start = math.inf if own.never else float(own.begins(now))
    slipped = start > waiting.promised + waiting.tolerance
    if start - there.begins(now) < (margin if slipped else 2 * margin):
        return ""
    told = "never" if own.never or own.start is None else format_time(own.start)
    promise = f"{waiting.cluster} promised {format_time(waiting.promised)}, and says {told} now"
    return f"{promise}; {there.name} would start it at {format_time(there.begins(now))}"


class SpillOver:
    """`recalls` says by a record's uid and epoch why a gang is to be taken back. `changed` is told which gang (the
    uid of its PodGroup) to look at."""

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
        #: What the look before this one found.
        self._doubts: set[tuple[str, int]] = set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._period)
            await self.look()

    async def look(self) -> None:
        waiting = self._waiting()
        found: dict[tuple[str, int], str] = {}
        if waiting:
            now = int(time.time())
            gangs = {record.uid: self._rounds.asked_gang(record) for record, _ in waiting}
            told = await self._ask(waiting, gangs)
            for record, each in sorted(waiting, key=lambda pair: (pair[1].promised, pair[1].uid)):
                asked = gangs[record.uid]
                own = told.get(record.status.cluster, {}).get(asked.name, Candidate(record.status.cluster))
                others = [
                    answer
                    for name, answers in told.items()
                    if name != record.status.cluster and (answer := answers.get(record.uid)) is not None
                ]
                why = reason_to_move(each, own, others, now)
                if why:
                    found[record.uid, record.status.epoch] = why
        self.recalls = {key: why for key, why in found.items() if key in self._doubts}
        self._doubts = set(found)
        for uid, _ in self.recalls:
            self._changed(self._objects.gang_of(uid))

    def recall(self, record: Dispatch) -> str:
        return self.recalls.get((record.uid, record.status.epoch), "")

    def _waiting(self) -> list[tuple[Dispatch, WaitingThere]]:
        """The gangs that wait in clusters, those first whose promise is the oldest."""
        found = []
        for record in self._objects.records.values():
            status = record.status
            if record.phase is not Phase.GRANTED or not status.promised or not self._rounds.waits(record):
                continue
            if job_kind(record.gang.api_version, record.gang.kind) is not None:
                # Its controller makes pods at any moment: no version of the job tells that none has a node.
                continue
            tolerance = self._tolerance(record)
            if tolerance is not None:
                moves = sum(attempt.outcome == SPILL_OVER for attempt in status.attempts)
                promised, since = parse_time(status.promised), parse_time(status.since)
                there = WaitingThere(record.uid, status.cluster, promised, since, moves, tolerance)
                found.append((record, there))
        return sorted(found, key=lambda pair: pair[1].promised)[:MOST_ASKED]

    def _tolerance(self, record: Dispatch) -> int | None:
        """Seconds; None for a gang that is never taken back. The gang's word goes before the cluster's."""
        found = self._objects.group(record.gang.uid)
        text = found[1].annotation(SPILL_AFTER) if found is not None else NEVER
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
        async def one(name: str, connection: ClusterConnection) -> tuple[str, dict[str, Candidate]]:
            there = [gangs[record.uid].name for record, _ in waiting if record.status.cluster == name]
            elsewhere = [
                gangs[record.uid]
                for record, _ in waiting
                if record.status.cluster != name and self._rounds.may_go(record, name)
            ]
            if not there and not elsewhere:
                return name, {}
            return name, await self._estimates.ask(connection, elsewhere, there)

        ready = [(name, each) for name, each in self._connections.items() if each.ready]
        return dict(await asyncio.gather(*(one(name, each) for name, each in ready)))

"""Events about pods that exceed their run time, and about pods that will be killed for it."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.gang import GangKey
from phalanx.model.text.duration import format_duration, format_moment
from phalanx.model.text.run_times import run_time_sentence
from phalanx.scheduling.features.run_time_limits import KILL, WHEN_NEEDED
from phalanx.status.event_publisher import EventPublisher

#: Seconds before its end at which a pod that will be killed gets an event.
NOTICE = 300

EXCEEDED = "RunTimeExceeded"
ENDING = "RunTimeEnding"

Unit = GangKey | str

_CONSEQUENCES = {
    KILL: "it is evicted",
    WHEN_NEEDED: "it is evicted as soon as another gang or pod needs its resources",
}


class RunTimeExceeded:
    """Publisher of one event per gang or single pod and stage of an exceeded run time.

    `count` is called with the policy for each exceeded run time, `touch` with each gang for which the state is new,
    so that its status shows it. The scheduler evicts (`phalanx.scheduling.features.run_time_limits`).
    """

    def __init__(
        self,
        state: ClusterState,
        event_publisher: EventPublisher,
        count: Callable[[str], None],
        touch: Callable[[GangKey], None],
        now: Callable[[], float],
    ) -> None:
        self._state = state
        self._event_publisher = event_publisher
        self._count = count
        self._touch = touch
        self._now = now
        self._published: dict[str, set[Unit]] = {EXCEEDED: set(), ENDING: set()}

    def check(self, policy: str) -> None:
        """Publish events about exceeded run times that are due; `policy` is report, evict-when-needed or kill."""
        now, run_time_limits = self._now(), self._state.pods.run_time_limits
        for unit, record in self._news(EXCEEDED, run_time_limits.ending(now)):
            consequence = _CONSEQUENCES.get(policy, "it keeps running")
            self._publish(
                record,
                EXCEEDED,
                f"{run_time_sentence(record.pod.run_time)}; {consequence} (policy phalanx.exceededRunTimes)",
            )
            self._count(policy)
            if isinstance(unit, GangKey):
                self._touch(unit)
        if policy != KILL:
            return
        ahead = [uid for uid in run_time_limits.ending(now + NOTICE) if run_time_limits.end_of(uid) > now]
        for _, record in self._news(ENDING, ahead):
            run_time, end = record.pod.run_time, format_moment(int(run_time_limits.end_of(record.pod.uid)))
            limit = f"the {format_duration(run_time.allowed)} of {run_time.allowed_source}"
            self._publish(record, ENDING, f"it is evicted at {end}, when {limit} are over")

    def _news(self, stage: str, uids: list[str]) -> list[tuple[Unit, PodRecord]]:
        """Return the first pod of each gang or pod without an event; forget those that no longer exceed their
        time."""
        units: dict[Unit, PodRecord] = {}
        for uid in uids:
            record = self._state.pods.get(uid)
            if record is not None and record.pod.scheduler in self._state.schedulers and not record.pod.fixture:
                units.setdefault(record.gang.key if record.gang is not None else uid, record)
        published = self._published[stage]
        for unit in published.difference(units):
            if stage == EXCEEDED and isinstance(unit, GangKey):
                self._touch(unit)
        self._published[stage] = set(units)
        return [(unit, record) for unit, record in units.items() if unit not in published]

    def _publish(self, record: PodRecord, reason: str, note: str) -> None:
        self._event_publisher.run_time_ends(record, reason, note)

"""Publication of verdicts in conditions, statuses and events: delayed until they are stable, without repetition."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.execution.conditions import PodConditions
from phalanx.kube.failures import Failures
from phalanx.model.gang import GangKey
from phalanx.model.pod import MemberState
from phalanx.model.verdict import Verdict
from phalanx.scheduling.queue.unit import awaits_admission
from phalanx.status.event_publisher import EventPublisher

#: Codes of gangs that are incomplete, so that no attempt to place them was made.
INCOMPLETE = frozenset({"NotEnoughMembers", "PodGroupNotFound", "WaitingForGangGroup"})
#: Codes of gangs whose group object or owner is missing: possibly it was not read yet, or is deleted first.
UNDECLARED = frozenset({"PodGroupNotFound", "OwnerNotFound"})
# A verdict that keeps changing is published after this many settling times.
_RESTLESS = 3


class PublishingPace(msgspec.Struct, frozen=True):
    """Delays of publication in seconds.

    A verdict is published once it is unchanged for `settle`, or for `settle_members` if members are missing: the
    pods of a gang are created one by one, and each intermediate count would be written to all of them. If the
    declaring object is missing, it is unchanged for `settle_undeclared`: pods can exist before their group, and
    after it. A verdict with the same code and other counts is published again after `repeat` plus
    `repeat_per_listener` for each pod, and after `longest_repeat` at the latest, to limit the load on the API
    server.
    """

    settle: float = 0.3
    settle_members: float = 1.0
    settle_undeclared: float = 5.0
    repeat: float = 5.0
    repeat_per_listener: float = 0.02
    longest_repeat: float = 120.0


Subject = GangKey | str


class _Topic:
    """Newest and last published verdict of one gang or pod, and the time to publish the newest.

    `gang` is set for a member above the minimum of its gang. `members` are the members of a gang with an event
    about its code. `refused` is the cause in the last event about the admission of a group. `source` is the object
    of the gang at the last publication.
    """

    __slots__ = ("arrivals", "due", "gang", "members", "refused", "since", "source", "told", "told_at", "verdict")

    def __init__(self, gang: GangKey | None = None) -> None:
        self.gang = gang
        self.verdict: Verdict | None = None
        self.told: Verdict | None = None
        self.told_at = float("-inf")
        self.arrivals = 0
        self.since = 0.0
        self.due: float | None = None
        self.members: tuple[str, set[str]] = ("", set())
        self.refused: object = None
        self.source: object = None


class VerdictPublisher:
    """Publisher of verdicts as conditions of pods, statuses of PodGroups, and events.

    `status_changed` is called when the verdict in the status of a group has changed. `clock` returns monotonic
    seconds. Subjects without a verdict are removed.
    """

    def __init__(
        self,
        state: ClusterState,
        conditions: PodConditions,
        event_publisher: EventPublisher,
        status_changed: Callable[[GangKey], None],
        clock: Callable[[], float] = time.monotonic,
        pace: PublishingPace | None = None,
        failures: Failures | None = None,
    ) -> None:
        self._failures = failures or Failures()
        self._state = state
        self._conditions = conditions
        self._event_publisher = event_publisher
        self._status_changed = status_changed
        self._clock = clock
        self._pace = pace or PublishingPace()
        self._gangs: dict[GangKey, _Topic] = {}
        self._pods: dict[str, _Topic] = {}
        # Members above the minimum that have a verdict of their own, by gang.
        self._surplus: dict[GangKey, set[str]] = {}
        self._agenda: list[tuple[float, int, Subject]] = []
        self._entries = 0
        self._news = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of gangs and pods with a verdict."""
        return len(self._gangs) + len(self._pods)

    def gang_decided(self, key: GangKey, verdict: Verdict | None) -> None:
        """Set the newest verdict on a gang; None if its quorum was placed."""
        record = self._state.gangs.get(key)
        if verdict is None or record is None:
            topic = self._gangs.pop(key, None)
            if topic is not None and topic.told is not None:
                self._status_changed(key)
            return
        for uid in self._surplus.pop(key, ()):
            self._pods.pop(uid, None)
        topic = self._gangs.get(key)
        if topic is None:
            topic = self._gangs[key] = _Topic()
        topic.verdict = verdict
        if topic.told == verdict and topic.arrivals == record.arrivals:
            topic.due = None
        else:
            self._plan(key, topic, len(record.pending))

    def pod_decided(self, uid: str, verdict: Verdict | None) -> None:
        """Set the newest verdict on a single pod or a member above the minimum of its gang; None if it was
        placed."""
        record = self._state.pods.get(uid)
        if verdict is None or record is None:
            self.forget_pod(uid)
            return
        topic = self._pods.get(uid)
        if topic is None:
            gang = record.gang.key if record.gang is not None else None
            topic = self._pods[uid] = _Topic(gang)
            if gang is not None:
                self._surplus.setdefault(gang, set()).add(uid)
        topic.verdict = verdict
        if topic.told == verdict:
            topic.due = None
        else:
            self._plan(uid, topic, len(self._pods))

    def gang_touched(self, key: GangKey) -> None:
        """Publish the last verdict of a gang on its object, if that was generated after the publication."""
        topic, record = self._gangs.get(key), self._state.gangs.get(key)
        if topic is None or record is None or topic.told is None or topic.source is not None:
            return
        topic.source = _source(record)
        if topic.source is not None and _listens(record, topic.told):
            self._event_publisher.gang_has_object(record, topic.told)

    def forget_gang(self, key: GangKey) -> None:
        self._gangs.pop(key, None)
        for uid in self._surplus.pop(key, ()):
            self._pods.pop(uid, None)

    def forget_pod(self, uid: str) -> None:
        topic = self._pods.pop(uid, None)
        if topic is not None and topic.gang is not None and (members := self._surplus.get(topic.gang)) is not None:
            members.discard(uid)
            if not members:
                del self._surplus[topic.gang]

    def told_verdict(self, key: GangKey) -> Verdict | None:
        """Return the last published verdict on a gang with pending pods or without admission, else None."""
        topic, record = self._gangs.get(key), self._state.gangs.get(key)
        if topic is None or record is None or topic.told is None:
            return None
        return topic.told if _listens(record, topic.told) else None

    async def run(self) -> None:
        """Publish verdicts when they are due, until cancelled."""
        while True:
            self._news.clear()
            pause = self.publish_due()
            try:
                async with asyncio.timeout(pause):
                    await self._news.wait()
            except TimeoutError:
                pass

    def publish_due(self) -> float | None:
        """Publish the verdicts that are due. Return the seconds until the next one, None without any."""
        now = self._clock()
        pods: list[tuple[PodRecord, bool]] = []
        while self._agenda and self._agenda[0][0] <= now:
            due, _, subject = heapq.heappop(self._agenda)
            topic = self._gangs.get(subject) if isinstance(subject, GangKey) else self._pods.get(subject)
            if topic is None or topic.due != due:
                continue
            first = topic.told is None
            topic.due, topic.told, topic.told_at = None, topic.verdict, now
            if isinstance(subject, GangKey):
                self._failures.guard(
                    "status", f"gang {subject}", partial(self._publish_gang, subject, topic, first)
                )
            elif (record := self._state.pods.get(subject)) is not None and record.state is MemberState.PENDING:
                pods.append((record, first))
        self._publish_pods(pods)
        return max(0.0, self._agenda[0][0] - now) if self._agenda else None

    def _plan(self, subject: Subject, topic: _Topic, listeners: int) -> None:
        verdict = topic.verdict
        assert verdict is not None
        now, pace = self._clock(), self._pace
        settle = pace.settle_members if verdict.code in INCOMPLETE else pace.settle
        if verdict.code in UNDECLARED:
            settle = pace.settle_undeclared
        if topic.due is None:
            topic.since = now
        due = min(now + settle, topic.since + _RESTLESS * settle)
        if topic.told is not None and topic.told.code == verdict.code and topic.told != verdict:
            repeat = min(pace.longest_repeat, pace.repeat + pace.repeat_per_listener * listeners)
            due = max(due, topic.told_at + repeat)
        if due == topic.due:
            return
        topic.due = due
        self._entries += 1
        if not self._agenda or due < self._agenda[0][0]:
            self._news.set()
        heapq.heappush(self._agenda, (due, self._entries, subject))

    def _publish_gang(self, key: GangKey, topic: _Topic, first: bool) -> None:
        """Publish the verdict on a gang. `first`: this process has published no verdict for the gang yet, so equal
        conditions are from an earlier process."""
        record, verdict = self._state.gangs.get(key), topic.told
        if record is None or verdict is None or not _listens(record, verdict):
            del self._gangs[key]
            return
        topic.arrivals = record.arrivals
        topic.source = _source(record)
        before = self._told_before(record.pending, verdict) if first else {}
        for uid in sorted(record.pending):
            self._conditions.set_verdict(uid, verdict)
        self._status_changed(key)
        # The amounts that can be admitted change constantly: new amounts alone cause no event.
        refused = verdict.cause if awaits_admission(record) else None
        news = (refused is None or refused != topic.refused) and not any(before.values())
        topic.refused = refused
        if before:
            topic.members = verdict.code, set(before)
        if news:
            self._event_publisher.gang_waits(record, verdict)
        self._publish_members(record, topic, verdict, first_knows=news)

    def _told_before(self, uids: Iterable[str], verdict: Verdict) -> dict[str, bool]:
        """Return the pods whose conditions have this verdict already, and whether with equal counts."""
        equal = {uid: self._conditions.told_before(uid, verdict) for uid in uids}
        return {uid: same for uid, same in equal.items() if same is not None}

    def _publish_members(self, record: GangRecord, topic: _Topic, verdict: Verdict, first_knows: bool) -> None:
        """Record an event on each member of a gang once per verdict code. The event of the gang covers its first
        member."""
        reason, members = topic.members
        if reason != verdict.code:
            members = set()
            topic.members = verdict.code, members
        for number, member in enumerate(sorted(record.pending.values(), key=lambda member: member.order)):
            if member.pod.uid not in members:
                members.add(member.pod.uid)
                if number or not first_knows:
                    self._event_publisher.member_waits(member.pod, verdict)

    def _publish_pods(self, records: list[tuple[PodRecord, bool]]) -> None:
        """Publish the verdicts on single pods; `first` of each pair as in `_publish_gang`."""
        surplus: dict[tuple[GangKey, Verdict], list[PodRecord]] = {}
        for record, first in records:
            verdict = self._pods[record.pod.uid].told
            assert verdict is not None
            guard, what = self._failures.guard, f"pod {record.pod.key}"
            known = first and self._told_before((record.pod.uid,), verdict).get(record.pod.uid, False)
            guard("status", what, partial(self._conditions.set_verdict, record.pod.uid, verdict))
            if known:
                continue
            if record.gang is None:
                guard("status", what, partial(self._event_publisher.pod_waits, record.pod, verdict))
            else:
                surplus.setdefault((record.gang.key, verdict), []).append(record)
        for (_, verdict), members in surplus.items():
            what = f"surplus of {members[0].pod.key}"
            self._failures.guard("status", what, partial(self._event_publisher.surplus_waits, members, verdict))


def _listens(record: GangRecord, verdict: Verdict) -> bool:
    """Return whether a pending pod or a PodGroup can show the verdict. A group that awaits admission has no pods
    yet, so a verdict on missing members does not count."""
    return bool(record.pending) or (awaits_admission(record) and verdict.code not in INCOMPLETE)


def _source(record: GangRecord) -> object:
    """Return the object that declares a gang, or that was generated for it; None without one."""
    return record.spec.source if record.spec is not None else None

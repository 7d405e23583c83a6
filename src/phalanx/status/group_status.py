"""The status of group objects: derived from what is observed, written back in the object's own words."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from phalanx.cluster.pods.records import GangRecord
from phalanx.cluster.state import ClusterState
from phalanx.dialects.gangs.group_objects import GroupRecord
from phalanx.dialects.gangs.status_input import find_condition
from phalanx.dialects.intake import Intake
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.status import StatusChange, desired_status
from phalanx.execution.writes import Urgency, WritePool
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.kube.retry import Backoff, RetryPolicy
from phalanx.model.gang import Gang, GangKey, GroupRef
from phalanx.model.pod import ACTIVE, MemberState
from phalanx.model.verdict import Verdict
from phalanx.status.group_disruption import disruption_condition
from phalanx.status.status_writer import StatusWriter, resource_of
from phalanx.status.write_retries import Failure, next_try

log = logging.getLogger(__name__)

# Changes that come together are written together (seconds).
_GATHER = 0.1
# How long an admission holds that could not be written (seconds).
_ADMISSION_GRACE = 30.0

# Somebody else writes other words into the same status: after so many seconds at most we say ours again.
_LONGEST_TRUCE = 600.0


class _Entry:
    """One gang's object. `written` is the last change with the status that it was derived from: until the watch
    shows the object anew, the same change is not written again. At most one write is under way (`busy`).
    `disruption` says why the gang is evicted as a whole, until it has its quorum again. `hypernode` is what the
    object was last told to be in. `uid` is the object's: of a namesake nothing is known. `scheduled` tells that
    the first quorum was bound at some time. `said` is what was written last, `contested` counts how often it was
    replaced although it was still true; before `quiet_until` (loop time) it is not said again, and `later` is the
    look at it that is planned then.
    """

    __slots__ = (
        "backoff",
        "busy",
        "contested",
        "disruption",
        "gathering",
        "hypernode",
        "later",
        "quiet_until",
        "said",
        "scheduled",
        "stale",
        "uid",
        "written",
    )

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.scheduled = False
        self.disruption: str | None = None
        self.hypernode = ""
        self.gathering = False
        self.busy = False
        self.stale = False
        self.written: tuple[object, StatusChange] | None = None
        self.backoff: Backoff | None = None
        self.said: object = None
        self.contested = 0
        self.quiet_until = 0.0
        self.later: asyncio.TimerHandle | None = None


class GroupStatuses:
    """Writes a status when deriving it anew gives something else than the object says.

    `touch` is cheap and may be called for every change; the status is derived once the changes have settled and
    the write's turn has come, so a gang whose members start one by one costs few writes. `verdict` tells what
    was last decided about a gang. `now` gives seconds since the epoch.
    """

    def __init__(
        self,
        client: KubeClient,
        writer: StatusWriter,
        pool: WritePool,
        state: ClusterState,
        intake: Intake,
        verdict: Callable[[GangKey], Verdict | None],
        now: Callable[[], float],
        options: DialectOptions,
        retry: RetryPolicy | None = None,
    ) -> None:
        self._client = client
        self._writer = writer
        writer.moved.append(self.rewrite)
        self._pool = pool
        self._state = state
        self._intake = intake
        self._verdict = verdict
        self._now = now
        self._options = options
        self._retry = retry or RetryPolicy()
        self._entries: dict[GangKey, _Entry] = {}

    def __len__(self) -> int:
        """Gangs that are kept in mind."""
        return len(self._entries)

    def touch(self, key: GangKey) -> None:
        gang = self._state.gangs.get(key)
        if gang is None or gang.spec is None or gang.spec.source is None:
            self._entries.pop(key, None)
            return
        entry = self._entry(key, gang.spec.source.uid)
        # Asked now: when the status is derived members may have left again.
        entry.scheduled = entry.scheduled or ever_scheduled(gang, gang.spec)
        if not entry.gathering:
            entry.gathering = True
            asyncio.get_running_loop().call_later(_GATHER, self._submit, key, entry)

    def disrupted(self, key: GangKey, message: str) -> None:
        """The gang is evicted as a whole; a kind of group that has a word for it says so."""
        gang = self._state.gangs.get(key)
        if (
            gang is None
            or gang.spec is None
            or gang.spec.source is None
            or not self._says_eviction(gang.spec.source)
        ):
            return
        self._entry(key, gang.spec.source.uid).disruption = message
        self.touch(key)

    def disruption(self, key: GangKey) -> str | None:
        """Why a gang is evicted as a whole, until it has its quorum again."""
        entry = self._entries.get(key)
        return entry.disruption if entry is not None else None

    def _entry(self, key: GangKey, uid: str) -> _Entry:
        entry = self._entries.get(key)
        if entry is None or entry.uid != uid:
            entry = self._entries[key] = _Entry(uid)
        return entry

    def are_ours(self, key: GangKey) -> bool:
        """Whether the gang has a member of ours, or none at all."""
        record = self._state.gangs.get(key)
        if record is None or not record.members:
            return True
        return any(member.pod.scheduler in self._state.schedulers for member in record.members.values())

    def rewrite(self) -> None:
        """What has been written may not be there: everything is compared with the objects again."""
        for key, entry in list(self._entries.items()):
            entry.written = entry.said = None
            self.touch(key)

    def forget(self, key: GangKey) -> None:
        self._entries.pop(key, None)

    def _submit(self, key: GangKey, entry: _Entry) -> None:
        entry.gathering = False
        if entry.busy:
            entry.stale = True
            return
        entry.busy = True
        self._pool.submit(Urgency.STATUS, lambda: self._write(key, entry))

    async def _write(self, key: GangKey, entry: _Entry) -> float | None:
        pause: float | None = None
        try:
            pause = await self._attempt(key, entry)
        finally:
            if pause is None:
                entry.busy, entry.backoff = False, None
                if entry.stale and self._entries.get(key) is entry:
                    entry.stale = False
                    self.touch(key)
        return pause

    async def _attempt(self, key: GangKey, entry: _Entry) -> float | None:
        if self._entries.get(key) is not entry:
            return None
        entry.stale = False
        change = self._derive(key, entry)
        if change is None or self._keeps_truce(key, entry, change):
            return None
        try:
            await self._send(change)
        except (ApiError, ConnectionLost, ConfigError) as error:
            entry.written, entry.hypernode, entry.said = None, "", None
            return self._failed(key, entry, change.ref, error)
        self._tell_gated(key, change)
        return None

    def _keeps_truce(self, key: GangKey, entry: _Entry, change: StatusChange) -> bool:
        """Two that correct each other would go on for ever: what somebody has replaced although it was still true
        is said again after a pause that grows. Anything new is said at once."""
        loop, words = asyncio.get_running_loop(), timeless(change.patch)
        if words != entry.said:
            entry.said, entry.contested, entry.quiet_until = words, 0, 0.0
        elif loop.time() < entry.quiet_until:
            entry.written = None
            if entry.later is None:
                entry.later = loop.call_at(entry.quiet_until, self._end_truce, key, entry)
            return True
        else:
            entry.contested += 1
            entry.quiet_until = loop.time() + min(_LONGEST_TRUCE, 2.0**entry.contested)
            if entry.contested == 2:
                log.warning("somebody else writes the status of gang %s, too", key)
        return False

    def _end_truce(self, key: GangKey, entry: _Entry) -> None:
        entry.later = None
        if self._entries.get(key) is entry:
            self.touch(key)

    def _tell_gated(self, key: GangKey, change: StatusChange) -> None:
        """Nothing is decided about members that are gated, so nobody else tells that their group waits."""
        record = self._state.gangs.get(key)
        if record is None or record.pending or not record.counts().gated:
            return
        if not self._intake.dialects.group_of(change.ref).waiting_reason:
            return
        conditions = change.patch.get("status", {}).get("conditions", [])
        held = find_condition(conditions, "Unschedulable")
        if held is not None and held["status"] == "True":
            self._writer.held(change.ref, held["message"])

    def _failed(self, key: GangKey, entry: _Entry, ref: GroupRef, error: Failure) -> float | None:
        """The seconds until the next try, for which the status is derived anew."""
        entry.backoff = entry.backoff or self._retry.backoff()
        following = next_try(f"gang {key}", error, entry.backoff, self._retry)
        if following.refused:
            self._writer.refused(ref, error)
            # An admission that nobody was told of must not hold what it was promised; not at once, or the group
            # would be admitted (and refused) again in the same moment.
            asyncio.get_running_loop().call_later(_ADMISSION_GRACE, self._state.gangs.admission_failed, key)
        return following.pause

    def _derive(self, key: GangKey, entry: _Entry) -> StatusChange | None:
        record, group = self._state.gangs.get(key), self._intake.group_record(key)
        if record is None or record.spec is None or group is None:
            self.forget(key)
            return None
        if not group.ours:
            return None
        gang = record.spec
        change = desired_status(
            self._intake.dialects.group_of(group.ref),
            group.ref,
            group.status,
            gang,
            record.counts(),
            roles={role: record.counts(role) for role in record.roles()},
            occupied_by=group.occupied_by,
            verdict=self._verdict(key),
            ever_scheduled=entry.scheduled or ever_scheduled(record, gang),
            admitted=gang.admitted or record.admitted,
            now=int(self._now()),
            generation=group.generation,
            options=self._options,
        )
        change = self._with_disruption(change, entry, group, record.counts().active >= gang.min_member)
        if change is None:
            entry.written = None
        elif entry.written is not None and _same(entry.written, (group.status, change)):
            change = None
        else:
            entry.written = (group.status, change)
        return self._with_hypernode(change, entry, record, group.ref)

    def _with_hypernode(
        self, change: StatusChange | None, entry: _Entry, record: GangRecord, ref: GroupRef
    ) -> StatusChange | None:
        """Volcano's groups learn in which HyperNode all of their members are."""
        topology = record.spec.topology if record.spec is not None else None
        annotation = self._intake.dialects.group_of(ref).hypernode
        if topology is None or not topology.hypernodes or not annotation:
            return change
        rows = {each.row for each in record.members.values() if each.state in ACTIVE and each.row >= 0}
        name = self._state.topology.hypernodes.around(rows)
        if not name or name == entry.hypernode:
            return change
        entry.hypernode = name
        told = {**(change.annotations if change is not None else {}), annotation: name}
        if change is None:
            return StatusChange(ref, {}, annotations=told)
        return msgspec.structs.replace(change, annotations=told)

    def _with_disruption(
        self, change: StatusChange | None, entry: _Entry, group: GroupRecord, whole: bool
    ) -> StatusChange | None:
        if not self._says_eviction(group.ref):
            return change
        condition = disruption_condition(
            group.status, entry.disruption, whole=whole, now=int(self._now()), generation=group.generation
        )
        if whole:
            entry.disruption = None
        if condition is None:
            return change
        told = change.patch["status"]["conditions"] if change is not None else []
        patch = {"metadata": {"uid": group.ref.uid}, "status": {"conditions": [*told, condition]}}
        return StatusChange(group.ref, patch, strategic=True)

    def _says_eviction(self, ref: GroupRef) -> bool:
        return self._intake.dialects.group_of(ref).says_eviction

    async def _send(self, change: StatusChange) -> None:
        ref = change.ref
        if change.annotations:
            patch = {"metadata": {"uid": ref.uid, "annotations": dict(change.annotations)}}
            await self._client.patch(resource_of(ref).path(ref.namespace, ref.name), patch, PatchType.MERGE)
        if change.patch:
            kind = PatchType.STRATEGIC if change.strategic else PatchType.MERGE
            await self._writer.write(ref, change.patch, kind)


def ever_scheduled(record: GangRecord, gang: Gang) -> bool:
    """Whether the gang's first quorum is known to be bound. What is only placed may still fail: no proof."""
    if gang.once_satisfied:
        return True
    placed = record.count(MemberState.ASSUMED)
    marks = record.marks.items()
    if any(count - placed >= mark.size for mark, count in marks if mark.concerns(gang.uid)):
        return True
    counts = record.counts()
    return counts.bound + counts.running + counts.succeeded >= gang.min_member


def _same(written: tuple[object, StatusChange], wanted: tuple[object, StatusChange]) -> bool:
    """Whether a change was written already."""
    return written[0] == wanted[0] and timeless(written[1].patch) == timeless(wanted[1].patch)


_TIMES = frozenset({"lastTransitionTime", "transitionID", "scheduleStartTime"})


def timeless(value: Any) -> Any:
    """The same without times: they move while nothing else does."""
    if isinstance(value, dict):
        return {key: timeless(entry) for key, entry in value.items() if key not in _TIMES}
    if isinstance(value, list):
        return [timeless(entry) for entry in value]
    return value

"""Status of PodGroups, derived from observed members and written with the fields of their API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from phalanx.cluster.pods.records import GangRecord
from phalanx.cluster.state import ClusterState
from phalanx.dialects.gangs.group_objects import GroupRecord
from phalanx.dialects.intake import Intake
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.status import StatusChange, desired_status
from phalanx.execution.writes import WritePool
from phalanx.kube.retry import RetryPolicy
from phalanx.model.gang import Gang, GangKey
from phalanx.model.pod import ACTIVE, MemberState
from phalanx.model.text.run_times import run_time_sentence
from phalanx.model.verdict import Verdict
from phalanx.scheduling.gangs.quorum import ONCE
from phalanx.status.group_disruption import disruption_condition
from phalanx.status.status_endpoint import StatusEndpoint
from phalanx.status.status_writer import DerivedStatus, StatusWriter

# Delay until an admission that could not be written is withdrawn (seconds).
_ADMISSION_GRACE = 30.0
# Maximum time for which the status of a gang waits for the answers to its bindings (seconds).
_BINDING_GRACE = 1.0


class _Group:
    """State of the PodGroup with uid `uid` of one gang.

    `scheduled` is True once the first quorum was bound. `disruption` is the reason of the eviction of the whole
    gang, until its quorum is placed again. `hypernode` is the last annotated HyperNode. `decided` is True once a
    verdict on its pending members is known, or was not needed, since the start of this process. `binding_since` is
    the time of the first status that has waited for bindings in progress; None while there are none.
    """

    __slots__ = ("binding_since", "decided", "disruption", "hypernode", "scheduled", "uid")

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.binding_since: float | None = None
        self.decided = False
        self.scheduled = False
        self.disruption: str | None = None
        self.hypernode = ""


class GroupStatuses:
    """Writer of the status of PodGroups, if it differs from the derived one.

    `touch` is cheap and is called for every change. The status is derived when the changes have settled and the
    write starts, so a gang whose members start one by one needs few writes. `verdict` returns the last verdict on a
    gang. `now` returns seconds since the epoch.
    """

    def __init__(
        self,
        endpoint: StatusEndpoint,
        pool: WritePool,
        state: ClusterState,
        intake: Intake,
        verdict: Callable[[GangKey], Verdict | None],
        now: Callable[[], float],
        options: DialectOptions,
        retry: RetryPolicy | None = None,
        *,
        wrote: Callable[[GangKey, StatusChange], None] = lambda key, change: None,
    ) -> None:
        self._writer = StatusWriter(
            endpoint,
            pool,
            self._derive,
            lambda key: f"gang {key}",
            wrote=self._written,
            given_up=self._given_up,
            retry=retry,
        )
        self._state = state
        self._intake = intake
        self._verdict = verdict
        self._now = now
        self._options = options
        self._wrote = wrote
        self._groups: dict[GangKey, _Group] = {}

    def __len__(self) -> int:
        """Return the number of gangs whose PodGroup status is tracked."""
        return len(self._groups)

    def touch(self, key: GangKey) -> None:
        gang = self._state.gangs.get(key)
        if gang is None or gang.spec is None or gang.spec.source is None:
            self._forget(key)
            return
        group = self._group(key, gang.spec.source.uid)
        # Read now: members can terminate before the status is derived.
        group.scheduled = group.scheduled or ever_scheduled(gang, gang.spec)
        self._writer.touch(key)

    def disrupted(self, key: GangKey, message: str) -> None:
        """Record the reason why a whole gang is evicted, if the kind of its PodGroup has a condition for it."""
        gang = self._state.gangs.get(key)
        if gang is None or gang.spec is None or gang.spec.source is None:
            return
        if not self._intake.dialects.group_of(gang.spec.source).says_eviction:
            return
        self._group(key, gang.spec.source.uid).disruption = message
        self.touch(key)

    def disruption(self, key: GangKey) -> str | None:
        """Return the reason why a whole gang was evicted, until its quorum is placed again; else None."""
        group = self._groups.get(key)
        return group.disruption if group is not None else None

    def _group(self, key: GangKey, uid: str) -> _Group:
        group = self._groups.get(key)
        if group is None or group.uid != uid:
            self._writer.forget(key)
            group = self._groups[key] = _Group(uid)
        return group

    def _forget(self, key: GangKey) -> None:
        self._groups.pop(key, None)
        self._writer.forget(key)

    def are_ours(self, key: GangKey) -> bool:
        """Return whether the gang has a member of this scheduler, or no member."""
        record = self._state.gangs.get(key)
        if record is None or not record.members:
            return True
        return any(member.pod.scheduler in self._state.schedulers for member in record.members.values())

    def _written(self, key: GangKey, change: StatusChange) -> None:
        group, annotation = self._groups.get(key), self._intake.dialects.group_of(change.ref).hypernode
        if group is not None and annotation in change.annotations:
            group.hypernode = change.annotations[annotation]
        self._wrote(key, change)

    def _given_up(self, key: GangKey) -> None:
        # An unpublished admission must release its amounts. The delay prevents that the group is admitted and
        # rejected again at once.
        asyncio.get_running_loop().call_later(_ADMISSION_GRACE, self._state.gangs.admission_failed, key)

    def _derive(self, key: GangKey) -> DerivedStatus | None:
        record, found = self._state.gangs.get(key), self._intake.group_record(key)
        if record is None or record.spec is None or found is None:
            self._forget(key)
            return None
        if not found.ours:
            return None
        gang, group, verdict = record.spec, self._group(key, found.ref.uid), self._verdict(key)
        if self._waits_for_bindings(key, group, record):
            return None
        kind = self._intake.dialects.group_of(found.ref)
        scheduled = group.scheduled or ever_scheduled(record, gang)
        group.decided = group.decided or verdict is not None or not _needs_verdict(record, gang, scheduled)
        change = desired_status(
            kind,
            found.ref,
            found.status,
            gang,
            record.counts(),
            roles={role: record.counts(role) for role, _ in gang.roles},
            occupied_by=found.occupied_by,
            verdict=verdict,
            ever_scheduled=scheduled,
            admitted=record.may_create_pods,
            withdrawn=record.withdrawn,
            now=int(self._now()),
            generation=found.generation,
            options=self._options,
            exceeded=self._exceeded(record),
            undecided=not group.decided,
        )
        if kind.says_eviction:
            change = self._with_disruption(change, group, found, record.active >= gang.min_member)
        if kind.hypernode and gang.topology is not None and gang.topology.hypernodes:
            change = self._with_hypernode(change, group, record, found, kind.hypernode)
        return DerivedStatus(change, found.status) if change is not None else None

    def _waits_for_bindings(self, key: GangKey, group: _Group, record: GangRecord) -> bool:
        """Return whether members have a node that the watch has not shown yet: their gang is about to change, and
        gets one status instead of two. Slow bindings delay it for `_BINDING_GRACE` only."""
        if not record.count(MemberState.ASSUMED):
            group.binding_since = None
            return False
        now = asyncio.get_running_loop().time()
        if group.binding_since is None:
            group.binding_since = now
            asyncio.get_running_loop().call_later(_BINDING_GRACE, self._end_wait, key, group)
        return now < group.binding_since + _BINDING_GRACE

    def _end_wait(self, key: GangKey, group: _Group) -> None:
        """Write the status of a gang that still waits for bindings, or whose bindings have failed."""
        if group.binding_since is not None and self._groups.get(key) is group:
            self._writer.touch(key)

    def _exceeded(self, record: GangRecord) -> str:
        """Return the message about members beyond their run-time limit, "" if there are none."""
        run_time_limits = self._state.pods.run_time_limits
        if not run_time_limits:
            return ""
        over = [
            uid for uid in record.members if uid in run_time_limits and run_time_limits.end_of(uid) <= self._now()
        ]
        return run_time_sentence(record.members[min(over)].pod.run_time) if over else ""

    def _with_hypernode(
        self,
        change: StatusChange | None,
        group: _Group,
        record: GangRecord,
        found: GroupRecord,
        annotation: str,
    ) -> StatusChange | None:
        """Add to a status change the annotation with the HyperNode of all members, for PodGroups of Volcano."""
        rows = {each.row for each in record.members.values() if each.state in ACTIVE and each.row >= 0}
        name = self._state.topology.hypernodes.around(rows)
        # After a start of this process, the object has the last annotated HyperNode.
        if not name or name == (group.hypernode or found.hypernode):
            return change
        return msgspec.structs.replace(change or StatusChange(found.ref), annotations={annotation: name})

    def _with_disruption(
        self, change: StatusChange | None, group: _Group, found: GroupRecord, whole: bool
    ) -> StatusChange | None:
        condition = disruption_condition(
            found.status, group.disruption, whole=whole, now=int(self._now()), generation=found.generation
        )
        if whole:
            group.disruption = None
        if condition is None:
            return change
        others = change.patch["status"]["conditions"] if change is not None else []
        patch = {"metadata": {"uid": found.ref.uid}, "status": {"conditions": [*others, condition]}}
        return StatusChange(found.ref, patch, strategic=True)


def _needs_verdict(record: GangRecord, gang: Gang, scheduled: bool) -> bool:
    """Return whether pending members belong to the quorum of the gang; members above it have verdicts of their
    own."""
    counts = record.counts()
    if gang.problem is not None or not counts.pending or (scheduled and gang.match_policy in ONCE):
        return False
    return counts.active + counts.succeeded < gang.min_member


def ever_scheduled(record: GangRecord, gang: Gang) -> bool:
    """Return whether the first quorum of the gang was bound. The binding of assumed members can still fail."""
    if gang.once_satisfied:
        return True
    placed = record.count(MemberState.ASSUMED)
    marks = record.marks.items()
    if any(count - placed >= mark.size for mark, count in marks if mark.concerns(gang.uid)):
        return True
    counts = record.counts()
    return counts.bound + counts.running + counts.succeeded >= gang.min_member

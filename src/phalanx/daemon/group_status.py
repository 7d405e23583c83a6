"""The status of group objects: derived from what is observed, written back in the object's own words."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from phalanx.cluster.members import GangRecord
from phalanx.cluster.state import ClusterState
from phalanx.dialects.intake import Intake
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.status import StatusChange, desired_status
from phalanx.execution.writes import Urgency, WritePool
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.paths import Resource
from phalanx.kube.retry import RetryPolicy
from phalanx.model.gang import Gang, GangKey, GroupRef
from phalanx.model.verdict import Verdict

log = logging.getLogger(__name__)

# Changes that come together are written together (seconds).
_GATHER = 0.1


class GroupStatuses:
    """Writes a status when deriving it anew gives something else than the object says.

    `touch` is cheap and may be called for every change; the status is derived once the changes have settled and
    the write's turn has come, so a gang whose members start one by one costs few writes. `verdict` tells what
    was last decided about a gang. `now` gives seconds since the epoch.
    """

    def __init__(
        self,
        client: KubeClient,
        pool: WritePool,
        state: ClusterState,
        intake: Intake,
        verdict: Callable[[GangKey], Verdict | None],
        now: Callable[[], float],
        options: DialectOptions,
        may_write: Callable[[], bool],
        retry: RetryPolicy | None = None,
    ) -> None:
        self._client = client
        self._pool = pool
        self._state = state
        self._intake = intake
        self._verdict = verdict
        self._now = now
        self._options = options
        self._may_write = may_write
        self._retry = retry or RetryPolicy()
        self._queued: set[GangKey] = set()
        self._admitted: set[GangKey] = set()
        # The last change written per gang and the status object it was derived from: until the watch shows
        # the object anew, the same change is not written again.
        self._written: dict[GangKey, tuple[object, StatusChange]] = {}

    def touch(self, key: GangKey) -> None:
        if key in self._queued:
            return
        self._queued.add(key)
        asyncio.get_running_loop().call_later(_GATHER, self._submit, key)

    def admit(self, key: GangKey) -> None:
        """The group's controller may create its pods."""
        self._admitted.add(key)
        self.touch(key)

    def forget(self, key: GangKey) -> None:
        self._written.pop(key, None)
        self._admitted.discard(key)

    def _submit(self, key: GangKey) -> None:
        self._pool.submit(Urgency.STATUS, lambda: self._write(key))

    async def _write(self, key: GangKey) -> None:
        self._queued.discard(key)
        change = self._derive(key)
        if change is None or not self._may_write():
            return
        try:
            await self._send(change)
        except ApiError as error:
            if error.status not in (404, 409):
                log.warning("the status of gang %s was not written: %s", key, error)
            self._written.pop(key, None)
            if error.status == 409:
                self.touch(key)
        except ConnectionLost as error:
            log.warning("the status of gang %s was not written: %s", key, error)
            self._written.pop(key, None)
            self.touch(key)

    def _derive(self, key: GangKey) -> StatusChange | None:
        record, group = self._state.gangs.get(key), self._intake.group_record(key)
        if record is None or record.noun is None or group is None or not group.ours:
            self.forget(key)
            return None
        gang = record.noun
        change = desired_status(
            group.ref,
            group.status,
            gang,
            record.counts(),
            roles={role: record.counts(role) for role in record.roles()},
            occupied_by=group.occupied_by,
            verdict=self._verdict(key),
            ever_scheduled=ever_scheduled(record, gang),
            admitted=gang.admitted or key in self._admitted,
            now=int(self._now()),
            options=self._options,
        )
        if change is None:
            self._written.pop(key, None)
            return None
        if self._written.get(key) == (group.status, change):
            return None
        self._written[key] = (group.status, change)
        return change

    async def _send(self, change: StatusChange) -> None:
        ref = change.ref
        path = resource_of(ref).path(ref.namespace, ref.name)
        if change.annotations:
            patch = {"metadata": {"uid": ref.uid, "annotations": dict(change.annotations)}}
            await self._retry.run(lambda: self._client.patch(path, patch, PatchType.MERGE), "PATCH", guarded=True)
        if change.patch:
            kind = PatchType.STRATEGIC if change.strategic else PatchType.MERGE
            await self._retry.run(
                lambda: self._client.patch(f"{path}/status", change.patch, kind), "PATCH", guarded=True
            )


def ever_scheduled(record: GangRecord, gang: Gang) -> bool:
    """Whether the gang's first quorum is known to have been placed."""
    if gang.once_satisfied or any(count >= mark.size for mark, count in record.marks.items()):
        return True
    counts = record.counts()
    return counts.bound + counts.running + counts.succeeded >= gang.min_member


def resource_of(ref: GroupRef) -> Resource:
    return Resource(ref.group, ref.version, ref.plural, ref.kind)

"""The status of queues and quotas: derived from the ledger, written back in the object's own words."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from phalanx.cluster.accounts import AccountRecord
from phalanx.cluster.state import ClusterState
from phalanx.dialects.intake import Intake
from phalanx.dialects.quotas.account_index import AccountObject
from phalanx.dialects.quotas.usage_status import QuotaUsage, UsageInput
from phalanx.execution.writes import Urgency, WritePool
from phalanx.kube.client import PatchType
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.kube.events import EventRecorder
from phalanx.kube.failures import Failures
from phalanx.kube.retry import Backoff, RetryPolicy
from phalanx.model.account import Account, AccountKey, Tree
from phalanx.model.gang import GangKey, GroupRef
from phalanx.status.event_publisher import object_reference
from phalanx.status.podgroup_counts import PodGroupCounts
from phalanx.status.status_writer import StatusWriter
from phalanx.status.warnings.orphaned_accounts import OrphanedAccounts
from phalanx.status.warnings.overcommitted_quotas import OvercommittedQuotas
from phalanx.status.warnings.quotas_above_hard import QuotasAboveHard
from phalanx.status.write_retries import next_try

log = logging.getLogger(__name__)

# An account's status is written at most once in so many seconds: pods start one by one.
PERIOD = 1.0
# Somebody else writes other words into the same status: after so many seconds at most we say ours again.
_LONGEST_TRUCE = 600.0

# With these Volcano's controller is told to open and to close queues.
_COMMANDS = ("bus.volcano.sh", "commands")

_NOTHING: Mapping[str, int] = {}

# The account as declared, what it uses, what of it runs, its groups by phase.
_Told = tuple[Account | None, Mapping[str, int], Mapping[str, int], Mapping[str, int]]


class _Entry:
    """One object: `told` and `status` are what was last compared with each other, `written` the `told` of the last
    write. `contested` counts how often our words were replaced although they were still true. At most one write is
    under way.
    """

    __slots__ = ("backoff", "busy", "contested", "quiet_until", "status", "told", "written")

    def __init__(self) -> None:
        self.told: _Told | None = None
        self.status: Mapping[str, Any] | None = None
        self.written: _Told | None = None
        self.contested = 0
        self.quiet_until = 0.0
        self.busy = False
        self.backoff: Backoff | None = None


class AccountStatuses:
    """Writes the status of a queue or quota when deriving it anew gives something else than the object says.

    `touch` says that anything has changed, `gang_touched` that a group has; both are cheap. `look` compares every
    account once and is called by `run` every PERIOD seconds after a change; nothing is written in a steady state.
    `clock` gives monotonic seconds.
    """

    def __init__(
        self,
        writer: StatusWriter,
        pool: WritePool,
        state: ClusterState,
        intake: Intake,
        recorder: EventRecorder,
        clock: Callable[[], float],
        retry: RetryPolicy | None = None,
        failures: Failures | None = None,
    ) -> None:
        self._failures = failures or Failures()
        self._writer = writer
        writer.moved.append(self.rewrite)
        self._pool = pool
        self._state = state
        self._intake = intake
        self._recorder = recorder
        self._clock = clock
        self._retry = retry or RetryPolicy()
        self._podgroup_counts = PodGroupCounts(state, intake)
        self._overcommitted_quotas = OvercommittedQuotas(state, recorder)
        self._orphaned_accounts = OrphanedAccounts(state, recorder)
        self._above_hard = QuotasAboveHard(state, recorder)
        self._entries: dict[AccountKey, _Entry] = {}
        self._news = asyncio.Event()

    def __len__(self) -> int:
        """Accounts that are kept in mind."""
        return len(self._entries)

    def touch(self) -> None:
        self._news.set()

    def gang_touched(self, key: GangKey) -> None:
        self._podgroup_counts.gang_changed(key)
        self._news.set()

    def rewrite(self) -> None:
        """What has been written may not be there: everything is compared with the objects again."""
        for entry in self._entries.values():
            entry.told = None
        self.touch()

    async def run(self) -> None:
        """Until cancelled. To be started once everything has been seen, or half the sums would be written first."""
        self._news.set()
        while True:
            await self._news.wait()
            self._news.clear()
            self.write_changed()
            await asyncio.sleep(PERIOD)

    def write_changed(self) -> None:
        """Compares every account that has an object with what the object says."""
        self._state.ledger.settle()
        self._failures.guard("status", "overcommitted quotas", self._overcommitted_quotas.warn_of_changes)
        self._failures.guard("status", "orphaned accounts", self._orphaned_accounts.warn_of_changes)
        self._failures.guard("status", "quotas above ResourceQuotas", self._above_hard.warn_of_changes)
        keys = self._intake.account_keys()
        for key in [key for key in self._entries if key not in keys]:
            del self._entries[key]
        for key in keys:
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = _Entry()
            if entry.busy or self._clock() < entry.quiet_until:
                self._news.set()
            else:
                self._failures.guard("status", str(key), partial(self._compare, key, entry))

    def _compare(self, key: AccountKey, entry: _Entry) -> None:
        if self._needs_a_write(key, entry):
            self._begin(key, entry)

    def _needs_a_write(self, key: AccountKey, entry: _Entry) -> bool:
        record, found = self._state.ledger.accounts.get(key), self._intake.account_object(key)
        if record is None or found is None:
            return False
        told = (record.spec, record.allocated, record.running, self._groups(key))
        if found.status is entry.status and told == entry.told:
            return False
        if self._derive(key) is None:
            self._note(entry, told, found)
            return False
        if told != entry.written:
            entry.contested = 0
        elif found.status is not entry.status:
            entry.contested += 1
            if entry.contested > 1:
                # Two that correct each other would go on for ever.
                entry.quiet_until = self._clock() + min(_LONGEST_TRUCE, 2.0**entry.contested)
                log.warning("somebody else writes the status of %s, too", found.ref.name)
        self._note(entry, told, found)
        entry.written = entry.told
        return True

    def _note(self, entry: _Entry, told: _Told, found: AccountObject) -> None:
        account, used, running, groups = told
        entry.told, entry.status = (account, dict(used), dict(running), dict(groups)), found.status

    def _begin(self, key: AccountKey, entry: _Entry) -> None:
        entry.busy = True
        self._pool.submit(Urgency.STATUS, lambda: self._write(key, entry))

    async def _write(self, key: AccountKey, entry: _Entry) -> float | None:
        pause: float | None = None
        try:
            pause = await self._attempt(key, entry)
        finally:
            if pause is None:
                entry.busy, entry.backoff = False, None
        return pause

    async def _attempt(self, key: AccountKey, entry: _Entry) -> float | None:
        if self._entries.get(key) is not entry:
            return None
        self._state.ledger.settle()
        change = self._derive(key)
        if change is None:
            return None
        ref, patch = change
        body = {"metadata": {"uid": ref.uid}, "status": patch} if ref.uid else {"status": patch}
        try:
            await self._writer.write(ref, body, PatchType.MERGE)
        except (ApiError, ConnectionLost, ConfigError) as error:
            entry.backoff = entry.backoff or self._retry.backoff()
            following = next_try(str(key), error, entry.backoff, self._retry)
            if following.refused:
                self._writer.refused(ref, error)
            return following.pause
        if key.tree is Tree.ELASTIC_QUOTA:
            self._tell_synced(ref)
        return None

    def _derive(self, key: AccountKey) -> tuple[GroupRef, dict[str, Any]] | None:
        """The object and what is not true of its status."""
        record, found = self._state.ledger.accounts.get(key), self._intake.account_object(key)
        if record is None or record.spec is None or found is None:
            return None
        if key.tree is Tree.QUEUE and not record.used and self._podgroup_counts.is_foreign(key.name):
            # Another scheduler serves this queue, and says so itself.
            return None
        usage = UsageInput(
            found.status,
            record.spec,
            self._holdings(record),
            tell_state=self._tells_state(found),
            # Older releases of Volcano's controller replace the status, without the counts that they do not know.
            tell_counts=found.controller != "Update",
        )
        change = self._intake.dialects.usage_status(usage)
        return (found.ref, change) if change else None

    def _tells_state(self, found: AccountObject) -> bool:
        """Volcano's controller takes no orders for a queue whose state somebody wrote before it; where its orders
        can be given it is taken to run."""
        return not found.controller and not self._writer.serves(*_COMMANDS)

    def _holdings(self, record: AccountRecord) -> QuotaUsage:
        return QuotaUsage(record.allocated, record.running, self._groups(record.key))

    def _groups(self, key: AccountKey) -> Mapping[str, int]:
        return self._podgroup_counts.phases_of(key.name) if key.tree is Tree.QUEUE else _NOTHING

    def _tell_synced(self, ref: GroupRef) -> None:
        about = object_reference(ref)
        note = f"Elastic Quota {ref.namespace}/{ref.name} synced successfully"
        self._recorder.record(about, reason="Synced", action="Syncing", note=note)

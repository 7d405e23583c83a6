"""Status of queues and quotas, derived from the usage ledger and written with the fields of their API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from phalanx.cluster.state import ClusterState
from phalanx.dialects.intake import Intake
from phalanx.dialects.quotas.account_index import AccountObject
from phalanx.dialects.quotas.usage_status import QuotaUsage, UsageInput
from phalanx.dialects.status import StatusChange
from phalanx.execution.writes import WritePool
from phalanx.kube.events import EventRecorder
from phalanx.kube.failures import Failures
from phalanx.kube.retry import RetryPolicy
from phalanx.model.account import Account, AccountKey, Tree
from phalanx.model.gang import GangKey
from phalanx.status.event_publisher import object_reference
from phalanx.status.podgroup_counts import PodGroupCounts
from phalanx.status.status_endpoint import StatusEndpoint
from phalanx.status.status_writer import DerivedStatus, StatusWriter
from phalanx.status.warnings.orphaned_accounts import OrphanedAccounts
from phalanx.status.warnings.overcommitted_quotas import OvercommittedQuotas
from phalanx.status.warnings.quotas_above_hard import QuotasAboveHard

# Minimum seconds between two writes of the status of an account, because pods start one by one.
PERIOD = 1.0

# Kind by which users tell Volcano's controller to open and to close queues.
_COMMANDS = ("bus.volcano.sh", "commands")

# Fields of a queue's status that only schedulers write.
_SCHEDULERS = {"allocated"}

_NOTHING: Mapping[str, int] = {}

# (declared account, allocated amounts, amounts of running pods, number of groups by phase)
_Truth = tuple[Account | None, Mapping[str, int], Mapping[str, int], Mapping[str, int]]


class AccountStatuses:
    """Writer of the status of queues and quotas, if it differs from the derived one.

    `touch` reports any change, `gang_touched` the change of a group; both are cheap. `run` calls `write_changed`
    every PERIOD seconds after a change, which compares every account. A steady state writes nothing. `clock`
    returns monotonic seconds.
    """

    def __init__(
        self,
        endpoint: StatusEndpoint,
        pool: WritePool,
        state: ClusterState,
        intake: Intake,
        recorder: EventRecorder,
        clock: Callable[[], float] = time.monotonic,
        retry: RetryPolicy | None = None,
        failures: Failures | None = None,
    ) -> None:
        self._failures = failures or Failures()
        self._endpoint = endpoint
        self._writer = StatusWriter(
            endpoint,
            pool,
            self._derive,
            str,
            wrote=self._publish_synced,
            retry=retry,
            clock=clock,
            explain=_shared,
        )
        self._state = state
        self._intake = intake
        self._recorder = recorder
        self._podgroup_counts = PodGroupCounts(state, intake)
        self._overcommitted_quotas = OvercommittedQuotas(state, recorder)
        self._orphaned_accounts = OrphanedAccounts(state, recorder)
        self._above_hard = QuotasAboveHard(state, recorder)
        # Last compared pair: derived amounts and current status.
        self._compared: dict[AccountKey, tuple[_Truth, Mapping[str, Any]]] = {}
        self._news = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of queues and quotas whose status was compared."""
        return len(self._compared)

    def touch(self) -> None:
        self._news.set()

    def gang_touched(self, key: GangKey) -> None:
        self._podgroup_counts.gang_changed(key)
        self._news.set()

    async def run(self) -> None:
        """Write changed statuses of queues and quotas until cancelled. Start it after the initial lists: partial
        sums are wrong."""
        self._news.set()
        while True:
            await self._news.wait()
            self._news.clear()
            self.write_changed()
            await asyncio.sleep(PERIOD)

    def write_changed(self) -> None:
        """Compare every queue and quota that has an API object with its derived status, and write the
        differences."""
        self._state.ledger.refresh_sums()
        self._failures.guard("status", "overcommitted quotas", self._overcommitted_quotas.warn_of_changes)
        self._failures.guard("status", "orphaned accounts", self._orphaned_accounts.warn_of_changes)
        self._failures.guard("status", "quotas above ResourceQuotas", self._above_hard.warn_of_changes)
        keys = self._intake.account_keys()
        for key in [key for key in self._compared if key not in keys]:
            del self._compared[key]
            self._writer.forget(key)
        for key in keys:
            self._failures.guard("status", str(key), partial(self._compare, key))

    def _compare(self, key: AccountKey) -> None:
        record, found = self._state.ledger.accounts.get(key), self._intake.account_object(key)
        if record is None or found is None:
            return
        truth, last = (record.spec, record.allocated, record.running, self._groups(key)), self._compared.get(key)
        if last is not None and found.status is last[1] and truth == last[0]:
            return
        if self._derive(key) is not None:
            self._writer.observed(key)
            self._writer.submit(key)
        account, used, running, groups = truth
        self._compared[key] = (account, dict(used), dict(running), dict(groups)), found.status

    def _derive(self, key: AccountKey) -> DerivedStatus | None:
        self._state.ledger.refresh_sums()
        record, found = self._state.ledger.accounts.get(key), self._intake.account_object(key)
        if record is None or record.spec is None or found is None:
            return None
        if key.tree is Tree.QUEUE and not record.used and self._podgroup_counts.is_foreign(key.name):
            # Another scheduler serves this queue and writes its status.
            return None
        usage = UsageInput(
            found.status,
            record.spec,
            QuotaUsage(record.allocated, record.running, self._groups(key)),
            tell_state=self._tells_state(found),
            # Older releases of Volcano's controller replace the status and drop counts that they do not know.
            tell_counts=found.controller != "Update",
        )
        change, ref = self._intake.dialects.usage_status(usage), found.ref
        if not change:
            return None
        if (
            key.tree is Tree.QUEUE
            and not record.used
            and set(change) == _SCHEDULERS
            and self._writer.is_contested(key)
        ):
            # Two schedulers would overwrite each other endlessly: the one without pods in the queue stops.
            return None
        body = {"metadata": {"uid": ref.uid}, "status": change} if ref.uid else {"status": change}
        return DerivedStatus(StatusChange(ref, body), found.status)

    def _tells_state(self, found: AccountObject) -> bool:
        """Return whether to write the state of a queue. Volcano's controller ignores commands for a queue whose
        state another writer set first; it is assumed to run in a cluster that serves its Command kind."""
        return not found.controller and not self._endpoint.serves(*_COMMANDS)

    def _groups(self, key: AccountKey) -> Mapping[str, int]:
        return self._podgroup_counts.phases_of(key.name) if key.tree is Tree.QUEUE else _NOTHING

    def _publish_synced(self, key: AccountKey, change: StatusChange) -> None:
        record = self._state.ledger.accounts.get(key)
        if key.tree is Tree.ELASTIC_QUOTA and (record is None or record.fault is None):
            ref = change.ref
            note = f"Elastic Quota {ref.namespace}/{ref.name} synced successfully"
            self._recorder.record(object_reference(ref), reason="Synced", action="Syncing", note=note)


def _shared(change: StatusChange) -> str:
    """Return the reason why another scheduler legitimately writes the same status of a queue, "" if there is
    none."""
    if set(change.patch.get("status", ())) != _SCHEDULERS:
        return ""
    return "another scheduler has pods in this queue, and each writes the sum of its own pods"

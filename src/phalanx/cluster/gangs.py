"""Gangs of a cluster: declared by an object, by their members, or by both."""

from __future__ import annotations

from phalanx.cluster.changes import Changes
from phalanx.cluster.composites import Composites
from phalanx.cluster.inqueue import InqueueResources
from phalanx.cluster.ledger import Ledger
from phalanx.cluster.node_requests import NodeRequestTable
from phalanx.cluster.pods.records import NO_NODE, GangRecord, PodRecord
from phalanx.cluster.pods.victim_index import VictimIndex
from phalanx.model.account import DEFAULT_QUEUE
from phalanx.model.gang import Gang, GangKey

# Number of removed gangs among the touched ones above which they are discarded, and a reader has to process all
# gangs.
_MOST_GONE = 10_000


class GangTable(dict[GangKey, GangRecord]):
    """Gangs by key, while they are declared or have members; a mapping that only these methods modify.

    `composites` are the groups of groups. `inqueue` sums the announced but unused amounts of admitted groups,
    `node_requests` are the groups that wait for an autoscaler of nodes.
    """

    def __init__(self, ledger: Ledger, changes: Changes, victims: VictimIndex) -> None:
        super().__init__()
        self.composites = Composites(self)
        self.inqueue = InqueueResources(self)
        self.node_requests = NodeRequestTable(self.inqueue)
        self._ledger = ledger
        self._changes = changes
        self._victims = victims
        # Collected from the first call of `take_touched` on; None: any gang can have changed.
        self._touched: set[GangKey] | None = None

    def declare(self, gang: Gang) -> None:
        """Store the newest declaration of a gang."""
        record = self._record(gang.key)
        old, record.spec = record.spec, gang
        if old == gang:
            return
        if gang.admitted or old is None or old.uid != gang.uid:
            record.admitted = False
        if not gang.admitted or old is None or old.uid != gang.uid:
            record.withdrawn = False
        if old is not None and old.uid and gang.uid and old.uid != gang.uid:
            record.redeclare()
        if (old.queue if old is not None else DEFAULT_QUEUE) != gang.queue:
            self._recharge(record)
        self._victims.gang_changed(record)
        self.mark_changed(gang.key)
        if gang.admission:
            self._changes.version += 1
        if (old is not None and old.admission) or record.active:
            self._changes.may_fit()  # announced amounts can be free, or its members can have become evictable

    def withdraw(self, key: GangKey) -> None:
        """Remove the declaration of a gang."""
        record = self.get(key)
        if record is None or record.spec is None:
            return
        self.mark_changed(key)
        if record.spec.admission or record.active:
            self._changes.may_fit()
        record.spec, record.admitted, record.withdrawn = None, False, False
        self._victims.gang_changed(record)
        self._recharge(record)
        self._discard_if_empty(record)

    def admit(self, key: GangKey, now: float = 0) -> None:
        """Count a gang's PodGroup as admitted from `now` on, until its own phase shows it."""
        self[key].admitted, self[key].withdrawn = True, False
        self.inqueue.admitted_at[key] = now
        self._changes.version += 1  # verdicts about other groups that wait for admission are outdated
        self.mark_changed(key)

    def withdraw_admission(self, key: GangKey) -> None:
        """Count a gang's PodGroup as not admitted, until its own phase shows it."""
        record = self[key]
        record.admitted, record.withdrawn = False, record.spec is not None and record.spec.admitted
        self.mark_changed(key)
        self._changes.may_fit()

    def admission_failed(self, key: GangKey) -> None:
        """Revert an admission that could not be written to the PodGroup: the gang waits for admission again, and
        its reserved amounts are free."""
        record = self.get(key)
        if record is not None and record.admitted:
            record.admitted = False
            self.mark_changed(key)
            self._changes.may_fit()

    def add_member(self, record: PodRecord) -> None:
        self._record(GangKey(record.pod.namespace, record.pod.gang)).add(record)

    def remove_member(self, record: PodRecord) -> None:
        if record.gang is not None:
            gang = record.gang
            gang.remove(record)
            self._discard_if_empty(gang)

    def mark_changed(self, key: GangKey) -> None:
        self._changes.gangs[key] = None
        self.composites.changed(key)
        self.inqueue.stale.add(key)
        if self._touched is not None:
            self._touched.add(key)

    def take_touched(self) -> set[GangKey] | None:
        """Return the gangs that changed since the last call, removed ones included; None if any gang can have
        changed. Only one reader can use it."""
        touched, self._touched = self._touched, set()
        return touched

    def _recharge(self, record: GangRecord) -> None:
        """Charge the members to another queue after a change of the gang's queue."""
        for member in (*record.members.values(), *record.placeholders.values()):
            self._ledger.enter(member)
            if member.row != NO_NODE:
                self._victims.moved.note(member.row)

    def _record(self, key: GangKey) -> GangRecord:
        record = self.get(key)
        if record is None:
            record = self[key] = GangRecord(key)
        return record

    def _discard_if_empty(self, record: GangRecord) -> None:
        if record.spec is None and not record.members and not record.placeholders:
            self.pop(record.key, None)
            if self._touched is not None and len(self._touched) > len(self) + _MOST_GONE:
                self._touched = None  # there is no reader any more

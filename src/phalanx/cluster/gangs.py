"""The gangs of a cluster: declared by an object, by their members, or by both."""

from __future__ import annotations

from phalanx.cluster.changes import Changes
from phalanx.cluster.composites import Composites
from phalanx.cluster.inqueue import InqueueResources
from phalanx.cluster.ledger import Ledger
from phalanx.cluster.pods.records import NO_NODE, GangRecord, PodRecord
from phalanx.cluster.pods.victim_index import VictimIndex
from phalanx.model.account import DEFAULT_QUEUE
from phalanx.model.gang import Gang, GangKey

# So many gangs may be gone before whoever asks what has changed has to look at all that are there.
_MOST_GONE = 10_000


class GangTable(dict[GangKey, GangRecord]):
    """Gangs by key, while they are declared or have members; read as a mapping, changed by the methods here.

    `composites` are the groups of groups, `inqueue` sums what admitted groups have announced and do not use yet.
    """

    def __init__(self, ledger: Ledger, changes: Changes, victims: VictimIndex) -> None:
        super().__init__()
        self.composites = Composites(self)
        self.inqueue = InqueueResources(self)
        self._ledger = ledger
        self._changes = changes
        self._victims = victims
        # Collected from the first time that somebody asks; None: any gang may have changed.
        self._touched: set[GangKey] | None = None

    def declare(self, gang: Gang) -> None:
        """An object says that the gang is this."""
        record = self._record(gang.key)
        old, record.spec = record.spec, gang
        if old == gang:
            return
        if gang.admitted or old is None or old.uid != gang.uid:
            record.admitted = False
        if old is not None and old.uid and gang.uid and old.uid != gang.uid:
            record.redeclare()
        if (old.queue if old is not None else DEFAULT_QUEUE) != gang.queue:
            self._recharge(record)
        self._victims.gang_changed(record)
        self.mark_changed(gang.key)
        if gang.admission:
            self._changes.version += 1
        if (old is not None and old.admission) or record.active:
            self._changes.may_fit()  # what was announced may be free for others, or its members may have to go

    def withdraw(self, key: GangKey) -> None:
        """The object that declared the gang is gone."""
        record = self.get(key)
        if record is None or record.spec is None:
            return
        self.mark_changed(key)
        if record.spec.admission or record.active:
            self._changes.may_fit()
        record.spec, record.admitted = None, False
        self._victims.gang_changed(record)
        self._recharge(record)
        self._discard_if_empty(record)

    def admit(self, key: GangKey) -> None:
        """Counts a group as admitted from now on, until its own phase says so."""
        self[key].admitted = True
        self._changes.version += 1  # what others who wait to be admitted were told is no longer true
        self.mark_changed(key)

    def admission_failed(self, key: GangKey) -> None:
        """The admission could not be written for good: the group waits again, and what it announced is free."""
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
        """The gangs that have changed since the last call, those that are gone included; None where any may have.
        One part of the process may ask."""
        touched, self._touched = self._touched, set()
        return touched

    def _recharge(self, record: GangRecord) -> None:
        """The gang may stand in another queue now."""
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
                self._touched = None  # nobody asks any more

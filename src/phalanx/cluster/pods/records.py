"""Records of pods and gangs: small mutable objects with counts that are always current."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar, cast

import msgspec

from phalanx.cluster.accounts import ChargePath, ChargeState
from phalanx.cluster.classes import ClassRecord, Footprint
from phalanx.cluster.pods.nominations import Nomination
from phalanx.model.gang import Gang, GangCounts, GangKey
from phalanx.model.pod import ACTIVE, CAN_LEAVE, MemberState, PlanMark, Pod
from phalanx.model.verdict import Verdict

K = TypeVar("K")

NO_NODE = -1
# States in which a plan mark counts: a pending pod has none of ours, a terminating one is no longer part of the
# run.
_MARKED = (*ACTIVE, MemberState.SUCCEEDED, MemberState.FAILED)
_NO_COUNTS = [0] * len(MemberState)
# Value of empty collections: most records have no entries in most of theirs. Writing to it raises TypeError.
_EMPTY = cast("dict[Any, Any]", MappingProxyType(dict[Any, Any]()))
NOTHING_ALLOCATED: Mapping[str, object] = _EMPTY


class PodRecord(msgspec.Struct, eq=False):
    """One pod: its newest spec (`pod`), its class, and its charges.

    `row` is its node's row while it occupies it, else NO_NODE. `assumed_node` is the node of our placement until
    the API confirms or rejects it. `last_verdict` is the last published verdict, so that none is repeated. The
    ledger sets `charge_path` (the charged accounts), `charged_footprint` and `charge_state`.

    A pending pod can have a `nomination`: room on `nominated_node` is reserved for it. An evicted pod is
    `evicting`: it counts as terminating before the API shows it, since `evicted_at` (seconds since the epoch, 0 if
    unknown). `no_eviction_until` is the time until which it is no victim, after a refused eviction. `unplaceable`
    is set while a pending pod is proved to fit on no node even if all nodes were empty. `allocated` are its
    allocations by node allocator, while it occupies a node.
    """

    pod: Pod
    pod_class: ClassRecord
    footprint: Footprint
    state: MemberState
    row: int = NO_NODE
    assumed_node: str = ""
    mark: PlanMark | None = None
    gang: GangRecord | None = None
    last_verdict: Verdict | None = None
    charge_path: ChargePath | None = None
    charged_footprint: Footprint | None = None
    charge_state: ChargeState | None = None
    nomination: Nomination | None = None
    nominated_node: str = ""
    evicting: bool = False
    evicted_at: int = 0
    unplaceable: bool = False
    no_eviction_until: float = 0.0
    allocated: Mapping[str, object] = NOTHING_ALLOCATED

    def __repr__(self) -> str:
        return f"PodRecord({self.pod.key}, {self.state.name})"

    @property
    def order(self) -> tuple[int, int, int, str]:
        """Sort key of members for placement: priority, index, age, name."""
        pod = self.pod
        return (-pod.priority, pod.index, pod.created, pod.name)


class PendingFacts(msgspec.Struct, frozen=True, eq=False):
    """Facts about the pending members of a gang: those with an invalid spec in order, and the distinct classes, in
    the order of their first members."""

    unreadable: tuple[PodRecord, ...]
    classes: tuple[ClassRecord, ...]


class GangRecord(msgspec.Struct, eq=False):
    """A gang's members and their counts by state, in total and per role.

    `pending` are the members to be placed by us. `marks` counts, per plan mark, the bound, non-terminating members
    with it: this distinguishes a partially bound plan from a gang that never started. `peak` is the maximum number
    of members on nodes in the current run, which ends when no member is on a node. `finished_plan` is the newest
    plan that was seen complete, with all members confirmed by the API: members lost later are no sign of a partial
    binding. `failures` counts failed bindings. `arrivals` counts how often a member became pending: a verdict from
    before the last arrival has not reached all members. `last_verdict` is the last published verdict, with the
    arrivals of that time. `admitted` is a decided admission that the group's phase does not show yet, `withdrawn`
    the withdrawal of an admission that the phase still shows. `allocated` counts, by footprint, the members with
    resources. `cached` is a cache for values computed from spec and members, cleared when these change.
    `task_buckets` belongs to the plugin that places members by their tasks. `placeholders` are pods for expected
    members; they are no members.
    """

    key: GangKey
    spec: Gang | None = None
    members: dict[str, PodRecord] = {}
    pending: dict[str, PodRecord] = _EMPTY
    placeholders: dict[str, PodRecord] = _EMPTY
    marks: dict[PlanMark, int] = _EMPTY
    peak: int = 0
    finished_plan: PlanMark | None = None
    allocated: tuple[tuple[Footprint, int], ...] = ()
    failures: int = 0
    cached: object = None
    task_buckets: object = None
    arrivals: int = 0
    last_verdict: tuple[Verdict | None, int] | None = None
    admitted: bool = False
    withdrawn: bool = False
    highest_priority: int | None = None  # of the living members; None after a change of members, until it is read
    redeclared: bool = False  # until the reservations for members of the former declaration are released
    _counts: list[int] = msgspec.field(default_factory=_NO_COUNTS.copy)
    # Counts by role once members have had several; until then `_counts` are those of the `_only_role`.
    _only_role: str | None = None
    _roles: dict[str, list[int]] = _EMPTY
    _unconfirmed: dict[PlanMark, int] = _EMPTY
    _pending_facts: PendingFacts | None = None

    def __repr__(self) -> str:
        return f"GangRecord({self.key}, {self.counts()})"

    @property
    def title(self) -> str:
        """NAMESPACE/NAME for messages."""
        return self.spec.title if self.spec is not None else str(self.key)

    @property
    def may_create_pods(self) -> bool:
        """Whether the gang is admitted: by its group's phase, or by a newer decision."""
        return self.admitted or (self.spec is not None and self.spec.admitted and not self.withdrawn)

    def count(self, state: MemberState, role: str | None = None) -> int:
        values = self._counts if role is None else self._of_role(role)
        return values[state] if values else 0

    def counts(self, role: str | None = None) -> GangCounts:
        values = self._counts if role is None else self._of_role(role)
        return GangCounts(*values) if values else GangCounts()

    def _of_role(self, role: str) -> list[int] | None:
        return self._counts if role == self._only_role else self._roles.get(role)

    @property
    def active(self) -> int:
        """Number of the gang's members on a node or assumed there, neither finished nor terminating."""
        counts = self._counts
        return counts[MemberState.ASSUMED] + counts[MemberState.BOUND] + counts[MemberState.RUNNING]

    def confirmed(self, mark: PlanMark) -> int:
        """Return the number of members with this plan mark whose binding the API has confirmed."""
        return self.marks.get(mark, 0) - self._unconfirmed.get(mark, 0)

    def roles(self) -> Iterator[str]:
        return iter(self._roles if self._only_role is None else (self._only_role,))

    @property
    def pending_facts(self) -> PendingFacts:
        """Facts about the pending members, computed at the first query after a change of these."""
        facts = self._pending_facts
        if facts is None:
            unreadable = [member for member in self.pending.values() if member.pod.problem]
            classes = dict.fromkeys([member.pod_class for member in self.pending.values()])
            unreadable.sort(key=lambda member: member.order)
            facts = self._pending_facts = PendingFacts(tuple(unreadable), tuple(classes))
        return facts

    def forget_pending_facts(self) -> None:
        """Recompute the facts about pending members at the next query: a spec or class has changed."""
        self._pending_facts = None

    @property
    def starting_placeholders(self) -> list[PodRecord]:
        """Placeholders to place together with the quorum: all of them, until the quorum is placed."""
        if self.spec is None or not self.placeholders or self.active >= self.spec.min_member:
            return []
        return list(self.placeholders.values())

    def live_marks(self) -> set[PlanMark]:
        """Return the plan marks of members that are on a node or assumed there."""
        return {
            member.mark for member in self.members.values() if member.mark is not None and member.state in ACTIVE
        }

    def add(self, record: PodRecord) -> None:
        record.gang = self
        if record.pod.placeholder:
            self.placeholders = _with(self.placeholders, record)
            self.cached = None
            return
        self.members[record.pod.uid] = record
        self._tally(record, record.state, 1)
        self._note_run()

    def remove(self, record: PodRecord) -> None:
        record.gang = None
        if record.pod.placeholder:
            self.placeholders = _without(self.placeholders, record)
            self.cached = None
            return
        del self.members[record.pod.uid]
        self._tally(record, record.state, -1)
        self._note_run()

    def set_state(self, record: PodRecord, state: MemberState, mark: PlanMark | None) -> None:
        """Set a member's state and plan mark, and count it accordingly."""
        if record.pod.placeholder:
            record.state, self.cached = state, None
            return
        last = record.state
        if last is MemberState.ASSUMED and state in CAN_LEAVE and mark == record.mark:
            self._confirm(record, state)
            return
        self._tally(record, last, -1)
        record.state, record.mark = state, mark
        self._tally(record, state, 1)
        if last in ACTIVE or state in CAN_LEAVE:
            self._note_run()

    def _confirm(self, record: PodRecord, state: MemberState) -> None:
        """Count an assumed member as one on its node, as its binding was planned."""
        self.cached = self.highest_priority = None
        record.state = state
        of_role = self._roles.get(record.pod.role) if self._roles else None
        for counts in (self._counts,) if of_role is None else (self._counts, of_role):
            counts[MemberState.ASSUMED] -= 1
            counts[state] += 1
        mark = record.mark
        if mark is not None:
            add_count(self._unconfirmed, mark, -1)
            self._unconfirmed = self._unconfirmed or _EMPTY
            self._note_plan(mark, self.marks[mark])
        self._note_run()

    def note_assumed(self, records: Mapping[str, PodRecord], mark: PlanMark | None) -> None:
        """Count members, by uid, that were pending as assumed; they are no placeholders."""
        self.cached = self._pending_facts = None
        if len(records) == len(self.pending):
            self.pending = _EMPTY
        else:
            for uid in records:
                del self.pending[uid]
        by_role = []
        if self._roles:
            roles = [record.pod.role for record in records.values()]
            by_role = [(self._roles[role], roles.count(role)) for role in dict.fromkeys(roles)]
        for counts, number in [(self._counts, len(records)), *by_role]:
            counts[MemberState.PENDING] -= number
            counts[MemberState.ASSUMED] += number
        if mark is not None:
            self._tally_mark(mark, MemberState.ASSUMED, len(records))

    def resume(self, peak: int) -> None:
        """Continue the counts of a gang that was interrupted only because a member was removed and added again."""
        if self.active:
            self.peak = max(self.peak, peak)

    def redeclare(self) -> None:
        """Reset the past decisions about the gang, after another object of the same name declares it."""
        self.finished_plan, self.failures, self.cached = None, 0, None
        self.redeclared = True
        self.peak = 0
        self._note_run()

    def _note_run(self) -> None:
        counts = self._counts
        on_nodes = counts[MemberState.BOUND] + counts[MemberState.RUNNING]
        if on_nodes > self.peak:
            self.peak = on_nodes
        elif not on_nodes and not counts[MemberState.ASSUMED]:
            self.peak = 0

    def count_allocated(self, footprint: Footprint, count: int) -> None:
        match self.allocated:
            case ():
                self.allocated = ((footprint, count),)
            case ((known, total),) if known is footprint:  # nearly always, and so without a call
                self.allocated = ((footprint, total + count),) if total + count else ()
            case _:
                counts = dict(self.allocated)
                add_count(counts, footprint, count)
                self.allocated = tuple(counts.items())

    def _tally(self, record: PodRecord, state: MemberState, step: int) -> None:
        self.cached = self.highest_priority = None
        role = record.pod.role
        if role != self._only_role:
            self._tally_role(role, state, step)
        self._counts[state] += step
        if state is MemberState.PENDING:
            self._pending_facts = None
            if step > 0:
                self.arrivals += 1
                self.pending = _with(self.pending, record)
            else:
                self.pending = _without(self.pending, record)
        if record.mark is not None:
            self._tally_mark(record.mark, state, step)

    def _tally_role(self, role: str, state: MemberState, step: int) -> None:
        """Count a member with a role other than the only one so far; `_counts` do not contain the change yet."""
        if not self._roles:
            if self._only_role is None:
                self._only_role = role
                return
            self._roles, self._only_role = {self._only_role: self._counts.copy()}, None
        self._roles.setdefault(role, _NO_COUNTS.copy())[state] += step

    def _tally_mark(self, mark: PlanMark, state: MemberState, step: int) -> None:
        if state not in _MARKED:
            return
        self.marks = self.marks or {}
        total = add_count(self.marks, mark, step)
        self.marks = self.marks or _EMPTY
        if state is MemberState.ASSUMED:
            self._unconfirmed = self._unconfirmed or {}
            add_count(self._unconfirmed, mark, step)
            self._unconfirmed = self._unconfirmed or _EMPTY
        if step > 0:
            self._note_plan(mark, total)

    def _note_plan(self, mark: PlanMark, total: int) -> None:
        """Record that all members of a plan are confirmed, if they are."""
        complete = total >= mark.size > 1 and mark not in self._unconfirmed
        if complete and (self.finished_plan is None or self.finished_plan.time <= mark.time):
            self.finished_plan = mark


def _with(records: dict[str, PodRecord], record: PodRecord) -> dict[str, PodRecord]:
    """Add a record to `records`, or to a new dictionary if they are empty; return the result."""
    if not records:
        return {record.pod.uid: record}
    records[record.pod.uid] = record
    return records


def _without(records: dict[str, PodRecord], record: PodRecord) -> dict[str, PodRecord]:
    """Remove a record from `records`; return the result."""
    del records[record.pod.uid]
    return records or _EMPTY


def add_count(counts: dict[K, int], key: K, step: int) -> int:
    """Add to a count and return it; a count of zero is removed."""
    total = counts.get(key, 0) + step
    if total:
        counts[key] = total
    else:
        del counts[key]
    return total

"""Pods and gangs as the cluster keeps them: small mutable records with counts that are always current."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypeVar

import msgspec

from phalanx.cluster.accounts import ChargePath, ChargeState
from phalanx.cluster.classes import ClassRecord, Footprint
from phalanx.cluster.pods.nominations import Nomination
from phalanx.model.gang import Gang, GangCounts, GangKey
from phalanx.model.pod import ACTIVE, CAN_LEAVE, MemberState, PlanMark, Pod
from phalanx.model.verdict import Verdict

K = TypeVar("K")

NO_NODE = -1
# Where a mark proves something: a pod without a node carries none of ours, one that leaves is not of the run.
_MARKED = (*ACTIVE, MemberState.SUCCEEDED, MemberState.FAILED)
_NO_COUNTS = [0] * len(MemberState)


class PodRecord(msgspec.Struct, eq=False):
    """One pod: its newest spec (`pod`), its class, where it counts and what it occupies.

    `row` is its node's row while it occupies it, NO_NODE otherwise. `assumed_node` names the node that we placed it
    on until the API confirms or refuses. `last_verdict` is what was last said about it, so that nothing is said
    twice. `charge_path` are the accounts that it is charged to, with `charged_footprint`, as `charge_state` (the
    ledger keeps these three).

    A pending pod may have a `nomination`: room on `nominated_node` is held for it. A pod that we have decided to
    evict is `evicting`: it counts as terminating although the API does not show that yet. `no_eviction_until` is
    until when (seconds since the epoch) it is not chosen again because an eviction of it was refused. `allocated`
    is what it got from each node allocator, by name, while it occupies a node.
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
    no_eviction_until: float = 0.0
    allocated: dict[str, object] = {}

    def __repr__(self) -> str:
        return f"PodRecord({self.pod.key}, {self.state.name})"

    @property
    def order(self) -> tuple[int, int, int, str]:
        """Members of a gang in the order in which they are placed: priority, index, age, name."""
        pod = self.pod
        return (-pod.priority, pod.index, pod.created, pod.name)


class GangRecord(msgspec.Struct, eq=False):
    """A gang's members and their counts by state, in all and per role.

    `pending` holds the members that are ours to place. `marks` counts, per plan mark, the members that carry it,
    were bound and are not terminating: this is what tells a half-bound plan from a gang that never started. `peak`
    is how many members were on nodes at once in the run that is under way; a run is over when nobody is left on a
    node. `finished_plan` is the newest plan that was seen complete, every member of it confirmed by the API: what
    it loses later was not cut off. `failures` counts the bindings that failed. `arrivals` counts how often a member
    became pending: what was said about the gang before the last arrival has not reached everyone. `last_verdict` is
    what was last said, with the arrivals of that moment. `admitted` stands for an admission that we have decided
    and the group's phase does not show yet. `allocated` counts, by footprint, the members that hold what they ask
    for. `cached` is for whoever computes something from the spec and the members: it is forgotten when one of them
    changes. `task_buckets` is for the plugin that keeps members close by their tasks. `placeholders` are pods for
    members that are expected; they are no members.
    """

    key: GangKey
    spec: Gang | None = None
    members: dict[str, PodRecord] = {}
    pending: dict[str, PodRecord] = {}
    placeholders: dict[str, PodRecord] = {}
    marks: dict[PlanMark, int] = {}
    peak: int = 0
    finished_plan: PlanMark | None = None
    allocated: dict[Footprint, int] = {}
    failures: int = 0
    cached: object = None
    task_buckets: object = None
    arrivals: int = 0
    last_verdict: tuple[Verdict | None, int] | None = None
    admitted: bool = False
    redeclared: bool = False  # until what was held for members of the former one has been given up
    _counts: list[int] = msgspec.field(default_factory=_NO_COUNTS.copy)
    _roles: dict[str, list[int]] = {}
    _unconfirmed: dict[PlanMark, int] = {}

    def __repr__(self) -> str:
        return f"GangRecord({self.key}, {self.counts()})"

    @property
    def title(self) -> str:
        """NAMESPACE/NAME for messages."""
        return self.spec.title if self.spec is not None else str(self.key)

    def count(self, state: MemberState, role: str | None = None) -> int:
        if role is None:
            return self._counts[state]
        return self._roles[role][state] if role in self._roles else 0

    def counts(self, role: str | None = None) -> GangCounts:
        values = self._counts if role is None else self._roles.get(role)
        return GangCounts(*values) if values else GangCounts()

    @property
    def active(self) -> int:
        """How many are on a node or on the way to one, and neither finished nor terminating."""
        counts = self._counts
        return counts[MemberState.ASSUMED] + counts[MemberState.BOUND] + counts[MemberState.RUNNING]

    def confirmed(self, mark: PlanMark) -> int:
        """How many members that carry the mark the API has confirmed."""
        return self.marks.get(mark, 0) - self._unconfirmed.get(mark, 0)

    def roles(self) -> Iterator[str]:
        return iter(self._roles)

    @property
    def starting_placeholders(self) -> list[PodRecord]:
        """Those that are placed together with the quorum: all, until it is there."""
        if self.spec is None or not self.placeholders or self.active >= self.spec.min_member:
            return []
        return list(self.placeholders.values())

    def live_marks(self) -> set[PlanMark]:
        """The marks of members that are on a node or on the way to one."""
        return {each.mark for each in self.members.values() if each.mark is not None and each.state in ACTIVE}

    def add(self, record: PodRecord) -> None:
        record.gang = self
        if record.pod.placeholder:
            self.placeholders[record.pod.uid] = record
            self.cached = None
            return
        self.members[record.pod.uid] = record
        self._tally(record, record.state, 1)
        self._note_run()

    def remove(self, record: PodRecord) -> None:
        record.gang = None
        if record.pod.placeholder:
            del self.placeholders[record.pod.uid]
            self.cached = None
            return
        del self.members[record.pod.uid]
        self._tally(record, record.state, -1)
        self._note_run()

    def set_state(self, record: PodRecord, state: MemberState, mark: PlanMark | None) -> None:
        """Sets a member's state and mark and counts it under them."""
        if record.pod.placeholder:
            record.state, self.cached = state, None
            return
        last = record.state
        self._tally(record, last, -1)
        record.state, record.mark = state, mark
        self._tally(record, state, 1)
        if last in ACTIVE or state in CAN_LEAVE:
            self._note_run()

    def assume_all(self, records: Collection[PodRecord], mark: PlanMark | None) -> None:
        """Counts pending members, no placeholders among them, as assumed."""
        self.cached = None
        pending, roles = self.pending, dict[str, int]()
        for record in records:
            pod = record.pod
            del pending[pod.uid]
            record.state, record.mark = MemberState.ASSUMED, mark
            roles[pod.role] = roles.get(pod.role, 0) + 1
        by_role = [(self._roles[role], number) for role, number in roles.items()]
        for counts, number in [(self._counts, len(records)), *by_role]:
            counts[MemberState.PENDING] -= number
            counts[MemberState.ASSUMED] += number
        if mark is not None:
            self._tally_mark(mark, MemberState.ASSUMED, len(records))

    def resume(self, peak: int) -> None:
        """Goes on with a run that only seemed to end while a member was taken out and put back."""
        if self.active:
            self.peak = max(self.peak, peak)

    def redeclare(self) -> None:
        """The gang is declared by another object of its name: what was decided for the former one is over."""
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
        add_count(self.allocated, footprint, count)

    def _tally(self, record: PodRecord, state: MemberState, step: int) -> None:
        self.cached = None
        self._counts[state] += step
        role = self._roles.get(record.pod.role)
        if role is None:
            role = self._roles[record.pod.role] = _NO_COUNTS.copy()
        role[state] += step
        if state is MemberState.PENDING:
            if step > 0:
                self.arrivals += 1
                self.pending[record.pod.uid] = record
            else:
                del self.pending[record.pod.uid]
        if record.mark is not None:
            self._tally_mark(record.mark, state, step)

    def _tally_mark(self, mark: PlanMark, state: MemberState, step: int) -> None:
        if state not in _MARKED:
            return
        left = add_count(self.marks, mark, step)
        if state is MemberState.ASSUMED:
            add_count(self._unconfirmed, mark, step)
        complete = step > 0 and left >= mark.size > 1 and mark not in self._unconfirmed
        if complete and (self.finished_plan is None or self.finished_plan.time <= mark.time):
            self.finished_plan = mark


def add_count(counts: dict[K, int], key: K, step: int) -> int:
    """The count now; one of which nothing is left is forgotten."""
    left = counts.get(key, 0) + step
    if left:
        counts[key] = left
    else:
        del counts[key]
    return left

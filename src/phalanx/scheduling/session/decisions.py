"""Decisions of a cycle: bindings, nominations, evictions and verdicts, recorded in its plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from phalanx.cluster.pods.nominations import Nomination
from phalanx.cluster.pods.occupancy import binding_writes
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.decisions import Bind, Evict, EvictionReason, Nominate, Plan
from phalanx.model.gang import GangKey
from phalanx.model.pod import PlanMark
from phalanx.model.verdict import GangVerdict, PodVerdict, Verdict
from phalanx.scheduling.gangs.quorum import joining_mark
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.refusals.refusal import Refusal
from phalanx.scheduling.session.eviction_log import EvictionLog


def _no_note(of: GangKey | str) -> str:
    return ""


def _append_note(message: str, more: str) -> str:
    """Append a note to a message.

    Messages about nodes have kube-scheduler's full stop, because other tools parse them.
    """
    return f"{message} {more[0].upper()}{more[1:]}." if message.endswith(".") else f"{message}; {more}"


class Decisions:
    """Decisions of a cycle; the plan contains them all. `steps` counts the work that the next cycle need not
    repeat.
    """

    def __init__(self, state: ClusterState, plan: Plan, now: int, log: EvictionLog) -> None:
        self._state = state
        self._log = log
        self._now = now
        self.plan = plan
        self.cause = f"c{plan.cycle}"
        self.steps = 0
        # Pods that are assumed but not in the plan yet.
        self._unbound: list[PodRecord] = []
        self._causes = 0
        # Placeholders with reserved room; the first `_nominated_holds` of them are nominated already.
        self._reserved: list[tuple[PodRecord, int]] = []
        self._nominated_holds = 0
        # Gangs of placeholders whose nominations this cycle has changed.
        self._renominated: dict[GangKey, GangRecord] = {}
        self._gang_verdicts: dict[GangKey, tuple[GangRecord, Verdict | None]] = {}
        self._pod_verdicts: dict[str, tuple[PodRecord, Verdict | None]] = {}
        # One verdict object for all pods with the same refusal.
        self._shared_verdicts: dict[Refusal, Verdict] = {}
        # Note for the verdict of a gang, or of a pod by its uid, besides the reason.
        self.note: Callable[[GangKey | str], str] = _no_note

    def begin_turn(self) -> tuple[int, ...]:
        """Return the present lengths of the plan's lists, for `undo_turn`."""
        if len(self._reserved) > self._nominated_holds:
            self._nominate_reserved()
        if (transactions := self._state.transactions).begun:
            transactions.forget()
        plan = self.plan
        return (
            len(plan.binds),
            len(plan.nominations),
            len(plan.evictions),
            len(plan.admissions),
            len(self._reserved),
        )

    def undo_turn(self, marks: tuple[int, ...]) -> None:
        """Roll back transactions and decisions since `marks`, except bindings of pods without a gang.

        Each such binding is complete by itself.
        """
        self._state.transactions.end_all()
        plan = self.plan
        binds, nominations, evictions, admissions = (
            part[mark:] for part, mark in zip(self._lists(), marks, strict=False)
        )
        single_binds = [bind for bind in binds if bind.gang is None]
        plan.binds[marks[0] :] = single_binds
        written = {bind.uid for bind in binds}
        for unbound in self._unbound:
            if unbound.pod.uid not in written:
                self._state.pods.binding_failed(unbound.pod.uid)
        self._unbound = []
        for part, mark in zip(self._lists()[1:], marks[1:], strict=False):
            del part[mark:]
        for bind in binds:
            if bind.gang is not None:
                self._state.pods.binding_failed(bind.uid)
        for placeholder, _ in self._reserved[marks[-1] :]:
            self._state.pods.binding_failed(placeholder.pod.uid)
            self._state.pods.cancel_nomination(placeholder)
        del self._reserved[marks[-1] :]
        self._nominated_holds = min(self._nominated_holds, len(self._reserved))
        for evict in evictions:
            self._state.pods.eviction_refused(evict.uid, self._now)
        for uid in {nomination.uid for nomination in nominations}:
            if (record := self._state.pods.get(uid)) is not None:
                self.withdraw_nominations([record])
        for admission in admissions:
            self._state.gangs.admission_failed(admission.gang)

    def _lists(self) -> tuple[list[Any], ...]:
        return self.plan.binds, self.plan.nominations, self.plan.evictions, self.plan.admissions

    def bind(
        self,
        record: PodRecord,
        row: int,
        gang: GangKey | None,
        mark: PlanMark | None,
        together: str = "",
        held: tuple[str, ...] = (),
    ) -> None:
        """Record one placement whose row is already charged by a committed transaction.

        `together` names the decision whose pods are bound only after all are prepared.
        """
        self.bind_all([(record, row)], gang, mark, together, held)

    def bind_all(
        self,
        placed: list[tuple[PodRecord, int]],
        gang: GangKey | None,
        mark: PlanMark | None,
        together: str = "",
        held: tuple[str, ...] = (),
    ) -> None:
        """Record placements of pods of one gang, or of several pods without a gang."""
        self.steps += len(placed)
        self._state.pods.assume_all(placed, mark)
        # The binding clears the nomination, so a nomination of this cycle need not be written.
        self._unbound = records = [record for record, _ in placed]
        now, cause, add = self._now, self.cause, self.plan.binds.append
        for record in records:
            pod, node = record.pod, record.assumed_node
            before, within = binding_writes(record, now)
            add(Bind(pod.uid, pod.namespace, pod.name, node, gang, mark, cause, before, within, together, held))
        self._unbound = []
        for record in [record for record in records if record.last_verdict is not None]:
            self.set_pod_verdict(record, None)

    def move(self, moves: Iterable[tuple[PodRecord, int]]) -> None:
        """Move pods that were placed in this cycle to other rows, and change their bindings."""
        moves = list(moves)
        self._state.pods.move_assumed(moves)
        moved = {record.pod.uid: record for record, _ in moves}
        for place, bind in enumerate(self.plan.binds):
            if (record := moved.get(bind.uid)) is not None:
                preparations, annotations = binding_writes(record, self._now)
                self.plan.binds[place] = msgspec.structs.replace(
                    bind, node=record.assumed_node, preparations=preparations, annotations=annotations
                )

    def bind_member(self, record: PodRecord, row: int, gang: GangRecord | None) -> None:
        """Record the binding of a pod without a gang, or of one more member of a gang with its quorum."""
        if gang is None or gang.spec is None:
            self.bind(record, row, None, None)
        else:
            self.bind(record, row, gang.key, joining_mark(gang.spec, self.cause, int(self._now)))

    def hold(self, placeholder: PodRecord, row: int) -> None:
        """Reserve a row for a placeholder.

        The placeholder counts as placed in this turn and as nominated afterwards: units of higher rank can use the
        row, and the nomination expires.
        """
        self.steps += 1
        self._state.pods.assume(placeholder, row, None)
        self._reserved.append((placeholder, row))

    def _nominate_reserved(self) -> None:
        for placeholder, row in self._reserved[self._nominated_holds :]:
            gang, uid = placeholder.gang, placeholder.pod.uid
            assert gang is not None
            expected = gang.spec.expected if gang.spec is not None else None
            until = self._now + (expected.seconds if expected is not None else 0)
            self._state.pods.binding_failed(uid)
            self._state.pods.nominate(placeholder, row, Nomination(until=until, cause=self.cause))
            self._state.pods.placeholders.end_at(uid, until)
        self._nominated_holds = len(self._reserved)

    def next_cause(self) -> str:
        """Return a new name for a decision of this cycle."""
        self._causes += 1
        return f"{self.cause}.{self._causes}"

    def nominate(self, record: PodRecord, row: int, nomination: Nomination) -> None:
        """Nominate a pod on a row until its victims have terminated."""
        self._state.pods.nominate(record, row, nomination)
        self._record_nomination(record)

    def withdraw_nominations(self, records: Iterable[PodRecord], successor: str = "", held: bool = False) -> None:
        """Withdraw the nominations of the pods. `successor` is the cause of the decision that uses their room
        instead. Without it, the room of placeholders stays with the pods, unless `held` is set.
        """
        for record in records:
            is_held = record.nomination is not None and record.nomination.held
            if is_held and not (held or successor):
                continue
            if self._state.pods.cancel_nomination(record) and not is_held:
                self._record_nomination(record, successor)

    def _record_nomination(self, record: PodRecord, successor: str = "") -> None:
        """Record the pod's present nomination in the plan, or its absence."""
        pod, nomination = record.pod, record.nomination
        if pod.placeholder:
            if record.gang is not None:
                self._renominated[record.gang.key] = record.gang
            return
        cause = nomination.cause if nomination is not None else self.cause
        self.plan.nominations.append(
            Nominate(pod.uid, pod.namespace, pod.name, record.nominated_node, cause, successor)
        )

    def evict(
        self, record: PodRecord, reason: EvictionReason, message: str, preemptor: str = "", cause: str = ""
    ) -> None:
        """Evict a pod; from now on it counts as terminating."""
        pod, gang = record.pod, record.gang
        self.steps += 1
        self._log.evicted(record, self._now)
        self._state.pods.mark_evicting(record, cause, int(self._now))
        key = gang.key if gang is not None else None
        self.plan.evictions.append(
            Evict.of(pod, reason, message, cause=cause or self.cause, gang=key, preemptor=preemptor)
        )

    def _add_held_room(self) -> None:
        """Add the nodes of nominated placeholders to the nominations of their gang's members: placeholders are no
        API objects. A change of placeholders alone repeats the members' nominations."""
        nominations, state = self.plan.nominations, self._state
        last = {nomination.uid: place for place, nomination in enumerate(nominations)}
        gangs = dict(self._renominated)
        for uid in last:
            record = state.pods.get(uid)
            if record is not None and record.gang is not None and record.gang.placeholders:
                gangs[record.gang.key] = record.gang
        for key, gang in gangs.items():
            placeholders = gang.placeholders.values()
            held = tuple(sorted(entry.nominated_node for entry in placeholders if entry.nomination is not None))
            for member in gang.pending.values():
                if member.nomination is None or member.nomination.held:
                    continue
                if member.pod.uid not in last:
                    last[member.pod.uid] = len(nominations)
                    self._record_nomination(member)
                place = last[member.pod.uid]
                nominations[place] = msgspec.structs.replace(nominations[place], gang=key, held=held)

    def set_gang_verdict(self, gang: GangRecord, verdict: Verdict | None) -> None:
        """Set the verdict of a gang; the last one of a cycle counts."""
        self._gang_verdicts[gang.key] = (gang, verdict)

    def gang_verdict(self, key: GangKey) -> Verdict | None:
        """Return the verdict of a gang that this cycle has set; None without one."""
        return self._gang_verdicts.get(key, (None, None))[1]

    def set_pod_verdict(self, record: PodRecord, verdict: Verdict | None) -> None:
        """Set the verdict of a pod without a gang, or of a surplus member."""
        self._pod_verdicts[record.pod.uid] = (record, verdict)

    def explain(self, unit: QueuedUnit, refusal: Refusal | None) -> None:
        """Set the verdicts of a unit by its refusal."""
        if refusal is None:
            return
        if unit.pod is not None:
            self.refuse_pod(unit.pod, refusal)
            return
        for gang, verdict in refusal.gang_verdicts(unit.gangs):
            self.set_gang_verdict(gang, verdict)
        for member, verdict in refusal.member_verdicts(unit.gangs, self._state):
            self.set_pod_verdict(member, verdict)

    def refuse_pod(self, record: PodRecord, refusal: Refusal) -> None:
        """Set the verdict of a pod without a gang by its refusal."""
        if not refusal.names_no_pod:
            self.set_pod_verdict(record, refusal.pod_verdict(record))
            return
        verdict = self._shared_verdicts.get(refusal)
        if verdict is None:
            verdict = self._shared_verdicts[refusal] = refusal.pod_verdict(record)
        self.set_pod_verdict(record, verdict)

    def has_verdict(self, unit: QueuedUnit) -> bool:
        if unit.pod is not None:
            return unit.pod.pod.uid in self._pod_verdicts
        return any(gang.key in self._gang_verdicts for gang in unit.gangs)

    def publish_verdicts(self) -> None:
        """Add changed verdicts to the plan, and verdicts of gangs with a new pending member. The decisions of the
        cycle are complete from then on."""
        self._nominate_reserved()
        self._add_held_room()
        for key, (gang, verdict) in self._gang_verdicts.items():
            verdict = self._with_note(verdict, key)
            news = (verdict, gang.arrivals)
            if gang.last_verdict != news:
                gang.last_verdict = news
                self.plan.gangs.append(GangVerdict(key, verdict))
                for member in gang.pending.values() if verdict is not None else ():
                    member.last_verdict = None  # the gang's new verdict replaces the member's
        for uid, (record, verdict) in self._pod_verdicts.items():
            verdict = self._with_note(verdict, uid) if record.gang is None else verdict
            if record.last_verdict != verdict:
                record.last_verdict = verdict
                self.plan.pods.append(PodVerdict(uid, verdict))

    def _with_note(self, verdict: Verdict | None, of: GangKey | str) -> Verdict | None:
        if verdict is None or not (note := self.note(of)):
            return verdict
        # The objects that a note names (a preemptor, a node) are unknown here.
        return msgspec.structs.replace(verdict, message=_append_note(verdict.message, note), objects=None)

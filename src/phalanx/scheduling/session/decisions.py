"""What a cycle decides: bindings, nominations, evictions and verdicts, written into its plan."""

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


def _with_more(message: str, more: str) -> str:
    """Messages about nodes are kube-scheduler's, with its full stop: others read them."""
    return f"{message} {more[0].upper()}{more[1:]}." if message.endswith(".") else f"{message}; {more}"


class Decisions:
    """The plan is their sum. `steps` counts what was done that the next cycle will not have to do again."""

    def __init__(self, state: ClusterState, plan: Plan, now: float, log: EvictionLog) -> None:
        self._state = state
        self._log = log
        self._now = now
        self.plan = plan
        self.cause = f"c{plan.cycle}"
        self.steps = 0
        # Who is counted as placed and not in the plan yet.
        self._unbound: tuple[PodRecord, ...] = ()
        self._causes = 0
        # Room that was found for members that are expected; so many of them are nominated already.
        self._held: list[tuple[PodRecord, int]] = []
        self._nominated_holds = 0
        self._gang_verdicts: dict[GangKey, tuple[GangRecord, Verdict | None]] = {}
        self._pod_verdicts: dict[str, tuple[PodRecord, Verdict | None]] = {}
        # One object for all pods that are refused alike.
        self._shared_verdicts: dict[Refusal, Verdict] = {}
        # What the verdict of a gang, or of a pod by its uid, says beside the reason.
        self.note: Callable[[GangKey | str], str] = _no_note

    def begin_turn(self) -> tuple[int, ...]:
        """What there is of the plan, for `undo_turn`."""
        self._nominate_held()
        self._state.transactions.forget()
        return *map(len, self._lists()), len(self._held)

    def undo_turn(self, marks: tuple[int, ...]) -> None:
        """Takes back what was begun and decided since then, but for pods that belong to no gang: each of them is
        complete by itself."""
        self._state.transactions.end_all()
        plan = self.plan
        binds, nominations, evictions, admissions = (
            part[mark:] for part, mark in zip(self._lists(), marks, strict=False)
        )
        kept = [bind for bind in binds if bind.gang is None]
        plan.binds[marks[0] :] = kept
        written = {bind.uid for bind in binds}
        for unbound in self._unbound:
            if unbound.pod.uid not in written:
                self._state.pods.binding_failed(unbound.pod.uid)
        self._unbound = ()
        for part, mark in zip(self._lists()[1:], marks[1:], strict=False):
            del part[mark:]
        for bind in binds:
            if bind.gang is not None:
                self._state.pods.binding_failed(bind.uid)
        for placeholder, _ in self._held[marks[-1] :]:
            self._state.pods.binding_failed(placeholder.pod.uid)
            self._state.pods.cancel_nomination(placeholder)
        del self._held[marks[-1] :]
        self._nominated_holds = min(self._nominated_holds, len(self._held))
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
        """Records a placement whose row is already charged (by a committed transaction); `together` names the
        decision where none of its pods may be bound before all are prepared."""
        self.bind_all([(record, row)], gang, mark, together, held)

    def bind_all(
        self,
        placed: list[tuple[PodRecord, int]],
        gang: GangKey | None,
        mark: PlanMark | None,
        together: str = "",
        held: tuple[str, ...] = (),
    ) -> None:
        """The same for pods of one gang, or for several of none."""
        self.steps += len(placed)
        self._state.pods.assume_all(placed, mark)
        # The binding clears the nomination, and one that this cycle has made need not be written.
        self._unbound = tuple(record for record, _ in placed)
        names, binds = self._state.nodes.names, self.plan.binds
        for record, row in placed:
            pod = record.pod
            preparations, annotations = binding_writes(record, self._now)
            binds.append(
                Bind(
                    pod.uid,
                    pod.namespace,
                    pod.name,
                    names[row],
                    gang,
                    mark,
                    self.cause,
                    preparations,
                    annotations,
                    together,
                    held,
                )
            )
        self._unbound = ()
        for record, _ in placed:
            if record.last_verdict is not None:
                self.set_pod_verdict(record, None)

    def bind_member(self, record: PodRecord, row: int, gang: GangRecord | None) -> None:
        """The same for a pod on its own (no `gang`), or one more member of a gang that has its quorum."""
        if gang is None or gang.spec is None:
            self.bind(record, row, None, None)
        else:
            self.bind(record, row, gang.key, joining_mark(gang.spec, self.cause, int(self._now)))

    def hold(self, placeholder: PodRecord, row: int) -> None:
        """The same for a member that is expected: nobody is bound. It counts as placed for this turn, and from then
        on as nominated: who is worth more may take the room, and in time it is given back."""
        self.steps += 1
        self._state.pods.assume(placeholder, row, None)
        self._held.append((placeholder, row))

    def _nominate_held(self) -> None:
        for placeholder, row in self._held[self._nominated_holds :]:
            gang, uid = placeholder.gang, placeholder.pod.uid
            assert gang is not None
            expected = gang.spec.expected if gang.spec is not None else None
            until = self._now + (expected.seconds if expected is not None else 0)
            self._state.pods.binding_failed(uid)
            self._state.pods.nominate(placeholder, row, Nomination(until=until, cause=self.cause))
            self._state.pods.placeholders.end_at(uid, until)
        self._nominated_holds = len(self._held)

    def next_cause(self) -> str:
        """A name for one more decision of this cycle."""
        self._causes += 1
        return f"{self.cause}.{self._causes}"

    def nominate(self, record: PodRecord, row: int, nomination: Nomination) -> None:
        """Holds room for a pod that waits until others have left."""
        self._state.pods.nominate(record, row, nomination)
        self._nominated(record)

    def withdraw_nominations(self, records: Iterable[PodRecord], successor: str = "") -> None:
        """Gives up what is held for the pods; `successor` is the cause of the decision that takes it over."""
        for record in records:
            if self._state.pods.cancel_nomination(record):
                self._nominated(record, successor)

    def _nominated(self, record: PodRecord, successor: str = "") -> None:
        """Says on which node room is held for a pod now, if on any."""
        pod, nomination = record.pod, record.nomination
        if pod.placeholder:
            return
        cause = nomination.cause if nomination is not None else self.cause
        self.plan.nominations.append(
            Nominate(pod.uid, pod.namespace, pod.name, record.nominated_node, cause, successor)
        )

    def evict(
        self, record: PodRecord, reason: EvictionReason, message: str, preemptor: str = "", cause: str = ""
    ) -> None:
        """Tells a pod to leave; from now on it counts as terminating."""
        pod, gang = record.pod, record.gang
        self.steps += 1
        self._log.evicted(record, self._now)
        self._state.pods.mark_evicting(record, cause)
        key = gang.key if gang is not None else None
        self.plan.evictions.append(
            Evict.of(pod, reason, message, cause=cause or self.cause, gang=key, preemptor=preemptor)
        )

    def set_gang_verdict(self, gang: GangRecord, verdict: Verdict | None) -> None:
        """The last judgement of a cycle counts."""
        self._gang_verdicts[gang.key] = (gang, verdict)

    def set_pod_verdict(self, record: PodRecord, verdict: Verdict | None) -> None:
        """A pod on its own, or a member above its gang's minimum."""
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
        """Puts into the plan what is news to somebody: a new verdict, or a gang that has a new pending member."""
        self._nominate_held()
        for key, (gang, verdict) in self._gang_verdicts.items():
            verdict = self._with_note(verdict, key)
            news = (verdict, gang.arrivals)
            if gang.last_verdict != news:
                gang.last_verdict = news
                self.plan.gangs.append(GangVerdict(key, verdict))
                for member in gang.pending.values() if verdict is not None else ():
                    member.last_verdict = None  # what the gang is told now takes the place of it
        for uid, (record, verdict) in self._pod_verdicts.items():
            verdict = self._with_note(verdict, uid) if record.gang is None else verdict
            if record.last_verdict != verdict:
                record.last_verdict = verdict
                self.plan.pods.append(PodVerdict(uid, verdict))

    def _with_note(self, verdict: Verdict | None, of: GangKey | str) -> Verdict | None:
        if verdict is None or not (note := self.note(of)):
            return verdict
        # What a note names (who delays a promised start, which node) is not known here.
        return msgspec.structs.replace(verdict, message=_with_more(verdict.message, note), objects=None)

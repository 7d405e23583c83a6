"""The pods of a cluster, and the table of their state transitions: (state, event) -> action."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import repeat

from phalanx.cluster.change_log import ChangeLog
from phalanx.cluster.changes import Changes
from phalanx.cluster.classes import ClassRecord, ClassTable, Footprint
from phalanx.cluster.gangs import GangTable
from phalanx.cluster.ledger import Ledger
from phalanx.cluster.node_table import NodeTable
from phalanx.cluster.pods import observation
from phalanx.cluster.pods.claims import (
    awaits_room,
    claim_at_arrival,
    claimed_instead,
    end_former_claim,
    return_room,
)
from phalanx.cluster.pods.nominations import Nomination, UnreleasedPods
from phalanx.cluster.pods.occupancy import PodsByNode, reclassify
from phalanx.cluster.pods.placeholders import Placeholders
from phalanx.cluster.pods.recent_ends import RecentEnds
from phalanx.cluster.pods.records import NO_NODE, PodRecord
from phalanx.cluster.pods.run_time_limits import RunTimeLimits
from phalanx.cluster.pods.states import IGNORED, SEEN, InvalidTransitionError, PodEvent, PodState, state_of_record
from phalanx.cluster.pods.story import PodStories, Transition
from phalanx.cluster.pods.tolerations import TolerationCounts
from phalanx.cluster.pods.victim_index import VictimIndex
from phalanx.model.gang import GangKey
from phalanx.model.pod import ACTIVE, CAN_LEAVE, MemberState, PlanMark, Pod


class PodTable(dict[str, PodRecord]):
    """Pods by uid; a mapping that only these methods modify, each of which is an event of `TRANSITIONS`.

    `standalone` are the pending pods without a gang, `terminating` those that still use resources (evicted pods
    included), `nominated` those with reserved room, `unreleased` the terminating ones and those with devices that
    the API still shows. `placeholders` represent expected members.
    """

    def __init__(
        self,
        schedulers: Collection[str],
        nodes: NodeTable,
        classes: ClassTable,
        gangs: GangTable,
        ledger: Ledger,
        changes: Changes,
        by_node: PodsByNode,
        victims: VictimIndex,
    ) -> None:
        super().__init__()
        self.standalone: dict[str, PodRecord] = {}
        self.terminating: dict[str, PodRecord] = {}
        self.nominated: dict[str, PodRecord] = {}
        self.placeholders = Placeholders()
        self.unreleased = UnreleasedPods(
            self.terminating, [allocator.lingers for allocator in nodes.allocators.values()]
        )
        self.tolerations = TolerationCounts(frozenset(schedulers))
        self.stories = PodStories()
        self.run_time_limits = RunTimeLimits()
        self.ends = RecentEnds()
        # Rows with a changed expected end of a pod.
        self.retimed = ChangeLog()
        self._schedulers = schedulers
        self._nodes = nodes
        self._classes = classes
        self._gangs = gangs
        self._ledger = ledger
        self._changes = changes
        self._by_node = by_node
        self._victims = victims
        #: Namespaces whose pods share no class with pods of other namespaces.
        self.separate: AbstractSet[str] = frozenset()

    # observations

    def observe(self, pod: Pod) -> None:
        if pod.placeholder and self.placeholders.observe_claimed(pod):
            return
        record = self.get(pod.uid)
        if record is None:
            if pod.uid in self.placeholders.claims:
                end_former_claim(self, self._nodes, pod.uid)
            record = self._add(pod, pod.nominated_node)
            if self.placeholders and awaits_room(record) and pod.gang:
                claim_at_arrival(self, self._nodes, self._gangs, record)
        elif record.pod != pod:
            state, last = observation.state_of(pod, self._schedulers), record.pod
            self.ends.note(record, state)
            self._transition(record, SEEN[state], pod, state)
            if record.row != NO_NODE and observation.times(last) != observation.times(pod):
                self.retimed.note(record.row)
        if pod.run_time.allowed or pod.uid in self.run_time_limits:
            self.run_time_limits.note(pod)

    def delete(self, uid: str) -> None:
        record = self.get(uid)
        if record is None:
            self.placeholders.finish_claim(uid)
            return
        self.run_time_limits.drop(uid)
        self.ends.note(record, MemberState.SUCCEEDED)
        claims = record.pod.placeholder and self.placeholders.claims and uid not in self.placeholders.claimed
        instead = claimed_instead(self, record.gang) if claims else None
        node = record.nominated_node
        if record.row == NO_NODE and record.state in ACTIVE:
            self._changes.version += 1  # its quota is free, though no node is
        self._transition(record, PodEvent.DELETED)
        if instead is not None:
            return_room(self, self._nodes, instead, node)

    def load_nominations(self) -> None:
        """Reserve room for pods according to the API, for decisions of another replica since they were first
        seen. Used once when taking over from it; afterwards our own decisions count."""
        for record in list(self.values()):
            node, nomination = record.pod.nominated_node, record.nomination
            if record.state is not MemberState.PENDING or node == record.nominated_node:
                continue
            if record.pod.placeholder and nomination is not None and not nomination.from_api:
                continue  # this process has restored its room
            if nomination is not None:
                self._cancel_nomination(record)
            if node:
                self._reserve_room(record, Nomination(), node)
            self.mark_changed(record)

    # decisions

    def nominate(self, record: PodRecord, row: int, nomination: Nomination) -> None:
        """Reserve room on a row for a pending pod, on the node and in its accounts, until it is placed or the
        nomination is cancelled. An existing nomination is replaced."""
        self._transition(record, PodEvent.NOMINATE, row, nomination)

    def cancel_nomination(self, record: PodRecord) -> bool:
        """Cancel the pod's nomination. Return whether there was one."""
        return self._transition(record, PodEvent.CANCEL_NOMINATION)

    def assume(self, record: PodRecord, row: int, mark: PlanMark | None) -> None:
        """Record a pod as placed on a row; a transaction has already charged the arrays.

        A nomination of the pod ends; the transaction has lifted it.
        """
        self._transition(record, PodEvent.ASSUME, row, mark)

    def assume_all(self, placed: Sequence[tuple[PodRecord, int]], mark: PlanMark | None) -> None:
        """Record members of one gang, or pods without a gang, as placed, in this order, as one change.

        If any of them is not simply pending (but nominated, for example), `assume` is called for each.
        """
        gang, pending = placed[0][0].gang if placed else None, MemberState.PENDING
        records = {
            record.pod.uid: record
            for record, _ in placed
            if record.gang is gang and record.state is pending and not (record.nomination or record.pod.placeholder)
        }
        if len(records) < len(placed):
            for record, row in placed:
                self.assume(record, row, mark)
            return
        assumed = MemberState.ASSUMED
        for record in records.values():
            if record.footprint is not record.pod_class.footprint:
                record.footprint = record.pod_class.footprint
            record.state, record.mark = assumed, mark
        self._by_node.assume_all(records, [row for _, row in placed])
        if gang is not None:
            gang.note_assumed(records, mark)
            self._gangs.mark_changed(gang.key)
        else:
            for uid in records:
                del self.standalone[uid]
            self._changes.pods.update(dict.fromkeys(records))
        self._ledger.place_all(records.values(), gang)
        self._changes.version += len(records)
        step = self.stories.now, self.stories.cycle, PodEvent.ASSUME, PodState.PENDING, PodState.ASSUMED
        self.stories.uids.extend(records)
        self.stories.steps.extend(repeat(step, len(records)))

    def move_assumed(self, moves: Sequence[tuple[PodRecord, int]]) -> None:
        """Move pods to other rows whose bindings have not been written. Their states and accounts do not change."""
        for record, _ in moves:
            assert record.state is MemberState.ASSUMED
            self._by_node.vacate(record)
        for record, row in moves:
            record.assumed_node = self._nodes.names[row]
            self._by_node.occupy(record, record.assumed_node)
            self.mark_changed(record)

    def binding_failed(self, uid: str) -> None:
        """Record that a pod's binding failed for good: the pod is pending again, and the resources on its node are
        free."""
        record = self.get(uid)
        if record is not None:
            self._transition(record, PodEvent.BINDING_FAILED)

    def mark_evicting(self, record: PodRecord, cause: str = "", now: int = 0) -> None:
        """Count a pod evicted at `now` as terminating. `cause` names the decision, if it is not the cycle."""
        stories = self.stories
        cycle, stories.cycle = stories.cycle, cause or stories.cycle
        try:
            self._transition(record, PodEvent.EVICT, now)
        finally:
            stories.cycle = cycle
        self.retimed.note(record.row)

    def eviction_refused(self, uid: str, until: float) -> None:
        """Record a refused eviction: the pod stays, and is no victim before `until`."""
        record = self.get(uid)
        if record is not None:
            self._transition(record, PodEvent.EVICTION_REFUSED, until)
            self.retimed.note(record.row)

    # Queries

    def on(self, row: int) -> Collection[PodRecord]:
        """Return the pods that occupy a row, assumed and terminating ones included."""
        return self._by_node.on(row)

    def story(self, uid: str) -> list[Transition]:
        """Return the last changes of state of a pod, oldest first."""
        return self.stories.of_pods((uid,)) if uid in self else []

    def story_of_gang(self, key: GangKey) -> list[Transition]:
        """Return the last changes of state of a gang's members, oldest first."""
        gang = self._gangs.get(key)
        return self.stories.of_pods(gang.members) if gang is not None else []

    # Changes of many pods

    def reclassify(self, uids: Iterable[str]) -> None:
        """Update the classes of pods, after selectors of other pods have changed."""
        for uid in uids:
            record = self[uid]
            pod_class = self._class_of(record.pod)
            if pod_class is not record.pod_class:
                reclassify(record, pod_class)
                if record.state is MemberState.PENDING:
                    self.mark_changed(record)

    def separate_namespaces(self, changed: AbstractSet[str], separate: AbstractSet[str]) -> None:
        """Set the namespaces with classes of their own, and update the pods of the `changed` ones."""
        self.separate = separate
        self.reclassify([uid for uid, record in self.items() if record.pod.namespace in changed])

    def mark_changed(self, record: PodRecord) -> None:
        if record.gang is not None:
            self._gangs.mark_changed(record.gang.key)
        else:
            self._changes.pods[record.pod.uid] = None

    # transitions

    def _transition(self, record: PodRecord, event: PodEvent, *details: object) -> bool:
        """Apply an event to a pod's state. Return False for a late result; raise for a decision that the state does
        not permit."""
        # The common case is inlined: this runs for every placed pod.
        waits = record.state is MemberState.PENDING and record.nomination is None
        before = PodState.PENDING if waits else state_of_record(record)
        step = _STEPS[before][event]
        if step is None:
            if event in IGNORED:
                return False
            name = event.name.lower().replace("_", " ")
            raise InvalidTransitionError(f"pod {record.pod.key} is {before.name.lower()}, which allows no {name!r}")
        uid = record.pod.uid
        step(self, record, *details)
        after = _DECIDED[event]
        if after is None:
            now = self.get(uid)
            after = state_of_record(now) if now is not None else PodState.GONE
        if after is not before:
            stories, cause = self.stories, self.stories.cycle if event > PodEvent.DELETED else ""
            stories.uids.append(uid)
            stories.steps.append((stories.now, cause, event, before, after))
        return True

    def _seen(self, record: PodRecord, pod: Pod, state: MemberState) -> None:
        old = record.pod
        nomination = record.nomination if state is MemberState.PENDING else None
        if (
            observation.same_charges(old, pod)
            and old.mark == pod.mark
            and nomination is record.nomination
            and observation.claim_of(old, record.state) == observation.claim_of(pod, state)
        ):
            self._replace_spec(record, pod)
            if record.state is not state:
                self._set_state(record, state, record.mark)
        else:
            self._replace(record, pod, state)

    def _seen_before_binding(self, record: PodRecord, pod: Pod, state: MemberState) -> None:
        """Process a pod update from before our binding, or an unrelated one: the pod stays assumed."""
        if observation.same_charges(record.pod, pod):
            self._replace_spec(record, pod)
        else:
            self._replace(record, pod, state)

    def _seen_on_node(self, record: PodRecord, pod: Pod, state: MemberState) -> None:
        """Process a pod update with a node: the API confirms our binding, or another scheduler was faster."""
        is_confirmed = pod.node == record.assumed_node and record.footprint is self._footprint(
            record.pod_class, pod
        )
        if not is_confirmed or not observation.same_charges(record.pod, pod):
            self._replace(record, pod, state)
            return
        record.assumed_node = ""
        mark = pod.mark or record.mark
        if observation.is_binding(record.pod, pod):  # the common case
            record.pod = pod
            if record.row != NO_NODE:
                self._victims.moved.note(record.row)
        else:
            self._replace_spec(record, pod)
        self._set_state(record, state, mark)
        self._changes.bound += 1

    def _seen_after_assumption(self, record: PodRecord, pod: Pod, state: MemberState) -> None:
        """Process a pod update after which the pod is no longer assumed on a node."""
        self._replace(record, pod, state)

    def _seen_after_eviction(self, record: PodRecord, pod: Pod, state: MemberState) -> None:
        """Process a pod update that possibly does not show our eviction yet."""
        self._seen(record, pod, MemberState.TERMINATING if record.evicting else state)

    def _replace(self, record: PodRecord, pod: Pod, state: MemberState) -> None:
        """Remove a pod and add it again with its new spec; decisions about it remain valid."""
        old, last = record, record.gang
        peak = last.peak if last is not None else 0
        assumed = old.state is MemberState.ASSUMED
        # The removal resets all of these.
        nomination = old.nomination if state is MemberState.PENDING else None
        nominated_node, mark, allocated = old.nominated_node, old.mark, dict(old.allocated)
        self._remove(old)
        record = self._add(pod)
        record.no_eviction_until = old.no_eviction_until
        if assumed and state is MemberState.PENDING:
            # Only this process knows the chosen allocations yet.
            names = [allocator.name for allocator in record.pod_class.allocators if allocator.chooses]
            record.allocated = {name: allocated[name] for name in names if name in allocated}
            record.assumed_node = old.assumed_node
            self._set_state(record, MemberState.ASSUMED, mark if old.pod.gang == pod.gang else None)
            self._by_node.occupy(record, old.assumed_node)
        elif nomination is not None:
            self._reserve_room(record, nomination, nominated_node)
        elif old.evicting and record.state in CAN_LEAVE:
            self._evict(record, old.evicted_at)
        if record.gang is not None and last is not None and record.gang.key == last.key:
            record.gang.resume(peak)

    def _add(self, pod: Pod, nominated_node: str = "") -> PodRecord:
        """Add a pod. `nominated_node` is the node of a reservation for a pending pod from before a restart."""
        affinity = self._nodes.affinity
        if moved := affinity.state(pod.pod_class.peers):
            self.reclassify(moved)
        pod_class = self._class_of(pod)
        record = PodRecord(
            pod, pod_class, self._footprint(pod_class, pod), observation.state_of(pod, self._schedulers)
        )
        self._nodes.widen()
        affinity.enter(pod)
        record.mark = pod.mark
        self[pod.uid] = record
        self.tolerations.count(pod, 1)
        if pod.gang:
            self._gangs.add_member(record)
        elif record.state is MemberState.PENDING:
            self.standalone[pod.uid] = record
        if record.state is MemberState.TERMINATING:
            self.terminating[pod.uid] = record
        if node := observation.claim_of(pod, record.state)[0]:
            self._by_node.occupy(record, node)
        self._ledger.enter(record)
        self.mark_changed(record)
        if pod.placeholder:
            self.placeholders[pod.uid] = record
            self.placeholders.end_at(pod.uid, pod.expires)
        if nominated_node and record.state is MemberState.PENDING:
            self._reserve_room(record, Nomination(), nominated_node)
        return record

    def _remove(self, record: PodRecord) -> None:
        pod = record.pod
        del self[pod.uid]
        self.tolerations.count(pod, -1)
        self._by_node.vacate(record)
        self._nodes.affinity.leave(pod)
        self.reclassify(self._nodes.affinity.withdraw(pod.pod_class.peers))
        self._ledger.leave(record)
        for pods in (self.standalone, self.terminating, self.nominated, self.placeholders):
            pods.pop(pod.uid, None)
        self.mark_changed(record)
        self._gangs.remove_member(record)

    def _nominate(self, record: PodRecord, row: int, nomination: Nomination) -> None:
        self._reserve_room(record, nomination, self._nodes.names[row])

    def _renominate(self, record: PodRecord, row: int, nomination: Nomination) -> None:
        self._cancel_nomination(record)
        self._nominate(record, row, nomination)

    def _cancel_nomination(self, record: PodRecord) -> None:
        self._by_node.vacate(record)
        self._end_nomination(record)
        self._ledger.book(record)

    def _reserve_room(self, record: PodRecord, nomination: Nomination, node: str) -> None:
        """Reserve resources for a pod on a node, which need not be known yet."""
        record.nomination, record.nominated_node = nomination, node
        self.nominated[record.pod.uid] = record
        self._by_node.occupy(record, node)
        self._ledger.book(record)

    def _end_nomination(self, record: PodRecord) -> None:
        record.nomination, record.nominated_node = None, ""
        del self.nominated[record.pod.uid]

    def _assume(self, record: PodRecord, row: int, mark: PlanMark | None) -> None:
        record.footprint = record.pod_class.footprint
        self._by_node.put(record, row)
        record.assumed_node = self._nodes.names[row]
        self._set_state(record, MemberState.ASSUMED, mark)
        self._changes.version += 1

    def _assume_nominated(self, record: PodRecord, row: int, mark: PlanMark | None) -> None:
        self._by_node.end_nomination(record)
        self._end_nomination(record)
        self._assume(record, row, mark)

    def _binding_failed(self, record: PodRecord) -> None:
        self._by_node.vacate(record)
        record.assumed_node = ""
        self._set_state(record, MemberState.PENDING, None)
        if record.gang is not None and not record.pod.placeholder:
            record.gang.failures += 1
            record.gang.cached = None

    def _evict(self, record: PodRecord, now: int) -> None:
        record.evicting, record.evicted_at = True, now
        self._changes.version += 1
        self._by_node.start_terminating(record, 1)
        self.terminating[record.pod.uid] = record
        self._set_state(record, MemberState.TERMINATING, record.mark)

    def _undo_eviction(self, record: PodRecord, until: float) -> None:
        self._note_refusal(record, until)
        self._by_node.start_terminating(record, -1)
        self.terminating.pop(record.pod.uid, None)
        self._changes.may_fit()  # preemptors that counted on its room have to search again
        self._set_state(record, observation.state_of(record.pod, self._schedulers), record.mark)

    def _note_refusal(self, record: PodRecord, until: float) -> None:
        """Record a refused eviction of a pod that terminates anyway, or has finished."""
        if record.evicting:
            record.evicting, record.evicted_at, record.no_eviction_until = False, 0, until

    def _set_state(self, record: PodRecord, state: MemberState, mark: PlanMark | None) -> None:
        if record.gang is not None:
            record.gang.set_state(record, state, mark)
        else:
            record.state, record.mark = state, mark
            if state is MemberState.PENDING:
                self.standalone[record.pod.uid] = record
            else:
                self.standalone.pop(record.pod.uid, None)
        self._ledger.book(record)
        self.mark_changed(record)

    def _replace_spec(self, record: PodRecord, pod: Pod) -> None:
        """Replace the spec of a pod that keeps its place in the tables."""
        old = record.pod
        if observation.standing(old) != observation.standing(pod):
            self.mark_changed(record)
        record.pod = pod
        if old.priority != pod.priority and record.gang is not None:
            record.gang.highest_priority = None
        if record.gang is not None and observation.ordering(old) != observation.ordering(pod):
            record.gang.forget_pending_facts()
        if pod.placeholder:
            self.placeholders.end_at(pod.uid, pod.expires)
        if old.labels != pod.labels:
            self._nodes.affinity.leave(old)
            self._nodes.affinity.enter(pod)
            self.reclassify((pod.uid,))
            self._changes.may_fit()
        if observation.charging(old) != observation.charging(pod):
            self._ledger.enter(record)
        if record.row != NO_NODE:
            self._victims.moved.note(record.row)
            if pod.run_time is not old.run_time and pod.run_time != old.run_time:
                self._nodes.changes.note(record.row)  # its end has changed
            if observation.yielding(old) != observation.yielding(pod):
                self._changes.may_fit()

    def _footprint(self, record: ClassRecord, pod: Pod) -> Footprint:
        usage, pod_class = pod.usage, pod.pod_class
        if not usage or usage is pod_class.requests:
            return record.footprint
        footprint = self._classes.footprint(usage, pod_class)
        self._nodes.widen()  # it can introduce a resource
        return footprint

    def _class_of(self, pod: Pod) -> ClassRecord:
        affinity = self._nodes.affinity.profile(pod.namespace, pod.labels, pod.pod_class.peers)
        return self._classes.record(
            pod.pod_class, affinity, pod.namespace if pod.namespace in self.separate else ""
        )


_S, _E, _T = PodState, PodEvent, PodTable
_SEEN = [event for event in _E if event < _E.DELETED]
_ENDING = (_S.EVICTING, _S.TERMINATING, _S.SUCCEEDED, _S.FAILED)
_ALIVE = [state for state in _S if state is not _S.GONE]

# A missing pair is an error, or ignored for a late result (`IGNORED`).
TRANSITIONS: dict[tuple[PodState, PodEvent], Callable[..., None]] = {
    **{(state, event): _T._seen for state in _ALIVE for event in _SEEN},
    **{(_S.ASSUMED, event): _T._seen_after_assumption for event in _SEEN},
    (_S.ASSUMED, _E.SEEN_PENDING): _T._seen_before_binding,
    (_S.ASSUMED, _E.SEEN_BOUND): _T._seen_on_node,
    (_S.ASSUMED, _E.SEEN_RUNNING): _T._seen_on_node,
    **{(state, _E.SEEN_BOUND): _T._seen_after_eviction for state in _ENDING},
    **{(state, _E.SEEN_RUNNING): _T._seen_after_eviction for state in _ENDING},
    **{(state, _E.DELETED): _T._remove for state in _ALIVE},
    (_S.PENDING, _E.NOMINATE): _T._nominate,
    (_S.NOMINATED, _E.NOMINATE): _T._renominate,
    (_S.NOMINATED, _E.CANCEL_NOMINATION): _T._cancel_nomination,
    (_S.PENDING, _E.ASSUME): _T._assume,
    (_S.NOMINATED, _E.ASSUME): _T._assume_nominated,
    (_S.ASSUMED, _E.BINDING_FAILED): _T._binding_failed,
    (_S.BOUND, _E.EVICT): _T._evict,
    (_S.RUNNING, _E.EVICT): _T._evict,
    (_S.EVICTING, _E.EVICTION_REFUSED): _T._undo_eviction,
    (_S.TERMINATING, _E.EVICTION_REFUSED): _T._note_refusal,
    (_S.SUCCEEDED, _E.EVICTION_REFUSED): _T._note_refusal,
    (_S.FAILED, _E.EVICTION_REFUSED): _T._note_refusal,
}
# State after a decision; None if it follows from the pod itself.
_DECIDED: list[PodState | None] = [None] * len(PodEvent)
_DECIDED[_E.NOMINATE] = _S.NOMINATED
_DECIDED[_E.ASSUME] = _S.ASSUMED
_DECIDED[_E.EVICT] = _S.EVICTING
# By number, since hashing an enum is slow.
_STEPS = [[TRANSITIONS.get((state, event)) for event in PodEvent] for state in PodState]

"""Execution of eviction decisions: nominations are written before the first eviction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from phalanx.dialects.gangs.held_room import HELD_ROOM, encode_held
from phalanx.dialects.signatures import Signer
from phalanx.execution.conditions import NominationOutcome, PodConditions
from phalanx.execution.evictor import (
    EvictGuard,
    EvictionOutcome,
    Evictor,
    EvictReport,
    EvictResult,
    no_reason_to_stop,
)
from phalanx.model.decisions import Evict, Nominate


class _Disruption:
    """Evictions and nominations for the same preemptors, usually of one decision.

    `waiting` are evictions that wait for the `unwritten` nominations (pod uids); `open` is the number of submitted
    evictions without an answer.
    """

    __slots__ = ("called_off", "causes", "open", "preemptors", "unwritten", "waiting")

    def __init__(self) -> None:
        self.causes: set[str] = set()
        self.preemptors: set[str] = set()
        self.unwritten: set[str] = set()
        self.waiting: list[Evict] = []
        self.open = 0
        self.called_off = False


class Disruptions:
    """Executor of eviction decisions, each identified by its cause; every eviction is reported exactly once.

    The evictions of a decision are submitted when all its nominations are written or definitely rejected. A crash
    before that evicts no pod; after a crash later, the next start finds the nominations in the API.

    If a preemptor is deleted or needs the room no more (`release`), evictions that are not posted yet are called
    off for all preemptors of the decision, because a gang moves as one. A later decision that nominates other nodes
    for a preemptor does not call them off: it uses the room that the earlier one frees. `guard` is called before
    each attempt of an eviction. `signer` signs the room that is held for expected members of nominated pods.
    """

    def __init__(
        self,
        conditions: PodConditions,
        evictor: Evictor,
        report: EvictReport,
        guard: EvictGuard = no_reason_to_stop,
        nominated: Callable[[NominationOutcome], None] = lambda outcome: None,
        signer: Signer | None = None,
    ) -> None:
        self._conditions = conditions
        self._evictor = evictor
        self._report = report
        self._guard = guard
        self._nominated = nominated
        self._signer = signer or Signer()
        self._by_cause: dict[str, _Disruption] = {}
        self._by_preemptor: dict[str, _Disruption] = {}

    def __len__(self) -> int:
        """Return the number of unfinished eviction decisions."""
        return len(self._by_cause)

    def submit(self, nominations: Sequence[Nominate], evictions: Iterable[Evict]) -> None:
        """Submit the nominations and evictions of a plan. A nomination without a node withdraws the pod's
        nomination; the last nomination of a pod counts."""
        fresh: dict[str, None] = {}
        for nomination in nominations:
            if not nomination.node and nomination.successor and nomination.uid in self._by_preemptor:
                fresh[nomination.successor] = None
                self._inherit(nomination)
        nominations = list({nomination.uid: nomination for nomination in nominations}.values())
        for nomination in nominations:
            if not nomination.node and not nomination.successor:
                self.release(nomination.uid)
        for evict in evictions:
            fresh[evict.cause] = None
            self._of(evict.cause).waiting.append(evict)
        for nomination in nominations:
            if nomination.node and (nomination.cause in fresh or nomination.uid in self._by_preemptor):
                fresh[nomination.cause] = None
                self._engage(nomination)
        for nomination in nominations:
            report = partial(self._answered, nomination)
            self._conditions.nominate(nomination.uid, nomination.node, report, self._room_of(nomination))
        for cause in fresh:
            if cause in self._by_cause:
                self._go_on(self._by_cause[cause])

    def forget(self, uid: str) -> None:
        """Release a deleted pod and forget its evictions."""
        self.release(uid)
        self._evictor.forget(uid)

    def release(self, uid: str) -> None:
        """Cancel the evictions for a preemptor that is deleted or does not need the freed resources any more."""
        disruption = self._by_preemptor.get(uid)
        if disruption is None:
            return
        disruption.called_off = True
        disruption.unwritten.clear()
        for preemptor in disruption.preemptors:
            del self._by_preemptor[preemptor]
        disruption.preemptors.clear()
        waiting, disruption.waiting = disruption.waiting, []
        self._close(disruption)
        for evict in waiting:
            self._report(EvictResult(evict, EvictionOutcome.CALLED_OFF, "no pod needs the room any more"))

    def _room_of(self, nomination: Nominate) -> str:
        """Return the annotation with the room that is held for expected members; "" for none."""
        uid, node, gang = nomination.uid, nomination.node, nomination.gang
        if gang is None or not node:
            return ""
        return encode_held(nomination.held, self._signer, uid, gang, node).get(HELD_ROOM, "")

    def _of(self, cause: str) -> _Disruption:
        disruption = self._by_cause.get(cause)
        if disruption is None:
            disruption = self._by_cause[cause] = _Disruption()
            disruption.causes.add(cause)
        return disruption

    def _engage(self, nomination: Nominate) -> None:
        """Make a pod a preemptor of a decision; earlier decisions for the pod are merged into this one."""
        disruption, earlier = self._of(nomination.cause), self._by_preemptor.get(nomination.uid)
        if earlier is not None and earlier is not disruption:
            self._merge(earlier, disruption)
        disruption.preemptors.add(nomination.uid)
        disruption.unwritten.add(nomination.uid)
        self._by_preemptor[nomination.uid] = disruption

    def _inherit(self, nomination: Nominate) -> None:
        """Move the evictions for a pod to the successor of its decision; the pod is no preemptor any more."""
        successor, earlier = self._of(nomination.successor), self._by_preemptor[nomination.uid]
        if earlier is not successor:
            self._merge(earlier, successor)
        successor.preemptors.discard(nomination.uid)
        successor.unwritten.discard(nomination.uid)
        del self._by_preemptor[nomination.uid]

    def _merge(self, earlier: _Disruption, later: _Disruption) -> None:
        later.waiting[:0] = earlier.waiting
        later.open += earlier.open
        later.unwritten |= earlier.unwritten
        later.causes |= earlier.causes
        later.preemptors |= earlier.preemptors
        self._by_cause.update(dict.fromkeys(earlier.causes, later))
        self._by_preemptor.update(dict.fromkeys(earlier.preemptors, later))

    def _answered(self, nomination: Nominate, outcome: NominationOutcome) -> None:
        self._nominated(outcome)
        disruption = self._by_preemptor.get(nomination.uid)
        if disruption is None or not nomination.node or outcome is NominationOutcome.SUPERSEDED:
            return
        if outcome is NominationOutcome.LOST:
            self.release(nomination.uid)
            return
        disruption.unwritten.discard(nomination.uid)
        self._go_on(disruption)

    def _go_on(self, disruption: _Disruption) -> None:
        if disruption.unwritten:
            return
        waiting, disruption.waiting = disruption.waiting, []
        disruption.open += len(waiting)
        self._evictor.submit(waiting, self._evicted, self._objection)
        self._close(disruption)

    def _objection(self, evict: Evict) -> EvictionOutcome | None:
        if self._by_cause[evict.cause].called_off:
            return EvictionOutcome.CALLED_OFF
        return self._guard(evict)

    def _evicted(self, result: EvictResult) -> None:
        disruption = self._by_cause[result.evict.cause]
        disruption.open -= 1
        self._close(disruption)
        self._report(result)

    def _close(self, disruption: _Disruption) -> None:
        """Forget a finished eviction decision."""
        if disruption.open or disruption.waiting:
            return
        for cause in disruption.causes:
            del self._by_cause[cause]
        for preemptor in disruption.preemptors:
            del self._by_preemptor[preemptor]

"""What is told about evictions: to those who go, to those who get the room, and to whoever reads the log."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from phalanx.cluster.state import ClusterState
from phalanx.dialects.api_groups import NATIVE
from phalanx.execution.evictor import EvictionOutcome, EvictResult
from phalanx.kube.events import EventRecorder, ObjectReference
from phalanx.model.decisions import Evict, EvictionReason, Nominate
from phalanx.model.gang import GangKey
from phalanx.status.event_publisher import pod_reference, source_reference

log = logging.getLogger(__name__)

# The first is kube-scheduler's.
_ACTIONS: Mapping[EvictionReason, str] = {
    EvictionReason.PREEMPTED: "Preempting",
    EvictionReason.RECLAIMED: "Reclaiming",
    EvictionReason.RESCHEDULED: "Rescheduling",
    EvictionReason.REVOKED: "Revoking",
}
_NAMED = 5
# Members of one gang that are told at once; the events of the others wait behind everything else.
_MEMBERS_TOLD = 20


class _Decision:
    """One decision: for whom, and what became of those who were to go."""

    __slots__ = ("by", "gangs", "gone", "open", "refused", "regarding", "related", "victims")

    def __init__(self) -> None:
        self.open = 0
        self.victims: list[Evict] = []
        self.gangs: Counter[GangKey] = Counter()
        self.gone = 0
        self.refused = 0
        # The preemptor's own object, and what the victims' events call related: that object, or the one pod.
        self.regarding: ObjectReference | None = None
        self.related: ObjectReference | None = None
        # Who it is in the words of kube-scheduler's events, where it knows such a preemptor.
        self.by = ""


class EvictionEvents:
    """One event per evicted pod, and when all of a decision's evictions have been answered one per gang that lost
    members and one for the preemptor. One line in the log per decision.
    """

    def __init__(self, recorder: EventRecorder, state: ClusterState) -> None:
        self._recorder = recorder
        self._state = state
        self._decisions: dict[str, _Decision] = {}

    def __len__(self) -> int:
        """Decisions that are not through."""
        return len(self._decisions)

    def evictions_decided(self, evictions: Iterable[Evict], nominations: Iterable[Nominate] = ()) -> None:
        """A plan's evictions; `eviction_answered` is called for each."""
        fresh: dict[str, list[Evict]] = {}
        for evict in evictions:
            self._decisions.setdefault(evict.cause, _Decision()).open += 1
            fresh.setdefault(evict.cause, []).append(evict)
        for nomination in nominations:
            if nomination.node and nomination.cause in fresh:
                self._benefits(self._decisions[nomination.cause], nomination)
        for cause, victims in fresh.items():
            first = victims[0]
            whom = first.preemptor or "nobody in particular"
            log.info("%s: evicts %s for %s: %s", cause or "-", named(victims), whom, first.message)

    def eviction_answered(self, result: EvictResult) -> None:
        evict = result.evict
        decision = self._decisions.get(evict.cause)
        if decision is None:
            return
        decision.open -= 1
        match result.outcome:
            case EvictionOutcome.EVICTED:
                self._evicted(decision, evict)
            case EvictionOutcome.GONE:
                decision.gone += 1
            case EvictionOutcome.REFUSED:
                decision.refused += 1
        if not decision.open:
            del self._decisions[evict.cause]
            self._end(decision)

    def _benefits(self, decision: _Decision, nomination: Nominate) -> None:
        """Of several pods the one that is nominated first stands for all; a gang's object where there is one."""
        if decision.regarding is not None:
            return
        record = self._state.pods.get(nomination.uid)
        if record is None:
            return
        own = source_reference(record.gang) if record.gang is not None else None
        decision.regarding = own or pod_reference(record.pod)
        if own is not None or record.gang is None:
            decision.related = decision.regarding
        if own is None and record.gang is None:
            decision.by = f"pod {record.pod.uid}"
        elif own is not None and own.api_version.startswith(f"{NATIVE}/"):
            decision.by = f"podgroup {own.uid}"

    def _evicted(self, decision: _Decision, evict: Evict) -> None:
        decision.victims.append(evict)
        behind = False
        if evict.gang is not None:
            decision.gangs[evict.gang] += 1
            behind = decision.gangs[evict.gang] > _MEMBERS_TOLD and self._source(evict.gang) is not None
        by, why = evict.preemptor, evict.message
        if decision.by and evict.reason is EvictionReason.PREEMPTED:
            by, why = decision.by, f"{by}: {why}"
        self._recorder.record(
            pod_reference(evict),
            reason=evict.reason.value,
            action=_ACTIONS[evict.reason],
            note=f"{evict.reason.value}{f' by {by}' if by else ''} on node {evict.node}: {why}",
            related=decision.related,
            behind=behind,
        )

    def _end(self, decision: _Decision) -> None:
        """All is answered: the gangs that lost members, then the preemptor."""
        for key, count in sorted(decision.gangs.items()):
            source = self._source(key)
            if source is not None:
                first = next(evict for evict in decision.victims if evict.gang == key)
                whom = f" for {first.preemptor}" if first.preemptor else ""
                self._recorder.record(
                    source,
                    reason=first.reason.value,
                    action=_ACTIONS[first.reason],
                    note=f"{count} member(s) evicted{whom}: {first.message}",
                    related=decision.related,
                )
        if decision.regarding is not None and decision.victims:
            first = decision.victims[0]
            refused = f"; {decision.refused} could not be evicted" if decision.refused else ""
            note = f"evicts {named(decision.victims)} to make room; waits for them to leave{refused}"
            self._recorder.record(decision.regarding, reason="Evicting", action=_ACTIONS[first.reason], note=note)

    def _source(self, key: GangKey) -> ObjectReference | None:
        record = self._state.gangs.get(key)
        return source_reference(record) if record is not None else None


def named(victims: Sequence[Evict]) -> str:
    """`3 pod(s): 2 of gang a/x, a/y`, with at most five names."""
    gangs = Counter(evict.gang for evict in victims if evict.gang is not None)
    parts = [(f"{count} of gang {key}", count) for key, count in sorted(gangs.items())]
    parts += [(f"{evict.namespace}/{evict.name}", 1) for evict in victims if evict.gang is None]
    shown, rest = parts[:_NAMED], sum(count for _, count in parts[_NAMED:])
    more = f" and {rest} more" if rest else ""
    return f"{len(victims)} pod(s): {', '.join(text for text, _ in shown)}{more}"

"""Events about evictions on victims, their gangs and the preemptor, and one log line per decision."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from phalanx.cluster.state import ClusterState
from phalanx.dialects.api_groups import NATIVE
from phalanx.execution.evictor import EvictionOutcome, EvictResult
from phalanx.kube.events import EventRecorder, ObjectReference
from phalanx.model.decisions import Evict, EvictionReason, Nominate
from phalanx.model.gang import GangKey
from phalanx.model.text.counts import count_of
from phalanx.status.event_publisher import pod_reference, source_reference

log = logging.getLogger(__name__)

# Preempting is the action of kube-scheduler's events.
_ACTIONS: Mapping[EvictionReason, str] = {
    EvictionReason.PREEMPTED: "Preempting",
    EvictionReason.RECLAIMED: "Reclaiming",
    EvictionReason.RESCHEDULED: "Rescheduling",
    EvictionReason.REVOKED: "Revoking",
}
_NAMED = 5
# Number of members of one gang whose events are sent at once; further events are sent after all others.
_MEMBERS_TOLD = 20


class _Decision:
    """Evictions of one decision: the preemptor and the outcomes of the victims."""

    __slots__ = ("by", "gangs", "gone", "open", "refused", "regarding", "related", "victims")

    def __init__(self) -> None:
        self.open = 0
        self.victims: list[Evict] = []
        self.gangs: Counter[GangKey] = Counter()
        self.gone = 0
        self.refused = 0
        # Object of the preemptor, and the related object of the victims' events: this object or the single pod.
        self.regarding: ObjectReference | None = None
        self.related: ObjectReference | None = None
        # Name of the preemptor in the form of kube-scheduler's events; "" for kinds that it does not have.
        self.by = ""


class EvictionEvents:
    """Recorder of eviction events: one per evicted pod. After all evictions of a decision are answered: one per
    gang with victims and one for the preemptor. Each decision has one log line."""

    def __init__(self, recorder: EventRecorder, state: ClusterState) -> None:
        self._recorder = recorder
        self._state = state
        self._decisions: dict[str, _Decision] = {}

    def __len__(self) -> int:
        """Return the number of eviction decisions with unanswered evictions."""
        return len(self._decisions)

    def evictions_decided(self, evictions: Iterable[Evict], nominations: Iterable[Nominate] = ()) -> None:
        """Prepare the events for the evictions of a plan. `eviction_answered` must be called for each."""
        fresh: dict[str, list[Evict]] = {}
        for evict in evictions:
            self._decisions.setdefault(evict.cause, _Decision()).open += 1
            fresh.setdefault(evict.cause, []).append(evict)
        for nomination in nominations:
            if nomination.node and nomination.cause in fresh:
                self._benefits(self._decisions[nomination.cause], nomination)
        for cause, victims in fresh.items():
            first = victims[0]
            preemptor = first.preemptor or "no preemptor"
            log.info("%s: evict %s for %s: %s", cause or "-", self._named(victims), preemptor, first.message)

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
        """Set the object on which the preemptor's event is recorded: the object of its gang, or the first nominated
        pod."""
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
        """Record the events of an eviction decision on gangs with victims, then on the preemptor."""
        for key, count in sorted(decision.gangs.items()):
            source = self._source(key)
            if source is not None:
                first = next(evict for evict in decision.victims if evict.gang == key)
                beneficiary = f" for {first.preemptor}" if first.preemptor else ""
                self._recorder.record(
                    source,
                    reason=first.reason.value,
                    action=_ACTIONS[first.reason],
                    note=f"{count_of(count, 'pod')} evicted{beneficiary}: {first.message}",
                    related=decision.related,
                )
        if decision.regarding is not None and decision.victims:
            first = decision.victims[0]
            refused = f"; {decision.refused} not evicted" if decision.refused else ""
            note = f"evicted {self._named(decision.victims)}; waiting for them to terminate{refused}"
            self._recorder.record(decision.regarding, reason="Evicting", action=_ACTIONS[first.reason], note=note)

    def _named(self, victims: Sequence[Evict]) -> str:
        return victim_names(victims, self._name_of)

    def _name_of(self, key: GangKey) -> str:
        record = self._state.gangs.get(key)
        return record.title if record is not None else str(key)

    def _source(self, key: GangKey) -> ObjectReference | None:
        record = self._state.gangs.get(key)
        return source_reference(record) if record is not None else None


def victim_names(victims: Sequence[Evict], name_of: Callable[[GangKey], str]) -> str:
    """Return `3 pods: 2 of gang a/x, a/y`, with at most five names; `name_of` returns the name of a gang."""
    gangs = Counter(evict.gang for evict in victims if evict.gang is not None)
    parts = [(f"{count} of gang {name_of(key)}", count) for key, count in sorted(gangs.items())]
    parts += [(f"{evict.namespace}/{evict.name}", 1) for evict in victims if evict.gang is None]
    shown, rest = parts[:_NAMED], sum(count for _, count in parts[_NAMED:])
    more = f" and {rest} more" if rest else ""
    return f"{count_of(len(victims), 'pod')}: {', '.join(text for text, _ in shown)}{more}"

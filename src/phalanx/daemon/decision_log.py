"""Log lines of scheduling decisions: one id connects the event that woke a cycle, its decisions and each write."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping

import msgspec

from phalanx.cluster.state import ClusterState
from phalanx.dialects.warnings import ObjectRef
from phalanx.execution.binder import BindOutcome, BindResult
from phalanx.execution.evictor import EvictionOutcome, EvictResult
from phalanx.kube.timestamps import format_time
from phalanx.model.decisions import Bind, Evict, Plan
from phalanx.model.gang import GangKey

log = logging.getLogger(__name__)

# Maximum number of cycles with a stored wake-up.
_REMEMBERED = 4096
# Maximum number of gangs and pods with a stored cycle of the last verdict.
_VERDICTS = 65_536


class Wake(msgspec.Struct, frozen=True):
    """Wake-up of a scheduling cycle: its time (seconds since the epoch), the number of changed objects and the
    first of them.

    There is no object where a timer or an answered write woke the cycle, or the previous cycle had units left.
    """

    time: float
    first: ObjectRef | None
    events: int

    @property
    def event(self) -> str:
        """First changed object as kind, namespace and name."""
        about = self.first
        return f"{about.kind} {about.namespace}/{about.name}".replace(" /", " ") if about is not None else ""


class Arrivals:
    """Objects that have changed since the last cycle began: their number and the first of them."""

    __slots__ = ("events", "first")

    def __init__(self) -> None:
        self.first: ObjectRef | None = None
        self.events = 0

    def note(self, first: ObjectRef, events: int = 1) -> None:
        if not self.events:
            self.first = first
        self.events += events

    def take(self, now: float) -> Wake:
        wake = Wake(now, self.first, self.events)
        self.first, self.events = None, 0
        return wake


class DecisionLog:
    """Log of scheduling decisions: evictions at level info, all other decisions at level debug.

    The id is that of `Bind.cause`, `Evict.cause` and of a pod's story: `c` and the number of the cycle. For
    evictions `.` and the number of the decision in the cycle follow.
    """

    def __init__(self) -> None:
        self.arrivals = Arrivals()
        self._wakes: OrderedDict[str, Wake] = OrderedDict()
        self._judged: OrderedDict[GangKey | str, str] = OrderedDict()

    def cycle(self, plan: Plan, state: ClusterState, now: float) -> Wake:
        """Log the decisions of a cycle; return its wake-up."""
        cause = f"c{plan.cycle}"
        wake = self._wakes[cause] = self.arrivals.take(now)
        while len(self._wakes) > _REMEMBERED:
            self._wakes.popitem(last=False)
        subjects: list[GangKey | str] = [*(news.gang for news in plan.gangs), *(pod.uid for pod in plan.pods)]
        for subject in subjects:
            self._judged[subject] = cause
            self._judged.move_to_end(subject)
        while len(self._judged) > _VERDICTS:
            self._judged.popitem(last=False)
        if plan.evictions:
            self._evictions_decided(plan.evictions, wake)
        if log.isEnabledFor(logging.DEBUG):
            _log(logging.DEBUG, "woken", {"cause": cause, "event": wake.event, "events": wake.events})
            self._decided(cause, plan, state)
        return wake

    def bound(self, result: BindResult) -> None:
        if log.isEnabledFor(logging.DEBUG):
            bind, outcome = result.bind, result.outcome
            fields = {"cause": bind.cause, "unit": unit_of(bind), "pod": f"{bind.namespace}/{bind.name}"}
            fields |= {"node": bind.node, "outcome": outcome.value, "message": result.message}
            _log(logging.DEBUG, "bound" if outcome is BindOutcome.BOUND else "not bound", fields)

    def evicted(self, result: EvictResult) -> None:
        evict, outcome = result.evict, result.outcome
        fields = {"cause": evict.cause, "unit": unit_of(evict), "pod": f"{evict.namespace}/{evict.name}"}
        fields |= {"node": evict.node, "reason": evict.reason.value, "for": evict.preemptor}
        fields |= {"outcome": outcome.value, "message": result.message}
        _log(logging.INFO, "evicted" if outcome is EvictionOutcome.EVICTED else "not evicted", fields)

    def judged(self, subject: GangKey | str) -> str:
        """Return the id of the cycle that last set a verdict of a gang, or of a pod by its uid; "" if unknown."""
        return self._judged.get(subject, "")

    def wakes(self, causes: Iterable[str]) -> dict[str, dict[str, object]]:
        """Return the wake-ups of the cycles with these ids, if they are stored."""
        known = ((cause, self._wakes.get(cause.partition(".")[0])) for cause in causes)
        return {
            cause: {"time": format_time(wake.time), "event": wake.event, "events": wake.events}
            for cause, wake in known
            if wake is not None
        }

    def _evictions_decided(self, evictions: Iterable[Evict], wake: Wake) -> None:
        decisions: dict[str, list[Evict]] = {}
        for evict in evictions:
            decisions.setdefault(evict.cause, []).append(evict)
        for cause, victims in decisions.items():
            first = victims[0]
            fields = {"cause": cause, "verdict": "evict", "pods": len(victims), "reason": first.reason.value}
            fields |= {"for": first.preemptor, "event": wake.event, "message": first.message}
            _log(logging.INFO, "decided", fields)

    def _decided(self, cause: str, plan: Plan, state: ClusterState) -> None:
        units: dict[str, set[str]] = {}
        pods: dict[str, int] = {}
        for bind in plan.binds:
            unit = unit_of(bind)
            units.setdefault(unit, set()).add(bind.node)
            pods[unit] = pods.get(unit, 0) + 1
        for unit, nodes in units.items():
            self._log_decided(cause, "bind", unit=unit, pods=pods[unit], nodes=len(nodes))
        for news in plan.gangs:
            if news.verdict is not None:
                self._log_decided(cause, "wait", unit=f"gang {news.gang}", reason=news.verdict.code)
        for decided in plan.pods:
            record = state.pods.get(decided.uid)
            if decided.verdict is not None and record is not None:
                self._log_decided(cause, "wait", unit=f"pod {record.pod.key}", reason=decided.verdict.code)

    def _log_decided(self, cause: str, verdict: str, **fields: object) -> None:
        _log(logging.DEBUG, "decided", {"cause": cause, "verdict": verdict, **fields})


def unit_of(decided: Bind | Evict) -> str:
    """Return the gang or pod that a decision concerns, for log lines."""
    gang: GangKey | None = decided.gang
    return f"gang {gang}" if gang is not None else f"pod {decided.namespace}/{decided.name}"


def _log(level: int, message: str, fields: Mapping[str, object]) -> None:
    log.log(level, message, extra={"fields": {name: value for name, value in fields.items() if value != ""}})

"""Plugin `extender` of Volcano: an external service that filters and scores nodes and votes on queues and
groups.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from phalanx.model.text.duration import parse_nanoseconds
from phalanx.plugin import (
    Arguments,
    BoolArray,
    ChargePath,
    ClassRecord,
    FloatArray,
    GangRecord,
    NodeTable,
    Plugin,
    PodRecord,
    Rows,
    Verdict,
    View,
    Vote,
)
from phalanx.scheduling.plugins.nodes.extender_calls import (
    Caller,
    Document,
    Link,
    job_of,
    node_of,
    queue_of,
    task_of,
)

# Seconds for which an answer is valid.
_PERIOD = 10.0
_DEFAULT_TIMEOUT = 1.0


class Extender(Plugin):
    """Calls the configured verbs of an extender: `prioritizeVerb` once per pod class for all its nodes,
    `predicateVerb` for a node that was chosen, `queueOverusedVerb`, `jobEnqueueableVerb` and `jobEnqueuedVerb` for
    queues and gangs. Answers are valid for ten seconds.

    After a failure the extender is not called for the rest of the ten seconds. Until then an `ignorable` extender
    counts as agreeing, others as refusing. With `managedResources` it is called only for pods that request one of
    them.
    """

    name = "extender"
    without_effect = (
        "extender.allocateFuncVerb",
        "extender.deallocateFuncVerb",
        "extender.jobReadyVerb",
        "extender.onSessionCloseVerb",
        "extender.onSessionOpenVerb",
        "extender.preemptableVerb",
        "extender.reclaimableVerb",
    )
    arguments = (
        "extender.httpTimeout",
        "extender.ignorable",
        "extender.jobEnqueueableVerb",
        "extender.jobEnqueuedVerb",
        "extender.managedResources",
        "extender.predicateVerb",
        "extender.prioritizeVerb",
        "extender.queueOverusedVerb",
        "extender.urlPrefix",
        *without_effect,
    )

    def __init__(self, arguments: Arguments) -> None:
        self.url = arguments.text("extender.urlPrefix").rstrip("/")
        self.timeout = _DEFAULT_TIMEOUT
        stated = arguments.keys()
        if "extender.httpTimeout" in stated:
            self.timeout = arguments.parsed("extender.httpTimeout", _seconds, "a duration such as 100ms or 2s")
        self._ignorable = arguments.boolean("extender.ignorable", False)
        self._managed = _names(arguments)
        self._predicate = arguments.text("extender.predicateVerb")
        self._prioritize = arguments.text("extender.prioritizeVerb")
        self._overused = arguments.text("extender.queueOverusedVerb")
        self._enqueueable = arguments.text("extender.jobEnqueueableVerb")
        self._enqueued = arguments.text("extender.jobEnqueuedVerb")
        points = {
            "pre_bind_check": self._predicate,
            "filter": self._predicate,
            "explain": self._predicate,
            "static_score": self._prioritize,
            "blocked": self._overused,
            "admit": self._enqueueable,
            "admitted": self._enqueued,
        }
        self.disabled_points = frozenset(point for point, verb in points.items() if not verb)
        if not self.url:
            self.remarks = ("extender.urlPrefix is missing: the extender is not called",)
            self.disabled_points = frozenset({*points, "time_key", "next_wake"})
        self._link = Link()
        self._period = 0
        self._expirations = 0
        # The reason of each refusal, by class and row.
        self._refused: dict[int, dict[int, str]] = {}

    def connect(self, caller: Caller) -> None:
        """Set the function that calls the extender; from now on it can be called."""
        self._link.caller = caller

    def time_key(self, now: float) -> Hashable:
        """Return the number of times that the extender's answers have expired; they expire only if the extender was
        called."""
        period = int(now // _PERIOD)
        if period != self._period:
            self._period = period
            if self._link.busy:
                self._expirations += 1
                self._link.renew()
                self._refused.clear()
        return self._expirations

    def next_wake(self, session: View) -> float | None:
        """Return the time when the extender's answers expire; None if it was not called."""
        return (self._period + 1) * _PERIOD if self._link.busy else None

    # nodes

    def pre_bind_check(self, pod_class: ClassRecord, nodes: NodeTable, row: int) -> bool:
        if not self._is_managed(pod_class):
            return True
        key = pod_class.number, nodes.names[row]
        answer = self._link.ask(
            self._predicate, key, lambda: {"task": task_of(pod_class), "node": node_of(nodes, row)}
        )
        if answer is None:
            reason = "" if self._agrees_by_default() else "node(s) could not be checked by the extender"
        else:
            objection = _objection(answer)
            reason = f"node(s) refused by the extender: {objection}" if objection else ""
        if reason:
            self._refused.setdefault(pod_class.number, {})[row] = reason
        return not reason

    def filter(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> BoolArray:
        mask = np.ones(nodes.capacity, dtype=np.bool_)
        mask[list(self._refused.get(pod_class.number, ()))] = False
        result: BoolArray = mask[rows]
        return result

    def explain(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> list[tuple[str, BoolArray]]:
        masks: dict[str, BoolArray] = {}
        for row, reason in sorted(self._refused.get(pod_class.number, {}).items()):
            masks.setdefault(reason, np.zeros(nodes.capacity, dtype=np.bool_))[row] = True
        return [(reason, mask[rows]) for reason, mask in masks.items()]

    def static_score(self, pod_class: ClassRecord, nodes: NodeTable, mask: BoolArray) -> FloatArray | None:
        if not self._is_managed(pod_class):
            return None
        rows = np.flatnonzero(mask).tolist()
        answer = self._link.ask(
            self._prioritize,
            pod_class.number,
            lambda: {"task": task_of(pod_class), "nodes": [node_of(nodes, row) for row in rows]},
        )
        scores = answer.get("nodeScore") if answer is not None and not answer.get("errorMessage") else None
        if not isinstance(scores, dict):
            return None
        points = np.zeros(nodes.capacity)
        for name, score in scores.items():
            row = nodes.row(str(name))
            if row >= 0 and isinstance(score, int | float) and abs(score) < float("inf"):
                points[row] = float(score)
        return points

    # queues and groups

    def blocked(self, session: View, unit: GangRecord | PodRecord, charge_path: ChargePath) -> Verdict | None:
        queue = charge_path.queue
        if queue is None:
            return None
        answer = self._link.ask(self._overused, queue.key, lambda: {"queue": queue_of(queue)})
        overused = answer.get("overused") is True if answer is not None else not self._agrees_by_default()
        if not overused:
            return None
        why = "reports the queue as overused" if answer is not None else "does not answer"
        return Verdict("QueueOverused", f"{queue.label}: the extender {why}", unschedulable=False)

    def admit(self, session: View, gang: GangRecord) -> Vote:
        answer = self._link.ask(self._enqueueable, gang.key, lambda: {"job": job_of(gang)})
        if answer is None:
            return Vote.PERMIT if self._agrees_by_default() else Vote.REJECT
        status = answer.get("status")
        return Vote(max(-1, min(1, status))) if isinstance(status, int) else Vote.ABSTAIN

    def why_not_admitted(self, session: View, gang: GangRecord) -> tuple[str, str] | None:
        return "the extender does not admit it", ""

    def admitted(self, session: View, gang: GangRecord) -> None:
        self._link.ask(self._enqueued, (gang.key, session.now), lambda: {"job": job_of(gang)})

    def _is_managed(self, pod_class: ClassRecord) -> bool:
        return not self._managed or any(name in self._managed for name, _ in pod_class.spec.requests)

    def _agrees_by_default(self) -> bool:
        """Return whether a missing answer of the extender counts as agreement."""
        return self._ignorable or self._link.caller is None


def _names(arguments: Arguments) -> frozenset[str]:
    stated: Sequence[object] = arguments.sequence("extender.managedResources")
    return frozenset(map(str, stated))


def _seconds(text: str) -> float:
    """Parse a duration in seconds. Raises ValueError."""
    seconds = parse_nanoseconds(text) / 10**9
    if seconds <= 0:
        raise ValueError(text)
    return seconds


def _objection(answer: Document) -> str:
    """Return the reason for which the extender refuses a node, "" if it does not.

    It is in `status` since `code` is part of the answer, in `errorMessage` in older versions.
    """
    reason = answer.get("status") or answer.get("errorMessage")
    if reason:
        return str(reason)
    code = answer.get("code")
    return f"code {code}" if code else ""

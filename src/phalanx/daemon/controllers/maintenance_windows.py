"""Status of MaintenanceWindows, and notices to the users of pods that will be evicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.daemon.controllers.maintenance_cordons import MaintenanceCordons
from phalanx.dialects.gangs.status_input import Conditions, conditions_in, find_condition
from phalanx.dialects.intake import Intake
from phalanx.dialects.nodes.maintenance import INVALID, MAINTENANCE_WINDOWS, SeenWindow
from phalanx.dialects.status import StatusChange
from phalanx.dialects.times import format_time
from phalanx.execution.writes import WritePool
from phalanx.kube.client import KubeClient
from phalanx.kube.retry import RetryPolicy
from phalanx.model.gang import GangKey
from phalanx.model.maintenance import NO_END, AtStart, MaintenanceWindow
from phalanx.model.pod import MemberState
from phalanx.model.recurrence import Occurrence
from phalanx.status.event_publisher import EventPublisher
from phalanx.status.status_endpoint import StatusEndpoint
from phalanx.status.status_writer import DerivedStatus, StatusWriter

NOTICE = "MaintenanceAhead"

_ON_NODE = frozenset({MemberState.BOUND, MemberState.RUNNING, MemberState.TERMINATING})
_PODS_NAMED = 5


class WindowStatus(msgspec.Struct, frozen=True):
    """Status of a maintenance window, written when it differs from the last one."""

    phase: str
    nodes: int
    occurrence: Occurrence | None
    running: tuple[str, ...]
    problem: str
    generation: int


class MaintenanceWindowController:
    """Publisher of the status of every maintenance window; it checks once a second and writes only changes.

    `knows_all` returns whether all objects of a kind (group, plural) are known. Running pods are listed while a
    window is active. A stored status is only compared, never used as input.
    """

    def __init__(
        self,
        client: KubeClient,
        endpoint: StatusEndpoint,
        pool: WritePool,
        state: ClusterState,
        intake: Intake,
        event_publisher: EventPublisher,
        knows_all: Callable[[str, str], bool],
        now: Callable[[], float],
        retry: RetryPolicy | None = None,
    ) -> None:
        self._writer = StatusWriter(
            endpoint, pool, self._derive, lambda name: f"MaintenanceWindow {name}", retry=retry
        )
        kind = MAINTENANCE_WINDOWS
        self._cordons = MaintenanceCordons(client, pool, state, lambda: knows_all(kind.group, kind.plural), now)
        self._state = state
        self._seen = intake.maintenance_windows.seen
        self._event_publisher = event_publisher
        self._now = now
        self._current: dict[str, tuple[WindowStatus, SeenWindow]] = {}
        # Current or next occurrence by window, with the time until which it is valid; None if none is left.
        self._spans: dict[str, tuple[MaintenanceWindow, float, Occurrence | None]] = {}
        # Notified gangs and single pods, by window and start.
        self._notified: dict[tuple[str, int], set[GangKey | str]] = {}

    def check(self) -> None:
        self._cordons.check()
        windows = self._state.nodes.maintenance.windows
        for name in [name for name in self._current if name not in windows]:
            del self._current[name]
            self._spans.pop(name, None)
            self._writer.forget(name)
        due: set[tuple[str, int]] = set()
        for name, window in windows.items():
            seen = self._seen.get(name)
            if seen is None:
                continue
            span = self._span(window)
            current = (self._status_of(window, span, seen.generation), seen)
            if self._current.get(name) != current:
                self._current[name] = current
                self._writer.touch(name)
            if window.at_start is AtStart.EVICT and span is not None:
                due |= self._give_notice(window, span)
        self._notified = {key: units for key, units in self._notified.items() if key in due}

    def _span(self, window: MaintenanceWindow) -> Occurrence | None:
        """Return the occurrence of a maintenance window that is active, else the next one."""
        now = int(self._now())
        known = self._spans.get(window.name)
        if known is None or known[0] is not window or now >= known[1]:
            span = window.next_span(now)
            known = self._spans[window.name] = (window, span.end if span is not None else NO_END, span)
        return known[2]

    def _status_of(self, window: MaintenanceWindow, span: Occurrence | None, generation: int) -> WindowStatus:
        rows = self._state.nodes.maintenance.rows_of(window.name)
        if window.problem:
            return WindowStatus("Invalid", 0, None, (), window.problem, generation)
        if span is None:
            return WindowStatus("Completed", len(rows), None, (), "", generation)
        if span.start > self._now():
            return WindowStatus("Scheduled", len(rows), span, (), "", generation)
        running = tuple(sorted(record.pod.key for record in self._running(rows)))
        return WindowStatus("Active", len(rows), span, running, "", generation)

    def _running(self, rows: list[int]) -> Iterator[PodRecord]:
        """Yield the pods on the nodes of a window, except pods that belong to the node."""
        for row in rows:
            for record in self._state.pods.on(row):
                if record.state in _ON_NODE and not record.pod.fixture:
                    yield record

    def _derive(self, name: str) -> DerivedStatus | None:
        status, seen = self._current.get(name, (None, None))
        if status is None or seen is None:
            return None
        wanted: dict[str, Any] = {
            "observedGeneration": status.generation,
            "phase": status.phase,
            "nodes": status.nodes,
            "occurrence": _times(status.occurrence),
            "stillRunning": len(status.running) if status.phase == "Active" else None,
            "pods": list(status.running[:_PODS_NAMED]) or None,
            "conditions": self._conditions(status, conditions_in(seen.status)),
        }
        changed = {field: value for field, value in wanted.items() if seen.status.get(field) != value}
        if not changed:
            return None
        body = {"metadata": {"uid": seen.ref.uid}, "status": changed}
        return DerivedStatus(StatusChange(seen.ref, body), seen.status)

    def _conditions(self, status: WindowStatus, published: Conditions) -> Conditions:
        active = status.phase == "Active"
        drained = "True" if active and not status.running else "False"
        remaining = f"{len(status.running)} pod(s) still run" if status.running else "no pod runs there"
        wanted = [
            ("Accepted", "False", INVALID, status.problem)
            if status.problem
            else ("Accepted", "True", "Accepted", "the window is valid"),
            ("Active", "True" if active else "False", status.phase, "its nodes accept no pods" if active else ""),
            (
                "Drained",
                drained,
                "Drained" if drained == "True" else "NotDrained",
                remaining if active else "not begun",
            ),
        ]
        return [self._condition(published, status.generation, *condition) for condition in wanted]

    def _condition(
        self, published: Conditions, generation: int, kind: str, status: str, reason: str, message: str
    ) -> dict[str, Any]:
        last = find_condition(published, kind) or {}
        same = last.get("status") == status and last.get("lastTransitionTime")
        return {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": last["lastTransitionTime"] if same else format_time(int(self._now())),
            "observedGeneration": generation,
        }

    def _give_notice(self, window: MaintenanceWindow, span: Occurrence) -> set[tuple[str, int]]:
        """Notify each gang or pod that a window will evict, once; return the key of the notified occurrence if its
        notice is due."""
        now, key = self._now(), (window.uid, span.start)
        if now < span.start - window.notice:
            return set()
        notified = self._notified.setdefault(key, set())
        rows = self._state.nodes.maintenance.rows_of(window.name) if now < span.start else []
        for record in self._running(rows):
            unit = record.gang.key if record.gang is not None else record.pod.uid
            if unit in notified or record.pod.scheduler not in self._state.schedulers:
                continue
            notified.add(unit)
            note = (
                f"the pod is evicted at {format_time(span.start)}, "
                f"when the maintenance of node {record.pod.node} begins"
            )
            self._event_publisher.run_time_ends(record, NOTICE, f"{note} ({window.title})")
        return {key}


def _times(span: Occurrence | None) -> dict[str, str] | None:
    return {"start": format_time(span.start), "end": format_time(span.end)} if span is not None else None

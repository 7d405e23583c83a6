"""Plugin `tdm`: nodes that are open to batch pods for a part of the day (Volcano, plugins/tdm)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from phalanx.cluster.nodes.labels import ABSENT
from phalanx.model.pod import CAN_LEAVE
from phalanx.plugin import (
    Arguments,
    BoolArray,
    ClassRecord,
    EvictionReason,
    FloatArray,
    GangRecord,
    NodeTable,
    Plugin,
    PodRecord,
    Rows,
    Victim,
    View,
)
from phalanx.scheduling.plugins.nodes.time_windows import DailyWindow, next_turn, parse_offset

ZONE_LABEL = "volcano.sh/revocable-zone"
_ZONE = "tdm.revocable-zone."
_OFFSET = "tdm.utc-offset"
_BEST = 100.0


class Tdm(Plugin):
    """Filter, score and eviction by revocable zones.

    A node labelled `volcano.sh/revocable-zone: NAME` accepts pods only while the window of the zone is open, and
    only revocable pods, which prefer it. After the window has closed they are evicted once per period: per gang as
    many as its budget allows, else one. A gang that would fall below its minimum is evicted as a whole. A zone
    without an argument is never open.

    Volcano reads windows in the local time of its process. Here they are UTC unless `tdm.utc-offset` (such as
    +08:00) is set, so that equal histories give equal plans.
    """

    name = "tdm"
    arguments = ("tdm.evict.period", f"{_ZONE}*", _OFFSET)

    def __init__(self, arguments: Arguments) -> None:
        stated = arguments.keys()
        offset = arguments.parsed(_OFFSET, parse_offset, "an offset such as +08:00") if _OFFSET in stated else 0
        self._windows = {
            key.removeprefix(_ZONE): arguments.parsed(
                key, partial(DailyWindow.parse, offset=offset), "a window such as 22:00-06:00"
            )
            for key in stated
            if key.startswith(_ZONE)
        }
        self._period = arguments.duration("tdm.evict.period") or 60
        self._open: frozenset[str] = frozenset()
        if not self._windows:
            self.remarks = ("no tdm.revocable-zone.NAME is set: nodes with a revocable zone accept no pods",)
        elif _OFFSET not in stated:
            self.remarks = (f"windows are read as UTC, not as local time; {_OFFSET} sets another clock",)

    # time

    def time_key(self, now: float) -> frozenset[str]:
        """Return the names of the revocable zones that are open, on which results for nodes depend."""
        self._open = frozenset(name for name, window in self._windows.items() if window.is_open(now))
        return self._open

    def next_wake(self, session: View) -> float | None:
        """Return the next opening or closing of a window, or the next eviction round."""
        times = (next_turn(self._windows.values(), session.now), session.timers.next(self.name, self._period))
        return min((when for when in times if when is not None and when > session.now), default=None)

    # nodes

    def filter(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> BoolArray:
        lent = self._lent(nodes, rows)
        return ~lent | self._opened(nodes, rows) if pod_class.spec.revocable else ~lent

    def explain(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> list[tuple[str, BoolArray]]:
        lent, opened = self._lent(nodes, rows), self._opened(nodes, rows)
        reasons = [("node(s) were in a revocable zone that is closed now", lent & ~opened)]
        if not pod_class.spec.revocable:
            reasons.append(("node(s) were in a revocable zone, for preemptable pods only", opened))
        return reasons

    def static_score(self, pod_class: ClassRecord, nodes: NodeTable, mask: BoolArray) -> FloatArray | None:
        if not (pod_class.spec.revocable and self._open):
            return None
        opened = self._opened(nodes, slice(None))
        return np.where(opened, _BEST, 0.0) if opened.any() else None

    # order

    def gang_order(self, session: View, gang: GangRecord | PodRecord) -> bool:
        """Return the sort key of a gang: non-revocable gangs first."""
        if isinstance(gang, PodRecord):
            return bool(gang.pod_class.spec.revocable)
        return gang.spec is not None and gang.spec.revocable

    def victim_order(self, session: View, record: PodRecord) -> bool:
        """Return the sort key of a victim: revocable pods first."""
        return not record.pod_class.spec.revocable

    # the end of a window

    def victims(self, session: View) -> Iterator[Victim]:
        if not session.timers.due(self.name, self._period, session.now):
            return
        for victim in self._victims_of_closed_zones(session):
            session.timers.begin(self.name, session.now)
            yield victim

    def _victims_of_closed_zones(self, session: View) -> Iterator[Victim]:
        nodes, state = session.state.nodes, session.state
        everything = slice(None)
        thinned: set[GangRecord] = set()
        closed = np.flatnonzero(self._lent(nodes, everything) & ~self._opened(nodes, everything) & nodes.alive)
        column = nodes.labels.column(ZONE_LABEL)
        for row in closed.tolist():
            zone = column.values[int(column.ids[row])]
            if zone not in self._windows:
                continue  # Volcano evicts no pods from zones without an argument
            lent = [record for record in state.pods.on(row) if _is_revocable_victim(record)]
            for record in sorted(lent, key=lambda record: (record.pod.priority, record.pod.key)):
                if record.gang in thinned or record.state not in CAN_LEAVE:
                    continue
                message = f"node {nodes.names[row]} was lent until {self._windows[zone].end}"
                yield Victim(record, EvictionReason.REVOKED, message, whole=True)
                if record.gang is not None and record.state not in CAN_LEAVE and not _has_budget(record.gang):
                    thinned.add(record.gang)

    def _lent(self, nodes: NodeTable, rows: Rows) -> BoolArray:
        result: BoolArray = nodes.labels.column(ZONE_LABEL).ids[rows] != ABSENT
        return result

    def _opened(self, nodes: NodeTable, rows: Rows) -> BoolArray:
        column = nodes.labels.column(ZONE_LABEL)
        known = np.array([value in self._open for value in column.values], dtype=np.bool_)
        known[ABSENT] = False
        result: BoolArray = known[column.ids[rows]]
        return result


def _is_revocable_victim(record: PodRecord) -> bool:
    return record.state in CAN_LEAVE and bool(record.pod_class.spec.revocable)


def _has_budget(gang: GangRecord) -> bool:
    spec = gang.spec
    return spec is not None and (spec.min_available is not None or spec.max_unavailable is not None)

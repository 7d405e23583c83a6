"""Who is where, by victim class (kind): how many pods of which kind each node has, as arrays over (row, kind)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from phalanx.cluster.accounts import ChargePath
from phalanx.cluster.change_log import ChangeLog
from phalanx.cluster.classes import Footprint
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.resource_space import IntArray
from phalanx.model.pod import ACTIVE, MemberState


class VictimClass:
    """Pods that nothing tells apart when somebody needs their room: one charge path, priority and gang, one
    footprint.

    `number` is its place in the arrays. `arriving` pods are still on their way to their nodes: they cannot be told
    to leave yet. `guarded` ones may have a cooldown or a disruption budget. A class outlasts the pod with which it
    began, and what that pod is made into later.
    """

    __slots__ = (
        "arriving",
        "charge_path",
        "fixture",
        "footprint",
        "gang",
        "guarded",
        "number",
        "preemptable",
        "priority",
    )

    def __init__(self, number: int, first: PodRecord) -> None:
        assert first.charge_path is not None
        self.number = number
        self.charge_path: ChargePath = first.charge_path
        self.footprint: Footprint = first.footprint
        self.priority = first.pod.priority
        self.preemptable, self.fixture = first.pod.preemptable, first.pod.fixture
        self.guarded = bool(first.pod.cooldown or first.pod.budgets)
        self.gang: GangRecord | None = first.gang
        self.arriving = first.state is MemberState.ASSUMED


class VictimTable:
    """`counts[i]` pods of kind `kinds[i]` are on row `rows[i]`; int64 arrays of equal length, rows ascending."""

    __slots__ = ("_pods", "counts", "kinds", "rows")

    def __init__(self, rows: IntArray, kinds: IntArray, counts: IntArray) -> None:
        self.rows = rows
        self.kinds = kinds
        self.counts = counts
        self._pods: IntArray | None = None

    def pods(self, kinds: int) -> IntArray:
        """int64[kinds]: how many pods of each kind there are."""
        if self._pods is None or len(self._pods) != kinds:
            self._pods = np.bincount(self.kinds, weights=self.counts, minlength=kinds).astype(np.int64)
        return self._pods


class VictimIndex:
    """Built when somebody first asks, and from then on brought up to date row by row (`moved` names them).

    Only pods that are placed, bound or running are counted; whether one may be evicted is not asked here.
    """

    def __init__(self) -> None:
        self.moved = ChangeLog()
        self._cursor = -1
        self._rows: dict[int, tuple[IntArray, IntArray]] = {}
        self._kinds: dict[object, VictimClass] = {}
        self._table: VictimTable | None = None
        self.kinds: list[VictimClass] = []
        self._of_gang: dict[GangRecord, list[int]] = {}
        # Kinds whose gangs say something else than before.
        self.respecified = ChangeLog()
        # Numbers of kinds hold for one generation.
        self.generation = 0

    def of_gang(self, gang: GangRecord) -> Sequence[int]:
        """The numbers of the kinds that a gang's members are of."""
        return self._of_gang.get(gang, ())

    def gang_changed(self, gang: GangRecord) -> None:
        """What declares a gang says something else now."""
        self.respecified.note_all(self.of_gang(gang))

    def table(self, pods_by_row: Mapping[int, Mapping[str, PodRecord]]) -> VictimTable:
        """The table as of now; `pods_by_row` are the pods of each row."""
        changed = self.moved.since(self._cursor, max(64, len(pods_by_row))) if self._cursor >= 0 else None
        if changed is None or len(self.kinds) > 4 * self._live() + 1000:
            self._rows.clear()
            self._kinds.clear()
            self.kinds.clear()
            self._of_gang.clear()
            self.generation += 1
            self._tally(pods_by_row, sorted(pods_by_row))
        elif changed and self._table is not None:
            rows = sorted(set(changed))
            self._tally(pods_by_row, rows)
            self._cursor = self.moved.end
            self._table = self._spliced(self._table, rows)
            return self._table
        elif self._table is not None:
            return self._table
        self._cursor = self.moved.end
        self._table = self._flatten(sorted(self._rows))
        return self._table

    def _live(self) -> int:
        """How many kinds have any pods."""
        return int(np.count_nonzero(np.bincount(self._table.kinds))) if self._table is not None else 0

    def _tally(self, pods_by_row: Mapping[int, Mapping[str, PodRecord]], rows: Iterable[int]) -> None:
        for row in rows:
            counts: dict[int, int] = {}
            for record in pods_by_row.get(row, {}).values():
                if record.state in ACTIVE and record.charge_path is not None:
                    number = self._number(record)
                    counts[number] = counts.get(number, 0) + 1
            if counts:
                numbers = np.fromiter(counts.keys(), dtype=np.int64, count=len(counts))
                self._rows[row] = (numbers, np.fromiter(counts.values(), dtype=np.int64, count=len(counts)))
            else:
                self._rows.pop(row, None)

    def _number(self, record: PodRecord) -> int:
        pod = record.pod
        key = (
            record.charge_path,
            record.footprint,
            record.gang,
            pod.priority,
            pod.preemptable,
            bool(pod.cooldown or pod.budgets),
            pod.fixture,
            record.state is MemberState.ASSUMED,
        )
        victim_class = self._kinds.get(key)
        if victim_class is None:
            victim_class = self._kinds[key] = VictimClass(len(self.kinds), record)
            self.kinds.append(victim_class)
            if victim_class.gang is not None:
                self._of_gang.setdefault(victim_class.gang, []).append(victim_class.number)
        return victim_class.number

    def _spliced(self, table: VictimTable, changed: list[int]) -> VictimTable:
        """The table with some of its rows replaced."""
        last = max(changed[-1], int(table.rows[-1]) if len(table.rows) else 0)
        gone: npt.NDArray[np.bool_] = np.zeros(last + 1, dtype=np.bool_)
        gone[changed] = True
        stay = ~gone[table.rows]
        new = self._flatten([row for row in changed if row in self._rows])
        kept = table.rows[stay]
        places = np.searchsorted(kept, new.rows)
        return VictimTable(
            np.insert(kept, places, new.rows),
            np.insert(table.kinds[stay], places, new.kinds),
            np.insert(table.counts[stay], places, new.counts),
        )

    def _flatten(self, rows: list[int]) -> VictimTable:
        if not rows:
            nothing = np.zeros(0, dtype=np.int64)
            return VictimTable(nothing, nothing, nothing)
        parts = [self._rows[row] for row in rows]
        sizes: npt.NDArray[np.int64] = np.array([len(kinds) for kinds, _ in parts], dtype=np.int64)
        return VictimTable(
            np.repeat(np.array(rows, dtype=np.int64), sizes),
            np.concatenate([kinds for kinds, _ in parts]),
            np.concatenate([counts for _, counts in parts]),
        )

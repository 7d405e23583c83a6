"""Index of preemption victims by class (kind): the number of pods of each kind per node, as arrays over (row,
kind)."""

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
    """Pods that are equivalent as victims: with the same charge path, priority, gang and footprint.

    `number` is its place in the arrays. `arriving` pods are assumed: they cannot be evicted yet. `guarded` ones can
    have a cooldown or a disruption budget. A class outlives its first pod, and later changes of that pod.
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
        """Return int64[kinds]: the number of pods of each kind."""
        if self._pods is None or len(self._pods) != kinds:
            self._pods = np.bincount(self.kinds, weights=self.counts, minlength=kinds).astype(np.int64)
        return self._pods


class VictimIndex:
    """Index of victims that is built on first use, and updated node by node afterwards (`moved` lists the rows).

    Only assumed, bound and running pods are counted, whether they can be evicted or not.
    """

    def __init__(self) -> None:
        self.moved = ChangeLog()
        self._cursor = -1
        self._rows: dict[int, tuple[IntArray, IntArray]] = {}
        self._kinds: dict[object, VictimClass] = {}
        self._table: VictimTable | None = None
        self.kinds: list[VictimClass] = []
        self._of_gang: dict[GangRecord, list[int]] = {}
        # Kinds with changed gangs.
        self.respecified = ChangeLog()
        # Numbers of kinds are valid for one generation.
        self.generation = 0

    def of_gang(self, gang: GangRecord) -> Sequence[int]:
        """Return the kind numbers of a gang's members."""
        return self._of_gang.get(gang, ())

    def gang_changed(self, gang: GangRecord) -> None:
        """Record that the declaration of a gang has changed, and with it the kinds of its members."""
        self.respecified.note_all(self.of_gang(gang))

    def table(self, pods_by_row: Mapping[int, Mapping[str, PodRecord]]) -> VictimTable:
        """Return the current table of victims; `pods_by_row` are the pods of each node row."""
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
        """Return the number of victim kinds with pods."""
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
        """Return the victim table with some node rows replaced."""
        last = max(changed[-1], int(table.rows[-1]) if len(table.rows) else 0)
        is_changed: npt.NDArray[np.bool_] = np.zeros(last + 1, dtype=np.bool_)
        is_changed[changed] = True
        unchanged = ~is_changed[table.rows]
        new = self._flatten([row for row in changed if row in self._rows])
        unchanged_rows = table.rows[unchanged]
        positions = np.searchsorted(unchanged_rows, new.rows)
        return VictimTable(
            np.insert(unchanged_rows, positions, new.rows),
            np.insert(table.kinds[unchanged], positions, new.kinds),
            np.insert(table.counts[unchanged], positions, new.counts),
        )

    def _flatten(self, rows: list[int]) -> VictimTable:
        if not rows:
            empty = np.zeros(0, dtype=np.int64)
            return VictimTable(empty, empty, empty)
        parts = [self._rows[row] for row in rows]
        sizes: npt.NDArray[np.int64] = np.array([len(kinds) for kinds, _ in parts], dtype=np.int64)
        return VictimTable(
            np.repeat(np.array(rows, dtype=np.int64), sizes),
            np.concatenate([kinds for kinds, _ in parts]),
            np.concatenate([counts for _, counts in parts]),
        )

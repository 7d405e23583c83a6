"""Parts a gang's members into buckets by the affinities of their tasks (Volcano, plugins/task-topology)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from phalanx.model.resources import CPU, MEMORY, PODS
from phalanx.model.tasks import TaskTopology
from phalanx.plugin import BoolArray, FloatArray, IntArray, NodeTable, PodRecord

_MIB = 2**20
_BEST = 100.0
# Of those who wait beside a member so many are looked at.
_MATES = 64
# How much a task's own rules count when it is decided who is put into a bucket first.
_SELF_ANTI, _INTER, _SELF, _INTER_ANTI = 4, 3, 2, 1


class BucketRules:
    """Which tasks attract and repel each other."""

    def __init__(self, topology: TaskTopology) -> None:
        self.attracts = _pairs(topology.affinity)
        self.repels = _pairs(topology.anti_affinity)
        self._rank: dict[str, int] = {}
        for sets, alone, together in (
            (topology.affinity, _SELF, _INTER),
            (topology.anti_affinity, _SELF_ANTI, _INTER_ANTI),
        ):
            for names in sets:
                rank = alone if len(names) == 1 else together
                for name in names:
                    self._rank[name] = max(rank, self._rank.get(name, 0))
        self._order = {name: len(topology.order) - place for place, name in enumerate(topology.order)}

    def concern(self, task: str) -> bool:
        return task in self._rank

    def precedence(self, task: str) -> tuple[int, int]:
        """Larger goes first: what the owner says, then the strongest rule."""
        return self._order.get(task, 0), self._rank.get(task, 0)

    def attraction(self, task: str, others: Counter[str]) -> int:
        """How many of the others the task wants to be with, less those that it does not."""
        return sum(
            count * (((task, other) in self.attracts) - ((task, other) in self.repels))
            for other, count in others.items()
        )

    def repulsion(self, task: str, others: Counter[str]) -> int:
        return sum(count for other, count in others.items() if (task, other) in self.repels)


class TaskBucket:
    """Members who should share a node: those who wait, and how many are on which row."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.waiting: dict[str, PodRecord] = {}
        self.tasks: Counter[str] = Counter()
        self.rows: Counter[int] = Counter()
        self.weight = 0

    def add(self, record: PodRecord) -> None:
        # Volcano weighs those who wait only; then everybody who comes later would join the first bucket.
        self.weight += _weight(record)
        self.tasks[record.pod.role] += 1
        if record.row >= 0:
            self.rows[record.row] += 1
        else:
            self.waiting[record.pod.uid] = record

    def __len__(self) -> int:
        return len(self.waiting) + self.rows.total()


class TopologyTaskBuckets:
    """The buckets of one gang, as of now; members whose task no rule names are in none."""

    def __init__(self, topology: TaskTopology, members: Iterable[PodRecord], nodes: NodeTable, weight: int) -> None:
        self._rules = BucketRules(topology)
        self._nodes = nodes
        self._points_each = 0.0
        self._buckets: list[TaskBucket] = []
        self._bucket_of: dict[str, TaskBucket] = {}
        self._on_rows: dict[int, Counter[str]] = {}
        named = [member for member in members if self._rules.concern(member.pod.role)]
        for member in sorted(named, key=self._turn):
            if member.row >= 0:
                self._on_rows.setdefault(member.row, Counter())[member.pod.role] += 1
            bucket = self._choose(member)
            bucket.add(member)
            self._bucket_of[member.pod.uid] = bucket
        most = max((len(bucket) for bucket in self._buckets), default=0)
        if most:
            self._points_each = _BEST * weight / most

    def group_of(self, record: PodRecord) -> int | None:
        bucket = self._bucket_of.get(record.pod.uid)
        return bucket.number if bucket is not None else None

    def order(self, record: PodRecord) -> tuple[int, ...]:
        """Smaller goes first: the largest bucket, in it the task that goes first."""
        bucket = self._bucket_of.get(record.pod.uid)
        if bucket is None:
            return (1,)
        stated, rank = self._rules.precedence(record.pod.role)
        return 0, -len(bucket.waiting), bucket.number, -stated, -rank

    def scores(self, record: PodRecord, placed: Sequence[tuple[PodRecord, int]]) -> FloatArray | None:
        """Per node: members of the bucket that are there, plus those who wait and would fit there together with
        this one, less others there that its task repels; the largest bucket's size is 100."""
        bucket = self._bucket_of.get(record.pod.uid)
        if bucket is None or not self._points_each:
            return None
        here, repelled = Counter(bucket.rows), self._repelled(record.pod.role, placed)
        done = set()
        for other, row in placed:
            if self._bucket_of.get(other.pod.uid) is bucket:
                here[row] += 1
                done.add(other.pod.uid)
        mates = [each for uid, each in bucket.waiting.items() if uid not in done and uid != record.pod.uid]
        points = self._fitting(record, mates).astype(np.float64)
        for row, count in here.items():
            points[row] += count
        for row, count in repelled.items():
            points[row] -= count
        return points * self._points_each

    def _repelled(self, task: str, placed: Sequence[tuple[PodRecord, int]]) -> dict[int, int]:
        rows = {row: Counter(tasks) for row, tasks in self._on_rows.items()}
        for other, row in placed:
            rows.setdefault(row, Counter())[other.pod.role] += 1
        found = {row: self._rules.repulsion(task, tasks) for row, tasks in rows.items()}
        return {row: count for row, count in found.items() if count}

    def _fitting(self, record: PodRecord, mates: list[PodRecord]) -> IntArray:
        """int64[N]: how many of the bucket fit on each row, this one first, then the smallest ones."""
        nodes = self._nodes
        room = nodes.idle + nodes.releasing
        wanted = record.pod_class.footprint.usage.copy()
        fits: BoolArray = np.logical_and.reduce((room >= wanted[:, None])[wanted > 0], axis=0)
        count: IntArray = fits.astype(np.int64)
        for mate in sorted(mates, key=lambda each: (_weight(each), each.pod.key))[:_MATES]:
            wanted += mate.pod_class.footprint.usage
            fits &= np.logical_and.reduce((room >= wanted[:, None])[wanted > 0], axis=0)
            if not fits.any():
                break
            count += fits
        return count

    def _turn(self, record: PodRecord) -> tuple[object, ...]:
        """Who is on a node first, row by row; then by precedence, then in the members' own order."""
        stated, rank = self._rules.precedence(record.pod.role)
        if record.row >= 0:
            return 0, record.row, 0, 0, record.pod.index, record.pod.name
        return 1, 0, -stated, -rank, record.pod.index, record.pod.name

    def _choose(self, record: PodRecord) -> TaskBucket:
        best: TaskBucket | None = None
        if record.row >= 0:
            best = next((bucket for bucket in self._buckets if record.row in bucket.rows), None)
        else:
            score: int | None = None
            for bucket in self._buckets:
                found = self._rules.attraction(record.pod.role, bucket.tasks)
                better = score is None or found > score
                if better or (found == score and best is not None and bucket.weight < best.weight):
                    best, score = bucket, found
            if score is not None and score < 0:
                best = None
        if best is None:
            best = TaskBucket(len(self._buckets))
            self._buckets.append(best)
        return best


def _pairs(sets: Iterable[tuple[str, ...]]) -> frozenset[tuple[str, str]]:
    """A set of one is a pair with itself."""
    found = set()
    for names in sets:
        if len(names) == 1:
            found.add((names[0], names[0]))
        found |= {(one, other) for one in names for other in names if one != other}
    return frozenset(found)


def _weight(record: PodRecord) -> int:
    """How large a pod is, where a thousandth of a core, a mebibyte and a thousandth of anything else are the
    same."""
    total = 0
    for name, amount in record.footprint.amounts.items():
        if name == CPU:
            total += amount
        elif name == MEMORY:
            total += amount // _MIB
        elif name != PODS:
            total += 1000 * amount
    return total

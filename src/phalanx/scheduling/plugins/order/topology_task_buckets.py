"""Task buckets by the affinities of a gang's tasks (Volcano, plugins/task-topology)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from phalanx.model.resources import CPU, MEMORY, PODS
from phalanx.model.tasks import TaskTopology
from phalanx.plugin import BoolArray, FloatArray, IntArray, NodeTable, PodRecord

_MIB = 2**20
_BEST = 100.0
# Maximum number of waiting members of a bucket that a score considers.
_MATES = 64
# Weights of a task's own rules in the order in which members are assigned to buckets.
_SELF_ANTI, _INTER, _SELF, _INTER_ANTI = 4, 3, 2, 1


class BucketRules:
    """Affinity and anti-affinity between the tasks (roles) of a gang."""

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
        """Return the precedence of a task, larger first: the declared order, then the strongest rule."""
        return self._order.get(task, 0), self._rank.get(task, 0)

    def attraction(self, task: str, tasks: Counter[str]) -> int:
        """Return the number of members in `tasks` to which the task has affinity, minus those with
        anti-affinity."""
        return sum(
            count * (((task, task_name) in self.attracts) - ((task, task_name) in self.repels))
            for task_name, count in tasks.items()
        )

    def repulsion(self, task: str, tasks: Counter[str]) -> int:
        return sum(count for other_task, count in tasks.items() if (task, other_task) in self.repels)


class TaskBucket:
    """Members of a gang that should share a node: waiting ones, and the number of placed ones per node row."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.waiting: dict[str, PodRecord] = {}
        self.tasks: Counter[str] = Counter()
        self.rows: Counter[int] = Counter()
        self.weight = 0

    def add(self, record: PodRecord) -> None:
        # Volcano weighs only waiting members; then all later members would join the first bucket.
        self.weight += _weight(record)
        self.tasks[record.pod.role] += 1
        if record.row >= 0:
            self.rows[record.row] += 1
        else:
            self.waiting[record.pod.uid] = record

    def __len__(self) -> int:
        return len(self.waiting) + self.rows.total()


class TopologyTaskBuckets:
    """Task buckets of one gang, as of now; members without a rule for their task are in none."""

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
        largest = max((len(bucket) for bucket in self._buckets), default=0)
        if largest:
            self._points_each = _BEST * weight / largest

    def group_of(self, record: PodRecord) -> int | None:
        bucket = self._bucket_of.get(record.pod.uid)
        return bucket.number if bucket is not None else None

    def order(self, record: PodRecord) -> tuple[int, ...]:
        """Return the sort key of a member, smaller first: the largest bucket, then the precedence of tasks."""
        bucket = self._bucket_of.get(record.pod.uid)
        if bucket is None:
            return (1,)
        declared, rank = self._rules.precedence(record.pod.role)
        return 0, -len(bucket.waiting), bucket.number, -declared, -rank

    def scores(self, record: PodRecord, placed: Sequence[tuple[PodRecord, int]]) -> FloatArray | None:
        """Return the score per node; the size of the largest bucket is 100.

        It counts members of the bucket on the node, plus waiting ones that would fit there with this one, minus
        members that its task repels.
        """
        bucket = self._bucket_of.get(record.pod.uid)
        if bucket is None or not self._points_each:
            return None
        counts, repelled = Counter(bucket.rows), self._repelled(record.pod.role, placed)
        placed_uids = set()
        for other, row in placed:
            if self._bucket_of.get(other.pod.uid) is bucket:
                counts[row] += 1
                placed_uids.add(other.pod.uid)
        waiting = [mate for uid, mate in bucket.waiting.items() if uid not in placed_uids and uid != record.pod.uid]
        points = self._fitting(record, waiting).astype(np.float64)
        for row, count in counts.items():
            points[row] += count
        for row, count in repelled.items():
            points[row] -= count
        return points * self._points_each

    def _repelled(self, task: str, placed: Sequence[tuple[PodRecord, int]]) -> dict[int, int]:
        rows = {row: Counter(tasks) for row, tasks in self._on_rows.items()}
        for other, row in placed:
            rows.setdefault(row, Counter())[other.pod.role] += 1
        repulsions = {row: self._rules.repulsion(task, tasks) for row, tasks in rows.items()}
        return {row: count for row, count in repulsions.items() if count}

    def _fitting(self, record: PodRecord, mates: list[PodRecord]) -> IntArray:
        """Return int64[N]: the number of the task bucket's members that fit on each node row, this one first, then
        by size."""
        nodes = self._nodes
        room = nodes.idle + nodes.releasing
        wanted = record.pod_class.footprint.usage.copy()
        fits: BoolArray = np.logical_and.reduce((room >= wanted[:, None])[wanted > 0], axis=0)
        count: IntArray = fits.astype(np.int64)
        for mate in sorted(mates, key=lambda member: (_weight(member), member.pod.key))[:_MATES]:
            wanted += mate.pod_class.footprint.usage
            fits &= np.logical_and.reduce((room >= wanted[:, None])[wanted > 0], axis=0)
            if not fits.any():
                break
            count += fits
        return count

    def _turn(self, record: PodRecord) -> tuple[object, ...]:
        """Return the order in which members are assigned to task buckets: placed members by row, then by
        precedence, then in the members' own order."""
        declared, rank = self._rules.precedence(record.pod.role)
        if record.row >= 0:
            return 0, record.row, 0, 0, record.pod.index, record.pod.name
        return 1, 0, -declared, -rank, record.pod.index, record.pod.name

    def _choose(self, record: PodRecord) -> TaskBucket:
        best: TaskBucket | None = None
        if record.row >= 0:
            best = next((bucket for bucket in self._buckets if record.row in bucket.rows), None)
        else:
            score: int | None = None
            for bucket in self._buckets:
                attraction = self._rules.attraction(record.pod.role, bucket.tasks)
                better = score is None or attraction > score
                if better or (attraction == score and best is not None and bucket.weight < best.weight):
                    best, score = bucket, attraction
            if score is not None and score < 0:
                best = None
        if best is None:
            best = TaskBucket(len(self._buckets))
            self._buckets.append(best)
        return best


def _pairs(sets: Iterable[tuple[str, ...]]) -> frozenset[tuple[str, str]]:
    """Return all pairs of tasks within each set; a set of one task is a pair with itself."""
    pairs = set()
    for names in sets:
        if len(names) == 1:
            pairs.add((names[0], names[0]))
        pairs |= {(one, other) for one in names for other in names if one != other}
    return frozenset(pairs)


def _weight(record: PodRecord) -> int:
    """Return the size of a pod: a millicore, a MiB and a thousandth of any other resource weigh the same."""
    total = 0
    for name, amount in record.footprint.amounts.items():
        if name == CPU:
            total += amount
        elif name == MEMORY:
            total += amount // _MIB
        elif name != PODS:
            total += 1000 * amount
    return total

"""Collection of one waiting gang: the nodes on which room is withheld for it, and its limits in time."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from phalanx.cluster.accounts import ChargePath
from phalanx.cluster.resource_space import IntArray
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.reservations.window import Part, RowArray

#: Seconds that a gang without a limit and an estimate is assumed to run.
ASSUMED_RUN_TIME = 3600
#: A collection without progress for this many seconds ends.
PATIENCE = 3600


class CollectedPart(msgspec.Struct, frozen=True, eq=False):
    """Collected `counts[i]` copies of the part's class on each distinct `rows[i]`."""

    part: Part
    rows: RowArray
    counts: IntArray

    @property
    def charge_path(self) -> ChargePath | None:
        return self.part.charge_path


class ChosenNodes(msgspec.Struct, frozen=True, eq=False):
    """Nodes on which the parts of a gang fit once pods end there; `expected` (seconds since the epoch) is the time
    by which they have ended, 0 if an end is unknown. `by_guess` is True if a learned run time is used."""

    parts: tuple[CollectedPart, ...]
    expected: int = 0
    by_guess: bool = False


class Collection:
    """Room that is withheld for one gang on its chosen nodes: as much as is idle there, up to its demand.

    - `rows` int[N]: the distinct rows in order; `wanted` int64[R, N]: the demand on each.
    - `resource`: the column whose idle resource-time counts: GPUs, else the scarcest resource at the start.
    - `since`: start of the collection; `progress_at`: the last time at which more was withheld than ever before
      (`most`); all in seconds since the epoch.
    - `run_time`: limit or estimate of the gang in seconds. `idle_seconds`: amount x seconds of `resource` that was
      withheld until `counted_at`.
    - `guesses`: whether other units may be backfilled by learned run times.
    """

    __slots__ = (
        "counted_at",
        "expected",
        "guesses",
        "held",
        "idle_seconds",
        "key",
        "most",
        "name",
        "parts",
        "priority",
        "progress_at",
        "resource",
        "rows",
        "run_time",
        "since",
        "wanted",
    )

    def __init__(
        self, key: UnitKey, name: str, priority: int, nodes: ChosenNodes, run_time: int, idle: IntArray, now: int
    ) -> None:
        self.key = key
        self.name = name
        self.priority = priority
        self.run_time = run_time or ASSUMED_RUN_TIME
        self.since = self.counted_at = self.progress_at = now
        self.guesses = True
        self.most = 0
        self.idle_seconds = 0
        self.use_nodes(nodes, idle)
        cards = [column for part in nodes.parts for column in part.part.pod_class.gpu_columns]
        self.resource = cards[0] if cards else self.scarcest
        self.most = self.withheld

    def use_nodes(self, nodes: ChosenNodes, idle: IntArray) -> None:
        """Collect on other nodes from now on."""
        self.parts, self.expected = nodes.parts, nodes.expected
        self.rows: RowArray = np.unique(np.concatenate([part.rows for part in nodes.parts]))
        self.wanted: IntArray = np.zeros((len(idle), len(self.rows)), dtype=np.int64)
        for part in nodes.parts:
            places, usage = np.searchsorted(self.rows, part.rows), part.part.pod_class.footprint.usage
            self.wanted[: len(usage), places] += usage[:, None] * part.counts
        self.update(idle)

    def update(self, idle: IntArray) -> None:
        """Compute the withheld amounts from idle amounts int64[R, N] of all nodes."""
        if len(self.wanted) < len(idle):
            more = len(idle) - len(self.wanted)
            self.wanted = np.pad(self.wanted, ((0, more), (0, 0)))
        self.held: IntArray = np.minimum(self.wanted, idle[:, self.rows].clip(0))

    def count_idle(self, now: int) -> None:
        """Add the withheld amounts since the last count to the idle resource-time."""
        self.idle_seconds += int(self.held[self.resource].sum()) * max(0, now - self.counted_at)
        self.counted_at = max(now, self.counted_at)

    @property
    def withheld(self) -> int:
        """Part of the demand that is withheld now, in millionths, of the scarcest resource."""
        column = self.scarcest
        return int(self.held[column].sum() * 1_000_000 // self.wanted[column].sum())

    @property
    def complete(self) -> bool:
        """Whether the whole demand is withheld."""
        return bool((self.held >= self.wanted).all())

    @property
    def scarcest(self) -> int:
        """Column of the resource of which the smallest part of the demand is withheld."""
        wanted, held = self.wanted.sum(axis=1), self.held.sum(axis=1)
        return int(
            min(
                np.flatnonzero(wanted).tolist(),
                key=lambda column: (held[column] * 1_000_000 // max(1, wanted[column]), -column),
            )
        )

    @property
    def overdue(self) -> bool:
        """Whether the idle resource-time exceeds the demand of the gang times its run time."""
        return self.idle_seconds > self._budget

    @property
    def _budget(self) -> int:
        return int(self.wanted[self.resource].sum()) * self.run_time

    @property
    def next_end(self) -> int:
        """The time at which the collection ends if no room comes free before."""
        held, end = int(self.held[self.resource].sum()), self.progress_at + PATIENCE
        if not held:
            return end
        return min(end, self.counted_at + max(0, self._budget - self.idle_seconds) // held + 1)

    def charges(self, names: list[str]) -> Iterator[tuple[ChargePath, dict[str, int]]]:
        """Yield (charge path, amounts by resource) that are withheld now; `names` are those of the columns."""
        left = self.held.copy()
        for part in self.parts:
            usage = part.part.pod_class.footprint.usage
            places = np.searchsorted(self.rows, part.rows)
            withheld = np.minimum(left[: len(usage), places], usage[:, None] * part.counts)
            left[: len(usage), places] -= withheld
            if part.charge_path is not None:
                sums = withheld.sum(axis=1).tolist()
                yield part.charge_path, {names[column]: amount for column, amount in enumerate(sums) if amount}

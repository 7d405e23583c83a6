"""Task buckets: members of a gang that prefer a common node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.resource_space import FloatArray


class TaskBuckets(Protocol):
    """Task buckets of one gang at one moment: groups of members that prefer a common node."""

    def group_of(self, record: PodRecord) -> int | None:
        """Return the number of a member's task bucket; None without a preference."""

    def scores(self, record: PodRecord, placed: Sequence[tuple[PodRecord, int]]) -> FloatArray | None:
        """Return float[N]: the score of each node row for the member after `placed` (pod, row); None without a
        preference."""

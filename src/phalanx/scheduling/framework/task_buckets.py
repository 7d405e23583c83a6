"""Task buckets: members of a gang that prefer a common node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.resource_space import FloatArray


class TaskBuckets(Protocol):
    """Task buckets of one gang, as of one moment."""

    def group_of(self, record: PodRecord) -> int | None:
        """Return the bucket of a member; None without a preference."""

    def scores(self, record: PodRecord, placed: Sequence[tuple[PodRecord, int]]) -> FloatArray | None:
        """Return float[N]: the score of each row for the member after `placed` (pod, row); None without a
        preference.
        """

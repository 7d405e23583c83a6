"""Members of a gang who would rather be on one node: task buckets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.resource_space import FloatArray


class TaskBuckets(Protocol):
    """One gang's, as of one moment."""

    def group_of(self, record: PodRecord) -> int | None:
        """The group that a member belongs to; None if it is all the same where it goes."""

    def scores(self, record: PodRecord, placed: Sequence[tuple[PodRecord, int]]) -> FloatArray | None:
        """float[N]: how good each row is for the member, with who was placed before (pod, row); None if it is all
        the same."""

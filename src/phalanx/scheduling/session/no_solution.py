"""Searches that found nothing, so that nobody asks the same again before something has changed."""

from __future__ import annotations

from typing import Protocol

import msgspec

from phalanx.cluster.pods.records import GangRecord
from phalanx.scheduling.queue.signatures import PodSignature, QuorumSignature

_MOST = 10_000


class EvictionQuestion(msgspec.Struct, frozen=True, eq=True):
    """What the answer depends on besides the cluster. Who asks for the same with the same rights gets the same."""

    demand: PodSignature | QuorumSignature
    priority: int
    pod_priority: int
    preempts: bool
    gangs: tuple[GangRecord, ...]
    total: int

    def __hash__(self) -> int:
        return hash((self.demand, self.priority, self.pod_priority, self.preempts, self.total))


class NoSolutionFound(Protocol):
    """A search that found nothing: `again` is when (seconds since the epoch) to ask again, if at some time;
    `unripe` while pods that may help are on their way to their nodes."""

    @property
    def retry_at(self) -> float | None: ...
    @property
    def pods_arriving(self) -> bool: ...


class NoSolutionCache:
    """Kept by the scheduler over cycles."""

    def __init__(self) -> None:
        self._eased = -1
        self._found: dict[EvictionQuestion, tuple[NoSolutionFound, int]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def known(self, question: EvictionQuestion, eased: int, ripened: int, now: float) -> NoSolutionFound | None:
        """The answer, if it cannot have changed: `eased` counts the changes that may help, `ripened` the pods that
        have arrived on their nodes, `now` may be time."""
        if eased != self._eased:
            self._found.clear()
            self._eased = eased
        found, when = self._found.get(question, (None, -1))
        if found is None or (found.retry_at is not None and now >= found.retry_at):
            return None
        return found if not found.pods_arriving or when == ripened else None

    def note(self, question: EvictionQuestion, eased: int, ripened: int, found: NoSolutionFound) -> None:
        if eased != self._eased or len(self._found) >= _MOST:
            self._found.clear()
            self._eased = eased
        self._found[question] = (found, ripened)

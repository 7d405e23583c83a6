"""Pods that ended by themselves since the last reading, for learned run times."""

from __future__ import annotations

from collections import deque

from phalanx.cluster.pods.records import PodRecord
from phalanx.model.pod import MemberState, Pod

#: Ends beyond this number are forgotten if nothing reads them.
_MOST = 5000
_ENDED = (MemberState.SUCCEEDED, MemberState.FAILED)


class RecentEnds:
    """The last pods that ran and ended without an eviction or deletion, oldest first."""

    def __init__(self) -> None:
        self._pods: deque[Pod] = deque(maxlen=_MOST)

    def __bool__(self) -> bool:
        return bool(self._pods)

    def note(self, record: PodRecord, state: MemberState) -> None:
        """Note a running pod that changes to `state` or is removed, before its record changes."""
        if record.state is MemberState.RUNNING and not record.evicting and record.pod.started and state in _ENDED:
            self._pods.append(record.pod)

    def pop(self) -> list[Pod]:
        """Return the pods that ended since the last call."""
        pods = list(self._pods)
        self._pods.clear()
        return pods

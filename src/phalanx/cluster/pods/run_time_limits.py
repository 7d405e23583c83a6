"""Run-time limits that only this scheduler enforces: the end of each pod, and the pods that are over it."""

from __future__ import annotations

import heapq

from phalanx.model.pod import Pod


class RunTimeLimits:
    """Ends of run-time limits by pod uid, while the pod runs. Pods without a limit cost nothing."""

    def __init__(self) -> None:
        self._ends: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._over: dict[str, float] = {}

    def __len__(self) -> int:
        """Return the number of pods with a limit."""
        return len(self._ends)

    def __contains__(self, uid: object) -> bool:
        return uid in self._ends

    def note(self, pod: Pod) -> None:
        """Update the time at which a pod's run-time limit ends."""
        runs = pod.started and pod.node and not pod.terminating and not pod.finished
        end = float(pod.started + pod.run_time.allowed) if runs and pod.run_time.allowed else 0.0
        if end == self._ends.get(pod.uid, 0.0):
            return
        self.drop(pod.uid)
        if end:
            self._ends[pod.uid] = end
            heapq.heappush(self._heap, (end, pod.uid))

    def drop(self, uid: str) -> None:
        self._ends.pop(uid, None)
        self._over.pop(uid, None)

    @property
    def next_end(self) -> float | None:
        """When the next pod reaches its run-time limit."""
        while self._heap and self._ends.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def advance(self, now: float) -> bool:
        """Process all run-time limits up to the time `now`. Return whether any pod has reached its limit since the
        last call."""
        any_over = False
        while (end := self.next_end) is not None and end <= now:
            _, uid = heapq.heappop(self._heap)
            self._over[uid], any_over = end, True
        return any_over

    @property
    def over(self) -> list[str]:
        """Pods over their run-time limit, the longest first."""
        return sorted(self._over, key=lambda uid: (self._over[uid], uid))

    def ending(self, before: float) -> list[str]:
        """Return the pods that are over their run-time limit at `before`."""
        return sorted(uid for uid, end in self._ends.items() if end <= before)

    def end_of(self, uid: str) -> float:
        return self._ends[uid]

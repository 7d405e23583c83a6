"""Lifecycle events of the scheduler process, and its readiness."""

from __future__ import annotations

import asyncio

from phalanx.daemon.endpoint import STOPPING
from phalanx.daemon.observer import Observer
from phalanx.daemon.policy_file import PolicyFile
from phalanx.kube.leadership import Leadership

# Events that arrive together are planned together: a gang's pods come in one burst. A cycle waits for a pause of
# `_GATHER` seconds between events, but not longer than `_LONGEST_GATHER`.
_GATHER = 0.01
_LONGEST_GATHER = 0.05


class Lifecycle:
    """Lifecycle events of the scheduler process.

    `wake` requests a cycle, `planned` is set after the first, `ready` while cycles run, `stopping` when the process
    ends.
    """

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self.planned = asyncio.Event()
        self.ready = asyncio.Event()
        self.stopping = asyncio.Event()

    def stop(self) -> None:
        """End the scheduling loop after the current cycle."""
        self.stopping.set()
        self.wake.set()

    async def events_gathered(self) -> None:
        """Return when no event has requested a cycle for a moment, or a few moments later; reset `wake`."""
        latest = asyncio.get_running_loop().time() + _LONGEST_GATHER
        gathering = True
        while gathering:
            self.wake.clear()
            await asyncio.sleep(_GATHER)
            gathering = self.wake.is_set() and asyncio.get_running_loop().time() < latest
        self.wake.clear()


class Readiness:
    """Answers of the scheduler process to probes."""

    def __init__(
        self, lifecycle: Lifecycle, leadership: Leadership, observer: Observer, policy_file: PolicyFile
    ) -> None:
        self._lifecycle = lifecycle
        self._leadership = leadership
        self._observer = observer
        self._policy_file = policy_file

    def condition(self) -> str:
        """Return the readiness of the process in one word, "" before it is ready.

        A standby is ready after the first list of the cluster: a rollout must not replace a replica that has read
        access by one without. An outage of the API server (`fresh`) does not change the answer: a restart would not
        help.
        """
        ready = self._lifecycle.ready.is_set()
        if self._lifecycle.stopping.is_set() or (ready and not self._leadership.holds()):
            return STOPPING
        return ("scheduling" if ready else "standby") if self._has_synced() else ""

    def checks(self) -> dict[str, bool]:
        """Return the checks that the readiness probe shows besides the condition; only `synced` affects the
        condition."""
        return {
            "leader": self._leadership.holds(),
            "synced": self._has_synced(),
            "fresh": self._observer.fresh,
            "policy": not self._policy_file.problem,
        }

    def _has_synced(self) -> bool:
        return self._lifecycle.ready.is_set() or (self._observer.complete and not self._leadership.holds())

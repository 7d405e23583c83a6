"""States of one container (waiting, running, ended), with restarts and their back-off."""

from __future__ import annotations

import enum

import msgspec

from phalanx.kube.timestamps import parse_time
from phalanx_local.nodeagent.core_v1 import (
    V1Container,
    V1ContainerState,
    V1ContainerStateTerminated,
    V1ContainerStatus,
)

#: Exit code of a process that SIGTERM ended (128 + 15).
TERMINATED_BY_SIGTERM = 143
_PULL_FAILED = "ErrImagePull"
# A kubelet retries a failed pull once after a short pause, and then backs off.
_PULL_PAUSE = 1.0


class ContainerKind(enum.Enum):
    INIT = "init"  # runs to its end before the next one starts
    SIDECAR = "sidecar"  # an init container with restartPolicy Always: runs beside the main ones
    MAIN = "main"


class RestartBackoff(msgspec.Struct, frozen=True):
    """Back-off of container restarts in seconds: `initial`, doubled by each failure, at most `limit`.

    A kubelet waits 10 s to 300 s; these values are shorter because they serve tests and demos.
    """

    initial: float = 1.0
    limit: float = 30.0

    def delay(self, failures: int) -> float:
        return float(min(self.limit, self.initial * 2 ** min(failures, 30)))


class Ended(msgspec.Struct, frozen=True):
    """End of one container process; times are Unix seconds, `started` is None if the process never ran."""

    exit_code: int
    finished: float
    started: float | None = None
    reason: str = ""
    message: str = ""


class ContainerRun:
    """State of one container: exactly one of waiting, launching (start requested), running, ended."""

    __slots__ = (
        "_failures",
        "ended",
        "kind",
        "last",
        "launching",
        "policy",
        "refusal",
        "restarts",
        "retry_at",
        "spec",
        "started",
    )

    def __init__(self, spec: V1Container, kind: ContainerKind, policy: str) -> None:
        self.spec = spec
        self.kind = kind
        self.policy = policy
        self.restarts = 0
        self.launching = False
        self.started: float | None = None  # start time of the current run
        self.ended: Ended | None = None  # final end
        self.last: Ended | None = None  # end of the previous run
        self.retry_at: float | None = None
        self.refusal: tuple[str, str] | None = None  # reason and message if the container cannot start
        self._failures = 0

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def running(self) -> bool:
        return self.started is not None

    @property
    def waiting(self) -> bool:
        return self.started is None and self.ended is None and not self.launching

    @property
    def busy(self) -> bool:
        """Whether a process of the container exists or is starting."""
        return self.launching or self.running

    @property
    def ever_started(self) -> bool:
        return self.running or self.ended is not None or self.last is not None

    def due(self, now: float) -> bool:
        return self.waiting and self.refusal is None and (self.retry_at is None or self.retry_at <= now)

    def fail_pull(self, now: float) -> None:
        """Record that the image cannot be pulled: ErrImagePull, and ImagePullBackOff after a moment."""
        self.refusal = (_PULL_FAILED, f'failed to pull image "{self.spec.image}": not found')
        self.retry_at = now + _PULL_PAUSE

    def must_back_off(self, now: float) -> bool:
        failed = self.refusal is not None and self.refusal[0] == _PULL_FAILED
        return failed and self.retry_at is not None and self.retry_at <= now

    def back_off(self) -> None:
        assert self.refusal is not None
        message = f'Back-off pulling image "{self.spec.image}": {_PULL_FAILED}: {self.refusal[1]}'
        self.refusal, self.retry_at = ("ImagePullBackOff", message), None

    def launch(self) -> None:
        """Record that the runtime was requested to start the container; `run` or `end` follows."""
        if self.last is not None:
            self.restarts += 1
        self.launching = True
        self.retry_at = None

    def run(self, now: float) -> None:
        self.launching = False
        self.started = now

    def end(self, ended: Ended, backoff: RestartBackoff, *, may_restart: bool = True) -> None:
        """Record the end of the container's process: final, or until the restart back-off has passed."""
        self.launching = False
        self.started = None
        if not (may_restart and self.restarts_after(ended.exit_code)):
            self.ended = ended
            return
        # A run longer than the longest back-off was healthy: its end starts a new series.
        if ended.started is not None and ended.finished - ended.started > 2 * backoff.limit:
            self._failures = 0
        self.last = ended
        self.retry_at = ended.finished + backoff.delay(self._failures)
        self._failures += 1

    def cancel_restart(self) -> None:
        """Make the container's last end final because the pod has ended: the container does not restart."""
        if self.waiting and self.last is not None:
            self.ended, self.last, self.retry_at = self.last, None, None

    def restarts_after(self, exit_code: int) -> bool:
        return self.policy == "Always" or (self.policy == "OnFailure" and exit_code != 0)

    def resume(self, status: V1ContainerStatus, backoff: RestartBackoff) -> None:
        """Restore the container's state from the status that an earlier agent reported."""
        self.restarts = status.restart_count
        self._failures = status.restart_count
        state = status.state or V1ContainerState()
        last = (status.last_state or V1ContainerState()).terminated
        if last is not None:
            self.last = _ended(last)
        if state.running is not None:
            self.started = _moment(state.running.started_at) or 0.0
        elif state.terminated is not None:
            ended = _ended(state.terminated)
            self.end(ended, backoff)
        elif self.last is not None:
            self.retry_at = self.last.finished + backoff.delay(self._failures)
            self._failures += 1


def policy_of(spec: V1Container, kind: ContainerKind, pod_policy: str) -> str:
    """Return the restart policy of one container: its own, else the pod's; an init container never restarts after
    exit 0."""
    if kind is ContainerKind.SIDECAR:
        return "Always"
    if kind is ContainerKind.INIT:
        return "Never" if pod_policy == "Never" else "OnFailure"
    return spec.restart_policy or pod_policy


def _ended(state: V1ContainerStateTerminated) -> Ended:
    return Ended(
        exit_code=state.exit_code,
        finished=_moment(state.finished_at) or 0.0,
        started=_moment(state.started_at),
        reason=state.reason or "",
        message=state.message or "",
    )


def _moment(text: str | None) -> float | None:
    return parse_time(text) if text else None

"""Lifecycle of one pod on its node, from its admission to its end. No I/O, no clock.

Methods such as `observe`, `started`, `exited` and `drain` record facts. `step(now)` advances the pod and returns
commands for a runtime. `wake_at` returns the latest time of the next step. `revision` counts the changes that the
API must get. The containers of a simulated pod start and end by its script, without commands.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator

import msgspec

from phalanx.kube.timestamps import parse_time
from phalanx_local.nodeagent.capacity import Rejection
from phalanx_local.nodeagent.core_v1 import V1Container, V1Pod, V1ResourceRequirements
from phalanx_local.nodeagent.pod_runtime.containers import (
    TERMINATED_BY_SIGTERM,
    ContainerKind,
    ContainerRun,
    Ended,
    RestartBackoff,
    policy_of,
)
from phalanx_local.nodeagent.pod_runtime.images import ALL_IMAGES, Images
from phalanx_local.nodeagent.pod_runtime.script import Script, ScriptDefaults, ScriptError, read_script

# A shorter start needs no status write of its own: the pod is Running before a client reads it.
_VISIBLE_START = 1.0
_DEFAULT_GRACE = 30
# Minimum grace of sidecars after the main containers have used up the grace period (kubelet: 2 s).
_MIN_SIDECAR_GRACE = 2.0
_LOST_CODE, _LOST_REASON = 137, "ContainerStatusUnknown"
_LOST_MESSAGE = "the node agent was restarted; its processes ended with it"


class StartContainer(msgspec.Struct, frozen=True):
    container: str
    attempt: int


class StopContainer(msgspec.Struct, frozen=True):
    """Command to stop a container with SIGTERM, and with SIGKILL `grace` seconds later. A repetition can shorten
    the grace."""

    container: str
    grace: float


Command = StartContainer | StopContainer


class PodStage(enum.Enum):
    STARTING = "starting"  # admitted; its start takes time
    ACTIVE = "active"  # containers start, run and restart
    STOPPING = "stopping"  # all containers are stopping
    DONE = "done"  # no container runs any more, finally


class StopCause(enum.Enum):
    """Reason why a pod stops: deletion, deadline, drain of its node, ..."""

    COMPLETED = "completed"  # the main containers have ended
    DELETED = "deleted"
    DEADLINE = "deadline"  # activeDeadlineSeconds
    DRAINED = "drained"  # its node retires
    FOREIGN = "foreign"  # another client wrote a terminal phase


class PodLifecycle:
    """Lifecycle of one pod that its node has admitted or rejected.

    `defaults` are the options behind the pod's script; None for a pod with real containers. Times are Unix seconds.
    Raises ScriptError for an invalid annotation of a pod that has not started.
    """

    def __init__(
        self,
        pod: V1Pod,
        now: float,
        *,
        defaults: ScriptDefaults | None,
        backoff: RestartBackoff,
        pod_ip: str,
        images: Images = ALL_IMAGES,
    ) -> None:
        self.pod = pod
        self.pod_ip = pod_ip
        self.stage = PodStage.STARTING
        self.cause: StopCause | None = None
        self.rejection: Rejection | None = None
        self.start_time = now
        # Resources granted to each container, once they have differed from its spec (in-place resize).
        self.granted: dict[str, V1ResourceRequirements] | None = None
        self.resize_pending: Rejection | None = None
        self.held = False  # its claims are not usable, so no container starts
        self._hold_recorded = False
        self.revision = 0  # number of changes that the API must get
        self.conditions: dict[str, tuple[str, float]] = {}  # type -> (status, time of the last transition)
        self._defaults = defaults
        self._backoff = backoff
        self._images = images
        self._stop_at = now  # STOPPING: time at which a simulated pod has stopped or a real pod is killed
        self._stopped: set[str] = set()
        self.policy = pod.spec.restart_policy or "Always"
        self.inits = [_init_run(spec, self.policy) for spec in pod.spec.init_containers or ()]
        self.mains = [
            ContainerRun(c, ContainerKind.MAIN, policy_of(c, ContainerKind.MAIN, self.policy))
            for c in pod.spec.containers
        ]
        self._script = self._read_script(pod)
        self._ready_at = now + (self._script.start if self._script else 0.0)
        if self._script is not None and self._script.start >= _VISIBLE_START:
            self.revision += 1

    @classmethod
    def rejected(cls, pod: V1Pod, now: float, rejection: Rejection) -> PodLifecycle:
        """Return the lifecycle of a pod that its node rejects: the pod is Failed at once, with the reason."""
        life = cls(pod, now, defaults=None, backoff=RestartBackoff(), pod_ip="")
        life.rejection = rejection
        life.stage = PodStage.DONE
        life.revision += 1
        return life

    @classmethod
    def resumed(
        cls,
        pod: V1Pod,
        now: float,
        *,
        defaults: ScriptDefaults | None,
        backoff: RestartBackoff,
        pod_ip: str,
        images: Images = ALL_IMAGES,
    ) -> PodLifecycle:
        """Return the lifecycle of a pod that an earlier agent admitted, restored from its status.

        A simulated pod continues to run. Real processes ended with the agent that started them: they count as
        killed, and the restart policy of the pod applies.
        """
        try:
            life = cls(pod, now, defaults=defaults, backoff=backoff, pod_ip=pod_ip, images=images)
        except ScriptError:
            plain = _without_annotations(pod)
            life = cls(plain, now, defaults=defaults, backoff=backoff, pod_ip=pod_ip, images=images)
        life.revision = 0
        life._resume(now)
        return life

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def runs(self) -> Iterator[ContainerRun]:
        yield from self.inits
        yield from self.mains

    @property
    def pretends(self) -> bool:
        return self._defaults is not None

    @property
    def initialized(self) -> bool:
        """Whether every init container of the pod has succeeded and every sidecar has started."""
        return all(r.ever_started if r.kind is ContainerKind.SIDECAR else _succeeded(r) for r in self.inits)

    @property
    def finished(self) -> bool:
        return self.stage is PodStage.DONE

    @property
    def phase(self) -> str:
        """Phase of the pod by the kubelet's rule: Pending until all main containers have started once; ended pods
        by exit codes."""
        if self.stage is PodStage.DONE:
            return self._final_phase()
        if not self.initialized or not all(run.ever_started for run in self.mains):
            return "Pending"
        return "Running"

    @property
    def never_ran(self) -> bool:
        return not any(run.ever_started for run in self.runs)

    def observe(self, pod: V1Pod, now: float) -> bool:
        """Update the lifecycle to the newest version of the pod in the API; only its metadata and spec count, as
        the agent writes the status.

        Return True if the spec has other resources than before and the caller must call `resize`.
        """
        old, self.pod = self.pod, pod
        resized = [spec.resources for spec in _specs(pod)] != [spec.resources for spec in _specs(old)]
        if resized and self.granted is None:
            self.granted = _resources_of(old)
        if pod.metadata.annotations != old.metadata.annotations:
            with contextlib.suppress(ScriptError):  # an invalid annotation changes nothing
                self._script = self._read_script(pod)
        if self.stage is PodStage.DONE:
            return False
        if pod.spec.readiness_gates and pod.status.conditions != old.status.conditions:
            self.revision += 1
        if pod.finished and self.cause is None:
            self._stop(StopCause.FOREIGN, _grace(pod), now)
        elif self.stage is PodStage.STOPPING and pod.terminating:
            self._shorten(_grace(pod), now)
        return resized

    @property
    def stated_resources(self) -> dict[str, V1ResourceRequirements]:
        """Resources that the spec states, by container name."""
        return _resources_of(self.pod)

    def resize(self, refusal: Rejection | None) -> None:
        """Record the result of an in-place resize: granted (None), or the refusal Deferred or Infeasible."""
        if refusal is None:
            self.granted = self.stated_resources
        self.resize_pending = refusal
        self.revision += 1

    def mark_held(self) -> bool:
        """Record that the pod waits for its ResourceClaims. Return False if this was recorded before."""
        first, self._hold_recorded = not self._hold_recorded, True
        self.revision += first
        return first

    def drain(self, now: float) -> None:
        """Stop the pod because its node is drained or removed; the status shows that the pod did not fail."""
        if self.stage is not PodStage.DONE:
            self._stop(StopCause.DRAINED, _grace(self.pod), now)

    def started(self, container: str, now: float) -> None:
        """Record that the runtime has started the container."""
        run = self._find(container)
        if run is not None and run.launching:
            run.run(now)
            self.revision += 1

    def refused(self, container: str, reason: str, message: str) -> None:
        """Record that the runtime can never start the container (for example without a command)."""
        run = self._find(container)
        if run is not None:
            run.launching = False
            run.refusal = (reason, message)
            self.revision += 1

    def exited(self, container: str, now: float, exit_code: int, reason: str = "", message: str = "") -> None:
        """Record the end of the container's process, or a failed start."""
        run = self._find(container)
        if run is not None and run.busy:
            self._end(run, exit_code, now, reason, message)

    def step(self, now: float) -> list[Command]:
        """Execute all due transitions of the pod. Return the commands for the runtime (none for a simulated
        pod)."""
        commands: list[Command] = []
        while self._advance(now, commands):
            pass
        return [] if self.pretends else commands

    def wake_at(self) -> float | None:
        """Return the time at which `step` is due even without new reports; None for never."""
        moments: list[float] = []
        if self.stage is PodStage.STARTING and not self.held:
            moments.append(self._ready_at)
        if self.stage in (PodStage.STARTING, PodStage.ACTIVE) and self.pod.spec.active_deadline_seconds is not None:
            moments.append(self.start_time + self.pod.spec.active_deadline_seconds)
        if self.stage is PodStage.ACTIVE:
            moments.extend(run.retry_at for run in self.runs if run.waiting and run.retry_at is not None)
            moments.extend(end for run in self.runs for end in [self._scripted_end(run)] if end is not None)
        if self.stage is PodStage.STOPPING and self.pretends:
            moments.append(self._stop_at)
        return min(moments, default=None)

    # Transitions. Each makes at most one change and returns whether it did.

    def _advance(self, now: float, commands: list[Command]) -> bool:
        if self.stage in (PodStage.STARTING, PodStage.ACTIVE):
            cause = self._stop_cause(now)
            if cause is not None:
                self._stop(cause, _grace(self.pod), now)
                return True
        match self.stage:
            case PodStage.STARTING:
                if now >= self._ready_at and not self.held:
                    self.stage = PodStage.ACTIVE
                    return True
                return False
            case PodStage.ACTIVE:
                return (
                    self._end_scripted(now)
                    or self._back_off(now)
                    or self._start_due(now, commands)
                    or self._complete(now)
                )
            case PodStage.STOPPING:
                return self._finish_stop(now, commands)
            case PodStage.DONE:
                return False

    def _stop_cause(self, now: float) -> StopCause | None:
        if self.pod.terminating:
            return StopCause.DELETED
        deadline = self.pod.spec.active_deadline_seconds
        return StopCause.DEADLINE if deadline is not None and now >= self.start_time + deadline else None

    def _end_scripted(self, now: float) -> bool:
        for run in self.runs:
            end = self._scripted_end(run)
            if end is not None and end <= now:
                code = self._script.exit_code if self._script and run.kind is ContainerKind.MAIN else 0
                self._end(run, code, end)
                return True
        return False

    def _scripted_end(self, run: ContainerRun) -> float | None:
        if self._script is None or run.started is None or run.kind is ContainerKind.SIDECAR:
            return None
        if run.kind is ContainerKind.INIT:
            return run.started
        return None if self._script.run is None else run.started + self._script.run

    def _start_due(self, now: float, commands: list[Command]) -> bool:
        for run in self.inits:
            if run.due(now):
                self._launch(run, now, commands)
                return True
            if not (run.ever_started if run.kind is ContainerKind.SIDECAR else _succeeded(run)):
                return False
        due = [run for run in self.mains if run.due(now)]
        for run in due:
            self._launch(run, now, commands)
        return bool(due)

    def _back_off(self, now: float) -> bool:
        """Set containers with failed image pulls to ImagePullBackOff when due; the status does not change after
        that."""
        due = [run for run in self.runs if run.must_back_off(now)]
        for run in due:
            run.back_off()
            self.revision += 1
        return bool(due)

    def _launch(self, run: ContainerRun, now: float, commands: list[Command]) -> None:
        if self._images.missing(run.spec.image):
            run.fail_pull(now)
            self.revision += 1
            return
        run.launch()
        commands.append(StartContainer(run.name, run.restarts))
        if self.pretends:
            run.run(now)
            self.revision += 1

    def _complete(self, now: float) -> bool:
        failed_init = any(
            r.kind is ContainerKind.INIT and r.ended is not None and r.ended.exit_code for r in self.inits
        )
        if not failed_init and not all(run.ended is not None for run in self.mains):
            return False
        self._stop(StopCause.COMPLETED, _grace(self.pod), now)
        return True

    def _finish_stop(self, now: float, commands: list[Command]) -> bool:
        busy = [run for run in self.runs if run.busy]
        if self.pretends and now >= self._stop_at:
            for run in busy:
                graceful = self.cause is StopCause.COMPLETED
                self._end(run, 0 if graceful else TERMINATED_BY_SIGTERM, now)
            busy = []
        if not busy:
            for run in self.runs:
                run.cancel_restart()
            self.stage = PodStage.DONE
            self.revision += 1
            return True
        # Sidecars stop after the main containers, because they serve them.
        mains = [run for run in busy if run.kind is not ContainerKind.SIDECAR]
        min_grace = 0.0 if mains else _MIN_SIDECAR_GRACE
        for run in mains or busy:
            if run.name not in self._stopped:
                self._stopped.add(run.name)
                commands.append(StopContainer(run.name, max(min_grace, self._stop_at - now)))
        return False

    def _stop(self, cause: StopCause, grace: float, now: float) -> None:
        self.stage = PodStage.STOPPING
        self.cause = cause
        if self.pretends:
            stops_at_once = self.never_ran or cause in (StopCause.FOREIGN, StopCause.COMPLETED)
            grace = 0.0 if stops_at_once else min(grace, self._script.terminate if self._script else 0.0)
        self._stop_at = now + grace

    def _shorten(self, grace: float, now: float) -> None:
        # A second delete can shorten the grace period, never extend it.
        if now + grace < self._stop_at:
            self._stop_at = now + grace
            self._stopped.clear()

    def _end(self, run: ContainerRun, code: int, now: float, reason: str = "", message: str = "") -> None:
        reason = reason or ("Completed" if code == 0 else "Error")
        ended = Ended(code, now, run.started, reason, message)
        run.end(ended, self._backoff, may_restart=self.stage is not PodStage.STOPPING)
        self.revision += 1

    def _final_phase(self) -> str:
        if self.cause is StopCause.FOREIGN or (self.cause is None and self.rejection is None):
            return self.pod.status.phase or "Failed"
        if self.rejection is not None or self.cause in (StopCause.DEADLINE, StopCause.DRAINED):
            return "Failed"
        return "Succeeded" if all(_succeeded(run) for run in self.mains) else "Failed"

    def _read_script(self, pod: V1Pod) -> Script | None:
        if self._defaults is None:
            return None
        return read_script(pod.metadata.annotations, pod.spec.restart_policy or "Always", self._defaults)

    def _find(self, container: str) -> ContainerRun | None:
        return next((run for run in self.runs if run.name == container), None)

    def _resume(self, now: float) -> None:
        status = self.pod.status
        for condition in status.conditions or ():
            self.conditions[condition.type] = (condition.status, _moment(condition.last_transition_time, now))
        if self.pod.finished:
            self.stage = PodStage.DONE
            return
        self.start_time = _moment(status.start_time, now)
        self._ready_at = self.start_time + (self._script.start if self._script else 0.0)
        known = {s.name: s for s in [*(status.init_container_statuses or ()), *(status.container_statuses or ())]}
        if any(container_status.resources is not None for container_status in known.values()):
            stated = self.stated_resources
            self.granted = {
                name: (known[name].resources if name in known else None) or stated[name] for name in stated
            }
        for run in self.runs:
            if run.name in known:
                run.resume(known[run.name], self._backoff)
            if run.running and not self.pretends:
                self._end(run, _LOST_CODE, now, _LOST_REASON, _LOST_MESSAGE)
        if not self.never_ran:
            self.stage = PodStage.ACTIVE


def _init_run(spec: V1Container, policy: str) -> ContainerRun:
    kind = ContainerKind.SIDECAR if spec.restart_policy == "Always" else ContainerKind.INIT
    return ContainerRun(spec, kind, policy_of(spec, kind, policy))


def _succeeded(run: ContainerRun) -> bool:
    return run.ended is not None and run.ended.exit_code == 0


def _grace(pod: V1Pod) -> float:
    """Return the pod's grace period in seconds: from its deletion request, else from its spec."""
    for grace in (pod.metadata.deletion_grace_period_seconds, pod.spec.termination_grace_period_seconds):
        if grace is not None:
            return float(max(0, grace))
    return float(_DEFAULT_GRACE)


def _resources_of(pod: V1Pod) -> dict[str, V1ResourceRequirements]:
    return {spec.name: spec.resources or V1ResourceRequirements() for spec in _specs(pod)}


def _specs(pod: V1Pod) -> tuple[V1Container, ...]:
    return (*pod.spec.containers, *(pod.spec.init_containers or ()))


def _moment(text: str | None, default: float) -> float:
    return parse_time(text) if text else default


def _without_annotations(pod: V1Pod) -> V1Pod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=None))

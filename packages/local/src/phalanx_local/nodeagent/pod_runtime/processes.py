"""Runtime of `--exec`: each container is a local process with its own process group, log and environment.

The runtime executes the container.command of any user of the API, as the user that runs the agent, without
isolation or limits. Use it on your own machine only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from phalanx.kube.causes import cause_text
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.model.text.decoding import quoted
from phalanx_local.nodeagent.core_v1 import V1Container, V1Pod
from phalanx_local.nodeagent.pod_runtime import process_guard
from phalanx_local.nodeagent.pod_runtime.config_objects import ConfigObjects, MissingObjectError, Read
from phalanx_local.nodeagent.pod_runtime.environment import (
    ContainerConfigError,
    PodFacts,
    build_environment,
    command_line,
    hostname,
    inherited,
)
from phalanx_local.nodeagent.pod_runtime.hosts import HOSTS_VARIABLE, Hosts
from phalanx_local.nodeagent.pod_runtime.lifecycle import Command, PodLifecycle, StartContainer
from phalanx_local.nodeagent.pod_runtime.log_server import LogError
from phalanx_local.nodeagent.pod_runtime.runtime import Reports

log = logging.getLogger(__name__)

#: Variable per volume (emptyDir, ConfigMap, Secret) with the path of its files: mounts would require root.
VOLUME_VARIABLE = "PHALANX_VOLUME_"

# Grace period in seconds of a process whose pod object no longer exists, or whose agent stops.
_LAST_GRACE = 2.0
# Limit of concurrent starts, so that many pods do not fork at the same time.
_STARTS_AT_ONCE = 8
# Interval between checks for missing objects that a container reads.
_OBJECT_PERIOD = 0.5
_START_ERROR = 128  # exit code of container runtimes for a command that cannot be executed


class _Running:
    """Local process of one container, from its start command to the end of the process."""

    def __init__(self) -> None:
        self.group: int | None = None
        self.stopping = False
        self.kill: asyncio.TimerHandle | None = None
        self.kill_at = 0.0

    def set_group(self, group: int) -> None:
        self.group = group
        if self.stopping:
            # The stop arrived during the start, before there was a process to signal.
            signal_group(group, signal.SIGTERM)

    def stop(self, grace: float) -> None:
        """Send SIGTERM to the process now and SIGKILL after `grace` seconds; a second call can only shorten the
        grace."""
        loop = asyncio.get_running_loop()
        if self.group is not None and not self.stopping and grace > 0:
            signal_group(self.group, signal.SIGTERM)
        self.stopping = True
        if self.kill is not None:
            if self.kill_at <= loop.time() + grace:
                return
            self.kill.cancel()
        self.kill_at = loop.time() + grace
        self.kill = loop.call_at(self.kill_at, self._force)

    def _force(self) -> None:
        if self.group is not None:
            signal_group(self.group, signal.SIGKILL)

    def clean_up(self) -> None:
        if self.kill is not None:
            self.kill.cancel()
        if self.group is not None:
            # As in a real container, remaining processes end with the first one.
            signal_group(self.group, signal.SIGKILL)


class LocalProcesses:
    """Runtime that starts and stops local processes and reports their ends.

    `directory` contains a directory per pod (`NAMESPACE_NAME_UID`) with a log file per container and attempt,
    like a kubelet's /var/log/pods. `address(node)` and `allocatable(node)` serve the downward API, `read` serves
    ConfigMaps and Secrets. Call `open` first, `close` last.
    """

    def __init__(
        self,
        reports: Reports,
        directory: Path,
        *,
        address: Callable[[str], str],
        allocatable: Callable[[str], Mapping[str, int]],
        read: Read,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._reports = reports
        self._directory = directory
        self._address = address
        self._allocatable = allocatable
        self._read = read
        self._environ = os.environ if environ is None else environ
        self._running: dict[tuple[str, str], _Running] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._hosts = Hosts(directory)
        self._slots = asyncio.Semaphore(_STARTS_AT_ONCE)
        self._guard_process: asyncio.subprocess.Process | None = None
        self._closing = False

    async def open(self) -> None:
        """Start the guard process, which kills the container processes if the agent is killed."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._guard_process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-ES",
            process_guard.__file__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )

    async def close(self) -> None:
        """End every container process without a report: the next agent resumes the pods from their status."""
        self._closing = True
        for running in self._running.values():
            running.stop(_LAST_GRACE)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._guard_process is not None and self._guard_process.stdin is not None:
            self._guard_process.stdin.close()
            await self._guard_process.wait()

    def command(self, life: PodLifecycle, command: Command) -> None:
        key = (life.uid, command.container)
        if isinstance(command, StartContainer):
            running = self._running[key] = _Running()
            task = asyncio.get_running_loop().create_task(self._run(life, command, running))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif key in self._running:
            self._running[key].stop(command.grace)

    def ended(self, life: PodLifecycle) -> None:
        self._hosts.remove(life.pod)
        shutil.rmtree(self._volumes(life.pod), ignore_errors=True)

    def forget(self, life: PodLifecycle) -> None:
        for (uid, _), running in self._running.items():
            if uid == life.uid:
                running.stop(_LAST_GRACE)
        self.ended(life)

    # Logs

    def log(self, pod: V1Pod, container: str, *, previous: bool) -> Path:
        folder = self._folder(pod) / container
        attempts = sorted(int(path.stem) for path in folder.glob("*.log"))
        wanted = 2 if previous else 1
        if len(attempts) < wanted:
            which = "previous terminated container" if previous else "container"
            raise LogError(f'{which} "{container}" in pod "{pod.metadata.name}" has not started on this agent')
        return folder / f"{attempts[-wanted]}.log"

    def growing(self, pod: V1Pod, container: str) -> bool:
        return (pod.metadata.uid, container) in self._running

    # One process

    async def _run(self, life: PodLifecycle, command: StartContainer, running: _Running) -> None:
        key = (life.uid, command.container)
        try:
            process = await self._start(life, command, running)
            if process is None:
                return
            code = await process.wait()
            running.clean_up()
            self._guard("-", process.pid)
        finally:
            if self._running.get(key) is running:
                del self._running[key]
        if not self._closing:
            self._reports.exited(*key, code if code >= 0 else 128 - code)

    async def _start(
        self, life: PodLifecycle, command: StartContainer, running: _Running
    ) -> asyncio.subprocess.Process | None:
        """Start the process of a container. Return None if it did not start, after a report of the failure."""
        key, pod = (life.uid, command.container), life.pod
        spec = next(run.spec for run in life.runs if run.name == command.container)
        objects = await self._objects(pod, spec, running)
        async with self._slots:
            if running.stopping:
                self._reports.exited(*key, 128 + signal.SIGTERM)
                return None
            self._hosts.add(pod, life.pod_ip)
            try:
                environment = self._environment(life, spec, objects)
                words = command_line(spec, environment)
            except ContainerConfigError as error:
                self._reports.refused(*key, "CreateContainerConfigError", str(error))
                return None
            try:
                process = await self._spawn(pod, spec, command.attempt, words, environment)
            except (OSError, ValueError) as error:
                self._reports.exited(
                    *key, _START_ERROR, "StartError", f"cannot run {quoted(words[0])}: {cause_text(error)}"
                )
                return None
        self._guard("+", process.pid)
        running.set_group(process.pid)
        self._reports.started(*key)
        return process

    async def _objects(self, pod: V1Pod, spec: V1Container, running: _Running) -> ConfigObjects:
        """Return the ConfigMaps and Secrets that a container reads; like a kubelet, wait until they exist or the
        container is stopped."""
        logged = ""
        while not running.stopping:
            try:
                objects = await ConfigObjects.read(self._read, pod, spec)
                objects.check(spec)
            except (MissingObjectError, ApiError, ConnectionLost) as error:
                if str(error) != logged:
                    logged = str(error)
                    log.warning("pod %s, container %s waits: %s", pod.key, spec.name, logged)
                await asyncio.sleep(_OBJECT_PERIOD)
            else:
                return objects
        return ConfigObjects({})

    async def _spawn(
        self, pod: V1Pod, spec: V1Container, attempt: int, words: list[str], environment: dict[str, str]
    ) -> asyncio.subprocess.Process:
        folder = self._folder(pod) / spec.name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # `parents` ignores the mode, and an older agent may have created the folder.
        self._folder(pod).chmod(0o700)
        # Working directories of images are missing here unless this machine has them.
        home = Path(spec.working_dir) if spec.working_dir else folder
        if not home.is_dir():
            home = folder
        with _open_private(folder / f"{attempt}.log") as output:
            return await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                env=environment,
                cwd=home,
                start_new_session=True,
            )

    def _environment(self, life: PodLifecycle, spec: V1Container, objects: ConfigObjects) -> dict[str, str]:
        pod = life.pod
        extra = inherited(self._environ)
        extra["HOSTNAME"] = hostname(pod)
        extra[HOSTS_VARIABLE] = str(self._hosts.path(pod.metadata.namespace))
        for volume in pod.spec.volumes or ():
            if volume.empty_dir is not None or volume.config_map is not None or volume.secret is not None:
                place = self._volumes(pod) / volume.name
                place.mkdir(parents=True, exist_ok=True)
                self._folder(pod).chmod(0o700)
                objects.write(volume, place)
                extra[VOLUME_VARIABLE + re.sub(r"[^A-Z0-9]", "_", volume.name.upper())] = str(place)
        facts = PodFacts(pod, life.pod_ip, self._address(pod.node), self._allocatable(pod.node))
        return build_environment(facts, spec, extra, objects)

    def _guard(self, sign: str, group: int) -> None:
        if self._guard_process is not None and self._guard_process.stdin is not None:
            with contextlib.suppress(ConnectionError, RuntimeError):  # the guard died; it is only a safeguard
                self._guard_process.stdin.write(f"{sign}{group}\n".encode())

    def _folder(self, pod: V1Pod) -> Path:
        metadata = pod.metadata
        return self._directory / f"{metadata.namespace}_{metadata.name}_{metadata.uid}"

    def _volumes(self, pod: V1Pod) -> Path:
        return self._folder(pod) / ".volumes"


def _open_private(path: Path) -> BinaryIO:
    """Open a log file for appending; only its owner can read it, also if it existed with another mode."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.fchmod(descriptor, 0o600)
    return os.fdopen(descriptor, "ab")


def signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)

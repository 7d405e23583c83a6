"""Start and end of a gang in the cluster: its job, its Secret, its hub's pod, and the cause if it cannot run."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from phalanx.sdk.async_job import AsyncJob
from phalanx.sdk.errors import GangEndedError, InvalidArgumentError, JobNotFoundError, PhalanxError, translated
from phalanx.sdk.gang.certificates import make_keys
from phalanx.sdk.gang.objects import FUNCTIONS, GangProgram, gang_job, keys_secret
from phalanx.sdk.gang.reach import reached
from phalanx.sdk.requests import SubmitOptions, generated_name

if TYPE_CHECKING:
    from phalanx.reports.jobs.job_report import FoundJob
    from phalanx.sdk.async_cluster import AsyncCluster
    from phalanx.sdk.gang.certificates import GangKeys

_PERIOD = 0.3
_GONE_SECONDS = 60.0
# Reasons of a pod that stays without its image until a user changes something.
_IMAGE_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_LOG_LINES = 8


class GangLaunch:
    """Job of one gang. `way` is direct, port-forward, or "" for the one that fits the address of the hub."""

    def __init__(self, cluster: AsyncCluster, way: str, program: GangProgram = FUNCTIONS) -> None:
        self._program = program
        self._cluster = cluster
        self._way = way
        self._connected = False
        self.job: AsyncJob

    async def create(
        self, name: str | None, options: SubmitOptions, *, namespace: str, client_timeout: float, python: str
    ) -> GangKeys:
        """Create the job and its Secret; return the certificates. Raises the errors of `submit`."""
        from phalanx.kube.paths import Resource

        if client_timeout <= 0:
            raise InvalidArgumentError("client_timeout must be positive", field="client_timeout")
        local = await self._cluster.check_image(options)
        scope = namespace or self._cluster.namespace
        keys = make_keys(between_workers=self._program is not FUNCTIONS)
        with translated():
            document = gang_job(
                name or generated_name("gang"),
                options,
                client_timeout=client_timeout,
                python=python,
                local=local,
                namespace=scope,
                program=self._program,
            )
        self.job = await self._cluster.submit(manifest=document, namespace=scope)
        secrets = Resource("", "v1", "secrets", "Secret").path(scope)
        try:
            with translated(self.job.target):
                await self._cluster.client.create(secrets, keys_secret(self.job.name, self.job.entry.uid, keys))
        except PhalanxError:
            # Its pods would wait for the Secret forever.
            await self.job.cancel()
            raise
        return keys

    @contextlib.asynccontextmanager
    async def reach(self) -> AsyncIterator[tuple[str, int]]:
        """Wait until the hub's pod runs, and yield its host and port.

        Raises GangEndedError if it will not run, GangUnreachableError.
        """
        pod = await self._hub_pod()
        config = self._cluster.config
        async with reached(pod, self._way, self._cluster.kubeconfig, config.context, self._program.port) as place:
            yield place

    def set_connected(self) -> None:
        """Record that a hub was reached: the image and the command are good."""
        self._connected = True

    async def _hub_pod(self) -> dict[str, Any]:
        while True:
            found = await self._found()
            for entry, member in zip(found.pods, _sorted(found), strict=True):
                runs = entry.task == self._program.first and entry.phase == "Running" and not entry.terminating
                if runs and (member.get("status") or {}).get("podIP"):
                    return member
            await self._refuse_failed(found)
            await asyncio.sleep(_PERIOD)

    async def _found(self) -> FoundJob:
        from phalanx.reports.jobs.job_report import JobReader

        entry = self.job.entry
        with translated(self.job.target):
            found = await JobReader(self._cluster.client).job(entry.kind, entry.namespace, entry.name, time.time())
        if found is None or found.entry.uid != entry.uid:
            raise GangEndedError(f"the gang {self.job.target} was deleted", about=self.job.target)
        self.job.entry = found.entry
        return found

    async def _refuse_failed(self, found: FoundJob) -> None:
        """Raise GangEndedError if the gang has failed, or will not start without a change."""
        target = self.job.target
        if found.entry.over:
            log = await self._log_tail()
            raise GangEndedError(f"the gang {target} is {found.entry.state}{log}", about=target)
        for pod in found.pods:
            if pod.reason in _IMAGE_REASONS:
                raise GangEndedError(
                    f"the gang {target} cannot start: pod {pod.name}: {pod.reason}: {pod.message}",
                    about=f"pod/{pod.name}",
                    field="image",
                )
            if not self._connected and pod.task == self._program.first and pod.phase == "Failed":
                log = await self._log_tail()
                raise GangEndedError(
                    f"the gang {target} cannot start: pod {pod.name} ended with exit code {pod.exit_code}; "
                    f"its image needs phalanx-scheduler[sdk]{log}",
                    about=f"pod/{pod.name}",
                    field="image",
                )

    async def _log_tail(self) -> str:
        try:
            text = await self.job.logs(task=self._program.first, tail=_LOG_LINES, prefix=False)
        except PhalanxError:
            return ""
        return f"\n{text}" if text else ""

    async def wait_for_end(self) -> PhalanxError:
        """Poll the job while its hub is connected, and return the cause once it has ended or was deleted."""
        while True:
            await asyncio.sleep(2.0)
            try:
                found = await self._found()
            except PhalanxError as error:
                if isinstance(error, GangEndedError):
                    return error
                continue
            if found.entry.over:
                return GangEndedError(f"the gang {self.job.target} is {found.entry.state}", about=self.job.target)

    async def delete(self, *, wait: bool) -> None:
        """Delete the job, and with it its pods and its Secret; with `wait` until the pods are gone."""
        from phalanx.kube.core_resources import PODS

        with contextlib.suppress(JobNotFoundError):
            await self.job.cancel()
        deadline = time.monotonic() + _GONE_SECONDS
        while wait and time.monotonic() < deadline:
            with translated(self.job.target):
                pods = await self._cluster.client.get(
                    PODS.path(self.job.namespace), {"labelSelector": f"volcano.sh/job-name={self.job.name}"}
                )
            if not pods.get("items"):
                return
            await asyncio.sleep(_PERIOD)


def _sorted(found: FoundJob) -> list[dict[str, Any]]:
    """Return the documents of the pods in the order of the entries."""
    by_uid = {member["metadata"]["uid"]: member for member in found.members}
    return [by_uid[entry.uid] for entry in found.pods]

"""Gang of a Dask cluster: its job, the pods that are wanted, and the life of its client."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any

from phalanx.sdk.async_cluster import AsyncCluster
from phalanx.sdk.errors import GangEndedError, JobNotFoundError, PhalanxError, PythonVersionError, translated
from phalanx.sdk.gang.launch import GangLaunch
from phalanx.sdk.gang.objects import GangProgram

if TYPE_CHECKING:
    from distributed import Security

    from phalanx.dask.relay import Relay
    from phalanx.sdk.requests import SubmitOptions

SCHEDULER_TASK, WORKER_TASK = "scheduler", "worker"
PROGRAM = GangProgram("phalanx.dask.member", SCHEDULER_TASK, WORKER_TASK, 8786)
_GATHERED = 0.05
_ALIVE_PERIOD = 5.0


class DaskGang:
    """Job with a scheduler pod and worker pods. A worker is wanted or not, by its index.

    A retired worker ends by itself and its pod completes, so any index can go. A completed pod is deleted when its
    index is wanted again: the job's controller creates it anew. Unwanted pods at the end of the indices are removed
    by the number of replicas.
    """

    def __init__(
        self,
        cluster: AsyncCluster,
        name: str | None,
        options: SubmitOptions,
        *,
        namespace: str,
        client_timeout: float,
        python: str,
        way: str,
    ) -> None:
        self._cluster = cluster
        self._launch = GangLaunch(cluster, way, PROGRAM)
        self._name, self._options, self._namespace = name, options, namespace
        self._client_timeout, self._python = client_timeout, python
        self._minimum = options["minimum"] - 1
        self._wanted: set[int] = set()
        self._replicas = options["replicas"] - 1
        self._adjusting: asyncio.Task[None] | None = None
        self._living: asyncio.Task[None] | None = None
        self._relay: Relay | None = None
        self.security: Security
        self.address = ""

    @property
    def launch(self) -> GangLaunch:
        return self._launch

    async def create(self) -> None:
        """Create the job. Raises the errors of `submit`."""
        from phalanx.dask.security import client_security

        keys = await self._launch.create(
            self._name,
            self._options,
            namespace=self._namespace,
            client_timeout=self._client_timeout,
            python=self._python,
        )
        self.security = client_security(keys)

    async def connect(self) -> None:
        """Wait until the scheduler runs, and check its versions. Raises GangEndedError, PythonVersionError."""
        from phalanx.dask.relay import Relay

        self._relay = Relay(self._launch.reach)
        self.address = await self._relay.start()
        self._launch.set_connected()
        check_versions(await self._call_alive(attempts=60))
        self._living = asyncio.create_task(self._stay_alive())

    async def _call_alive(self, attempts: int = 1) -> dict[str, Any]:
        from distributed.core import connect

        from phalanx.dask.member import ALIVE

        for attempt in range(attempts):
            try:
                comm = await connect(self.address, timeout=5, **self.security.get_connection_args("client"))
                try:
                    await comm.write({"op": ALIVE, "reply": True})
                    answer: dict[str, Any] = await comm.read()
                    return answer
                finally:
                    await comm.close()
            except (TimeoutError, OSError) as error:
                assert self._relay is not None
                if self._relay.failure is not None:
                    raise self._relay.failure from error
                if attempt == attempts - 1:
                    raise GangEndedError(f"no answer from Dask's scheduler: {error}") from error
                await asyncio.sleep(0.2)
        raise AssertionError("the last attempt returns or raises")

    async def _stay_alive(self) -> None:
        while True:
            with contextlib.suppress(PhalanxError):
                await self._call_alive()
            await asyncio.sleep(min(_ALIVE_PERIOD, self._client_timeout / 4))

    # workers

    async def want(self, index: int) -> None:
        """Have the pod of an index created if it is missing."""
        self._wanted.add(index)
        await self._adjust()

    async def unwant(self, index: int) -> None:
        """Let the pod of an index end; its worker was retired, or never started."""
        self._wanted.discard(index)
        await self._adjust()

    async def _adjust(self) -> None:
        """Write the wanted pods; calls that arrive within a moment share one write."""
        if self._adjusting is None or self._adjusting.done():
            self._adjusting = asyncio.create_task(self._write_wanted())
        await asyncio.shield(self._adjusting)

    async def _write_wanted(self) -> None:
        from phalanx.kube.client import PatchType
        from phalanx.kube.core_resources import PODS
        from phalanx.reports.jobs.kinds import VOLCANO_JOBS

        await asyncio.sleep(_GATHERED)
        self._adjusting = None
        job, client = self._launch.job, self._cluster.client
        wanted = set(self._wanted)
        replicas = max([self._minimum, 1, *(index + 1 for index in wanted)])
        with translated(job.target):
            if replicas != self._replicas:
                operations = [
                    {"op": "test", "path": "/spec/tasks/1/name", "value": WORKER_TASK},
                    {"op": "add", "path": "/spec/tasks/1/replicas", "value": replicas},
                ]
                path = VOLCANO_JOBS.path(job.namespace, job.name)
                await client.patch(path, operations, PatchType.JSON)
                self._replicas = replicas
            for pod in await job.pods():
                if pod.task == WORKER_TASK and pod.index in wanted and pod.finished and not pod.terminating:
                    # It completed when its worker was retired.
                    await client.delete(PODS.path(job.namespace, pod.name), uid=pod.uid)

    async def close(self) -> None:
        """Delete the job and wait until its pods are gone."""
        for task in (self._living, self._adjusting):
            if task is not None:
                task.cancel()
        if self._relay is not None:
            await self._relay.close()
        if hasattr(self._launch, "job"):
            with contextlib.suppress(JobNotFoundError):
                await self._launch.delete(wait=True)


def check_versions(theirs: dict[str, Any]) -> None:
    """Raise PythonVersionError if Python or distributed of the scheduler differ from those of this process."""
    import distributed

    python = list(sys.version_info[:2])
    if list(theirs["python"]) != python:
        raise PythonVersionError(
            f"the gang has Python {'.'.join(map(str, theirs['python']))}, this process has "
            f"{'.'.join(map(str, python))}: choose an image with the same minor version",
            field="image",
        )
    if theirs["distributed"] != distributed.__version__:
        raise PythonVersionError(
            f"the gang has distributed {theirs['distributed']}, this process has {distributed.__version__}: choose "
            "an image with the same version",
            field="image",
        )

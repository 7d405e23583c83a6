"""Dask cluster in one gang, on distributed's SpecCluster and Adaptive."""

from __future__ import annotations

import asyncio
import math
import weakref
from typing import TYPE_CHECKING, Any, Unpack, cast

from distributed.core import Status
from distributed.deploy.spec import ProcessInterface, SpecCluster

from phalanx.dask.gang import DaskGang
from phalanx.sdk.async_cluster import AsyncCluster
from phalanx.sdk.errors import InvalidArgumentError, WaitTimeoutError
from phalanx.sdk.job import Job
from phalanx.sdk.loop import BorrowedLoop

if TYPE_CHECKING:
    from pathlib import Path

    from phalanx.sdk.requests import PodOptions, SubmitOptions

_PREFIX = "worker-"


class GangScheduler(ProcessInterface):  # type: ignore[misc]
    """Scheduler of a Dask cluster, in the first pod of its gang."""

    def __init__(self, gang: DaskGang, cluster: AsyncCluster, timeout: float | None = None) -> None:
        super().__init__()
        self._gang = gang
        self._cluster = cluster
        self._timeout = timeout

    async def start(self) -> None:
        await self._cluster.__aenter__()
        await self._gang.create()
        try:
            async with asyncio.timeout(self._timeout):
                await self._gang.connect()
        except TimeoutError as error:
            job = await self._gang.launch.job.refresh()
            raise WaitTimeoutError(
                f"Dask's scheduler does not run after {self._timeout:g} s; {job.sentence()}", about=job.target
            ) from error
        self.address = self._gang.address
        await super().start()

    async def close(self) -> None:
        if self.status is Status.closed:
            return
        try:
            await self._gang.close()
        finally:
            await self._cluster.close()
            await super().close()


class GangWorkerPod(ProcessInterface):  # type: ignore[misc]
    """Worker of a Dask cluster, in one pod of its gang."""

    _cluster: weakref.ref[PhalanxCluster]

    def __init__(self, scheduler: str, name: str, gang: DaskGang) -> None:
        super().__init__()
        self._name = name
        self._gang = gang

    async def start(self) -> None:
        await self._gang.want(int(self._name.removeprefix(_PREFIX)))
        await super().start()

    async def close(self) -> None:
        cluster = self._cluster()
        await super().close()
        # A lost worker is still in the spec: its pod starts again and returns with the same name.
        if cluster is None or cluster.status is Status.closing or self._name in cluster.worker_spec:
            return
        await cluster.scheduler_comm.retire_workers(names=[self._name], close_workers=True, remove=True)
        await self._gang.unwant(int(self._name.removeprefix(_PREFIX)))


class PhalanxCluster(SpecCluster):  # type: ignore[misc]
    """Dask cluster whose scheduler and workers are the pods of one elastic gang.

    The scheduler and `minimum` workers start together, or none; the other workers join as room comes. `threads` and
    `worker_memory` (default: `memory`) are Dask's limits of each worker; `options` are those of `Cluster.submit`
    (image, cpus, gpus, queue and others) for every pod. WaitTimeoutError is raised if the scheduler does not run
    within `timeout` seconds, which include the wait for room (default: no limit). All connections use TLS with
    certificates of this gang. The gang ends with this object, or when this process has been gone for
    `client_timeout` seconds.
    """

    # Attributes of SpecCluster.
    status: Status
    scheduler: GangScheduler | None

    def __init__(
        self,
        n_workers: int = 1,
        minimum: int | None = None,
        *,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
        name: str | None = None,
        namespace: str | None = None,
        threads: int = 1,
        worker_memory: str = "",
        timeout: float | None = None,
        client_timeout: float = 300.0,
        python: str = "",
        way: str = "",
        asynchronous: bool = False,
        loop: Any = None,
        **options: Unpack[PodOptions],
    ) -> None:
        self.minimum = n_workers if minimum is None else minimum
        if n_workers < 1 or not 0 <= self.minimum <= n_workers:
            raise InvalidArgumentError(
                f"invalid minimum {self.minimum}: must be between 0 and n_workers ({n_workers})", field="minimum"
            )
        environment = {**options.get("environment", {}), "PHALANX_DASK_THREADS": str(threads)}
        if limit := worker_memory or options.get("memory"):
            environment["PHALANX_DASK_MEMORY"] = limit
        submitted = cast(
            "SubmitOptions",
            {**options, "replicas": n_workers + 1, "minimum": self.minimum + 1, "environment": environment},
        )
        cluster = AsyncCluster(kubeconfig, context, namespace=namespace)
        self.gang = DaskGang(
            cluster,
            name,
            submitted,
            namespace=namespace or "",
            client_timeout=client_timeout,
            python=python,
            way=way,
        )
        self._connection: dict[str, Any] = {"gang": self.gang, "cluster": cluster, "timeout": timeout}
        worker = {"cls": GangWorkerPod, "options": {"gang": self.gang}}
        super().__init__(
            workers={f"{_PREFIX}{index}": worker for index in range(n_workers)},
            scheduler={"cls": GangScheduler, "options": self._connection},
            worker=worker,
            asynchronous=asynchronous,
            loop=loop,
            name=name,
        )

    @property
    def job(self) -> Any:
        """Job of the gang: its state, reason, pods and logs; an AsyncJob if this cluster is asynchronous."""
        job = self.gang.launch.job
        return job if self.asynchronous else Job(BorrowedLoop(self.loop.asyncio_loop), job)

    async def _start(self) -> None:
        if self.scheduler is None and self.status is Status.created:
            scheduler = GangScheduler(**self._connection)
            try:
                await scheduler
            except BaseException:
                await scheduler.close()
                self.status = Status.closed
                raise
            # The certificates are made with the job.
            self.scheduler, self.security = scheduler, self.gang.security
        await super()._start()

    async def _correct_state_internal(self) -> None:
        if self.status is not Status.closing:
            await super()._correct_state_internal()
            return
        # The gang is deleted as a whole, so no worker is retired: the scheduler can be gone.
        async with self._lock:
            self._correct_state_waiting = None
            await asyncio.gather(*(worker.close() for worker in self.workers.values()))
            self.workers.clear()

    async def _close(self) -> None:
        try:
            await super()._close()
        except BaseException:
            # A second call must not wait for the end of this one.
            self.status = Status.closed
            raise
        finally:
            if self.scheduler is not None:
                await self.scheduler.close()

    def _new_worker_name(self, worker_number: int) -> str:
        return f"{_PREFIX}{worker_number}"

    def new_worker_spec(self) -> dict[str, Any]:
        """Return name and spec of the lowest free index, so that completed pods are used again."""
        index = next(
            number for number in range(len(self.worker_spec) + 1) if f"{_PREFIX}{number}" not in self.worker_spec
        )
        return {f"{_PREFIX}{index}": self.new_spec}

    def scale(self, n: int = 0, memory: str | None = None, cores: int | None = None) -> Any:
        """Set the number of workers. Raises InvalidArgumentError below the minimum of the gang."""
        if (
            n < self.minimum
            and memory is None
            and cores is None
            and self.status not in (Status.closing, Status.closed)
        ):
            raise InvalidArgumentError(f"invalid n {n}: the minimum of this gang is {self.minimum}", field="n")
        return super().scale(n, memory, cores)

    def adapt(self, *args: Any, minimum: float | None = None, maximum: float = math.inf, **kwargs: Any) -> Any:
        """Scale between `minimum` (default: that of the gang) and `maximum` workers by the load."""
        least = self.minimum if minimum is None else minimum
        if least < self.minimum:
            raise InvalidArgumentError(
                f"invalid minimum {least}: the minimum of this gang is {self.minimum}", field="minimum"
            )
        return super().adapt(*args, minimum=least, maximum=maximum, **kwargs)

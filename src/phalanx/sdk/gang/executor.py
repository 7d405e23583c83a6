"""Executor whose workers are the pods of one gang."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

from phalanx.sdk.cluster import Cluster, connect
from phalanx.sdk.errors import GangEndedError, InvalidArgumentError, PhalanxError, WaitTimeoutError
from phalanx.sdk.gang.calls import CallPickler
from phalanx.sdk.gang.certificates import client_context
from phalanx.sdk.gang.client import GangClient, PickledCall, pickle_call
from phalanx.sdk.gang.launch import GangLaunch
from phalanx.sdk.job import Job

if TYPE_CHECKING:
    from phalanx.sdk.requests import PodOptions, SubmitOptions

T = TypeVar("T")

_STOP_SECONDS = 5.0


class GangExecutor(concurrent.futures.Executor):
    """Executor that calls functions in the pods of one gang.

    At least `minimum` of the `replicas` workers start together, or none; the others join as room comes. A function
    and its arguments are sent by cloudpickle. A task whose worker is lost runs again, at most `retries` times: it
    runs at least once, so it should be harmless to repeat. A task that runs longer than `task_timeout` seconds
    fails, and its process is ended.

    `options` are those of `Cluster.submit` (image, gpus, queue and others). `modules` are sent with the functions
    instead of being imported by the workers. The gang ends with the executor, or when this process has been gone
    for `client_timeout` seconds. `way` is direct or port-forward; by default the one that fits.
    """

    def __init__(
        self,
        replicas: int = 1,
        minimum: int | None = None,
        *,
        cluster: Cluster | None = None,
        name: str | None = None,
        namespace: str | None = None,
        retries: int = 2,
        task_timeout: float | None = None,
        client_timeout: float = 300.0,
        python: str = "",
        way: str = "",
        modules: Sequence[ModuleType] = (),
        **options: Unpack[PodOptions],
    ) -> None:
        _require_cloudpickle()
        if retries < 0:
            raise InvalidArgumentError(f"invalid retries {retries}: must be at least 0", field="retries")
        if task_timeout is not None and task_timeout <= 0:
            raise InvalidArgumentError("task_timeout must be positive", field="task_timeout")
        if way not in ("", "direct", "port-forward"):
            raise InvalidArgumentError(f"unknown way {way!r}; expected direct or port-forward", field="way")
        for module in modules:
            _send_by_value(module)
        submitted = cast("SubmitOptions", {**options, "replicas": replicas})
        if minimum is not None:
            submitted["minimum"] = minimum
        self._own_cluster = cluster is None
        self._cluster = cluster or connect()
        self._loop = self._cluster._loop
        self._launch = GangLaunch(self._cluster._cluster, way)
        self._pickler = CallPickler()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._incoming: list[PickledCall] = []
        self._shut = False
        try:
            keys = self._loop.run(
                self._launch.create(
                    name, submitted, namespace=namespace or "", client_timeout=client_timeout, python=python
                )
            )
        except BaseException:
            if self._own_cluster:
                self._cluster.close()
            raise
        self._client = GangClient(
            client_context(keys),
            self._launch.reach,
            retries=retries,
            timeout=task_timeout or 0.0,
            welcomed=self._launch.set_connected,
        )
        self._running = self._loop.spawn(self._run())
        atexit.register(_shut_down, weakref.ref(self))

    @property
    def job(self) -> Job:
        """Job of the gang: its state, reason, start and logs."""
        return Job(self._loop, self._launch.job)

    @property
    def workers(self) -> int:
        """Number of connected workers."""
        return len(self._client.workers)

    @property
    def addresses(self) -> list[str]:
        """Addresses of the pods of the connected workers, in the order of their ranks."""
        return [address for _, address in sorted(self._client.workers.items())]

    @property
    def hub_facts(self) -> dict[str, Any]:
        """Facts of the hub: the version of Python, and a port of rank 0 without a listener."""
        return self._client.facts

    def start(self, timeout: float | None = None, workers: int = 1) -> GangExecutor:
        """Wait until `workers` workers are connected, and return the executor.

        Raises WaitTimeoutError, or the error that ended the gang. Tasks can be submitted before.
        """
        self._loop.run(self._wait_for_workers(workers, timeout))
        return self

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[T]:
        """Send a call to a worker. Raises UnpicklableError if it cannot be sent, GangEndedError after the end."""
        return self._submit(fn, args, kwargs, -1)

    def submit_to(self, rank: int, fn: Callable[..., T], /, *args: Any) -> concurrent.futures.Future[T]:
        """Send a call to the worker of a rank."""
        return self._submit(fn, args, {}, rank)

    def _submit(
        self, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any], rank: int
    ) -> concurrent.futures.Future[T]:
        self._refuse_shut()
        task = pickle_call(self._pickler, next(self._numbers), fn, args, kwargs, rank)
        with self._lock:
            try:
                self._refuse_shut()
            except GangEndedError:
                task.payload.close()
                raise
            # One wake-up of the loop serves all tasks that were submitted before it runs.
            first = not self._incoming
            self._incoming.append(task)
        if first:
            self._loop.loop.call_soon_threadsafe(self._add_incoming)
        return task.future

    def _refuse_shut(self) -> None:
        if self._shut:
            raise GangEndedError("the executor was shut down")

    def _add_incoming(self) -> None:
        with self._lock:
            tasks, self._incoming = self._incoming, []
        for task in tasks:
            self._client.add(task)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the gang: after its tasks, or at once with `cancel_futures` or without `wait`.

        Its job, its pods and its Secret are deleted. A second call has no effect.
        """
        with self._lock:
            if self._shut:
                return
            self._shut = True
        atexit.unregister(_shut_down)
        try:
            self._loop.run(self._stop(wait=wait, cancel=cancel_futures or not wait))
        finally:
            if self._own_cluster:
                self._cluster.close()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        # After an exception nobody waits for the results.
        self.shutdown(wait=True, cancel_futures=kind is not None)

    async def _run(self) -> None:
        connected = asyncio.create_task(self._client.run())
        watched = asyncio.create_task(self._launch.wait_for_end())
        try:
            await asyncio.wait([connected, watched], return_when=asyncio.FIRST_COMPLETED)
            if watched.done():
                self._client.end(watched.result())
            elif connected.exception() is not None:
                self._client.end(GangEndedError(f"the client failed: {connected.exception()!r}"))
        finally:
            connected.cancel()
            watched.cancel()

    async def _wait_for_workers(self, workers: int, timeout: float | None) -> None:  # noqa: ASYNC109
        client = self._client
        try:
            async with asyncio.timeout(timeout):
                while len(client.workers) < workers:
                    if client.ended is not None:
                        raise client.ended
                    client.changed.clear()
                    await client.changed.wait()
        except TimeoutError as error:
            job = await self._launch.job.refresh()
            raise WaitTimeoutError(
                f"{len(client.workers)} of {workers} workers are connected after {timeout:g} s; {job.sentence()}",
                about=job.target,
            ) from error

    async def _stop(self, *, wait: bool, cancel: bool) -> None:
        self._add_incoming()
        client = self._client
        if cancel:
            client.cancel_pending()
        while wait and not cancel and client.unfinished:
            client.changed.clear()
            await client.changed.wait()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await client.stop()
        except (OSError, TimeoutError):
            pass  # the deletion of the job ends the hub too
        client.end(GangEndedError("the executor was shut down"))
        self._running.cancel()
        await self._launch.delete(wait=wait)


def _require_cloudpickle() -> None:
    try:
        import cloudpickle  # noqa: F401 - its absence is reported before a job is created
    except ImportError as error:
        raise PhalanxError("GangExecutor needs the extra sdk: pip install 'phalanx-scheduler[sdk]'") from error


def _send_by_value(module: ModuleType) -> None:
    import cloudpickle

    if not isinstance(module, ModuleType):
        raise InvalidArgumentError(
            f"invalid module {module!r}: must be an imported module, not its name", field="modules"
        )
    cloudpickle.register_pickle_by_value(module)


def _shut_down(reference: weakref.ref[GangExecutor]) -> None:
    """End the gang of an executor that was not shut down when the interpreter ends."""
    executor = reference()
    if executor is not None:
        executor.shutdown(wait=False, cancel_futures=True)

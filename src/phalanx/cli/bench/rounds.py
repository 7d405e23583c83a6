"""Rounds of a benchmark: pods bound by the scheduler, and the same bindings posted by a client without a
scheduler."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import msgspec

from phalanx.cli.bench.objects import BARE, BenchWorkload, Groups, clear, each_of, make_gangs, make_nodes, node_name
from phalanx.cli.bench.silence import report_silence
from phalanx.cli.bench.stopwatch import Stopwatch
from phalanx.kube.client import KubeClient, Params
from phalanx.kube.core_resources import PODS

#: Timeout in seconds without a new binding.
PATIENCE = 120.0


class Figures(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of one benchmark round.

    The rates are per second, from the first to the last pod. The quantiles are waiting times from creation to
    binding (None, and omitted, if not measured).
    """

    pods: int
    bindings_per_second: float
    seconds: float
    created_per_second: float
    p50_milliseconds: float | None = None
    p90_milliseconds: float | None = None
    p99_milliseconds: float | None = None
    max_milliseconds: float | None = None


class Measurement(msgspec.Struct, frozen=True):
    """Result of a benchmark; `ratio` is the scheduler's rate divided by the rate of a client that only posts
    bindings."""

    mode: str
    nodes: int
    gang: int
    groups: str
    scheduler: Figures
    bare: Figures
    ratio: float


async def backlog(
    client: KubeClient, workload: BenchWorkload, nodes: int, concurrency: int, progress: Callable[[int], None]
) -> Figures:
    """Measure the scheduler with all pods waiting before the nodes are created."""
    async with Stopwatch(client, workload.namespace, progress) as watch:
        await make_gangs(client, workload, concurrency, watch.made)
        await make_nodes(client, workload.namespace, nodes, concurrency)
        await _all_bound(client, workload, watch)
    return figures(watch, waits=False)


async def live(
    client: KubeClient, workload: BenchWorkload, concurrency: int, progress: Callable[[int], None]
) -> Figures:
    """Measure the scheduler with existing nodes and pods created as fast as possible."""
    async with Stopwatch(client, workload.namespace, progress) as watch:
        await make_gangs(client, workload, concurrency, watch.made)
        await _all_bound(client, workload, watch)
    return figures(watch, waits=True)


async def _all_bound(client: KubeClient, workload: BenchWorkload, watch: Stopwatch) -> None:
    silence_report = asyncio.create_task(report_silence(client, workload, watch))
    try:
        await watch.all_bound(workload.pods, PATIENCE)
    finally:
        silence_report.cancel()


async def bare_backlog(
    client: KubeClient,
    like: BenchWorkload,
    nodes: int,
    concurrency: int,
    kubeconfig: str | None,
    progress: Callable[[int], None],
) -> Figures:
    """Create the same number of pods without groups, then bind them from a process that only posts bindings."""
    workload = msgspec.structs.replace(like, scheduler=BARE, groups=Groups.NONE)
    async with Stopwatch(client, workload.namespace, progress) as watch:
        await make_gangs(client, workload, concurrency, watch.made)
        async with _posting(workload, nodes, concurrency, kubeconfig):
            await watch.all_bound(workload.pods, PATIENCE)
    await clear(client, workload)
    return figures(watch, waits=False)


async def bare_live(
    client: KubeClient,
    like: BenchWorkload,
    nodes: int,
    concurrency: int,
    kubeconfig: str | None,
    progress: Callable[[int], None],
) -> Figures:
    """Create the same gangs as fast as possible, while a process binds each pod as soon as it sees it.

    No scheduler can exceed this rate.
    """
    # Other names than before: without their controller, native groups are never finally deleted.
    workload = msgspec.structs.replace(like, scheduler=BARE, prefix="bare")
    async with (
        Stopwatch(client, workload.namespace, progress) as watch,
        _posting(workload, nodes, concurrency, kubeconfig, "--live"),
    ):
        await make_gangs(client, workload, concurrency, watch.made)
        await watch.all_bound(workload.pods, PATIENCE)
    await clear(client, workload)
    return figures(watch, waits=True)


@contextlib.asynccontextmanager
async def _posting(
    workload: BenchWorkload, nodes: int, concurrency: int, kubeconfig: str | None, *more: str
) -> AsyncGenerator[None]:
    """Run a child process that posts bindings during the block; it has started on entry and ends by itself."""
    arguments = ["bench", "post", "--namespace", workload.namespace, "--nodes", str(nodes), *more]
    arguments += ["--concurrency", str(concurrency), "--pods", str(workload.pods)]
    arguments += ["--kubeconfig", kubeconfig] if kubeconfig else []
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "phalanx.cli", *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    try:
        await child.stdout.readline()
        yield
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        raise
    finally:
        await child.wait()


async def post(client: KubeClient, namespace: str, nodes: int, pods: int, concurrency: int, live: bool) -> None:
    """Bind pods of a namespace directly, spread over the nodes: existing pods, with `live` also new ones.

    Prints a line when it starts.
    """
    listed = await client.list_all(PODS.path(namespace))
    unbound = asyncio.Queue[dict[str, Any]]()
    for item in listed["items"]:
        unbound.put_nowait(item["metadata"])

    async def bind(number: int) -> None:
        metadata = await unbound.get()
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": metadata["name"], "namespace": namespace, "uid": metadata["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node_name(namespace, number % nodes)},
        }
        path = PODS.path(namespace, metadata["name"], "binding")
        await client.request("POST", path, body=msgspec.json.encode(body))

    print("begun", flush=True)
    async with asyncio.TaskGroup() as tasks:
        version = listed["metadata"]["resourceVersion"]
        watch = tasks.create_task(_follow(client, namespace, version, unbound)) if live else None
        await each_of(range(pods), bind, concurrency)
        if watch is not None:
            watch.cancel()


async def _follow(client: KubeClient, namespace: str, version: str, waiting: asyncio.Queue[dict[str, Any]]) -> None:
    """Put the metadata of each new pod into the queue."""
    params: Params = {"watch": True, "resourceVersion": version}
    stream = client.stream(PODS.path(namespace), params, read_timeout=PATIENCE)
    async with contextlib.aclosing(stream):
        async for line in stream:
            event = msgspec.json.decode(line)
            if event["type"] == "ADDED":
                waiting.put_nowait(event["object"]["metadata"])


def figures(watch: Stopwatch, *, waits: bool) -> Figures:
    """Return the result of a benchmark round; with `waits` also the waiting times (pods created while others are
    bound)."""
    bound = sorted(watch.bound_at.values())
    seconds, created = max(bound[-1] - bound[0], 1e-6), _rate(sorted(watch.made_at.values()))
    if not waits:
        return Figures(len(bound), _rate(bound), seconds, created)
    waiting_times = sorted(1e3 * (when - watch.made_at[name]) for name, when in watch.bound_at.items())
    quantiles = (_quantile(waiting_times, part) for part in (0.5, 0.9, 0.99, 1.0))
    return Figures(len(bound), _rate(bound), seconds, created, *quantiles)


def _rate(moments: Sequence[float]) -> float:
    """Return the events per second, from the first to the last moment."""
    return (len(moments) - 1) / max(moments[-1] - moments[0], 1e-6) if len(moments) > 1 else 0.0


def _quantile(ordered: Sequence[float], part: float) -> float:
    """Return the quantile `part` of sorted values, at least 0: a binding can be seen before the create response."""
    return max(0.0, ordered[min(len(ordered) - 1, int(part * len(ordered)))])

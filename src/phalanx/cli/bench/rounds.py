"""The rounds of a measurement: pods that a scheduler binds, and the same bindings posted by hand."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import msgspec

from phalanx.cli.bench.objects import BARE, BenchWorkload, Groups, clear, each_of, make_gangs, make_nodes, node_name
from phalanx.cli.bench.silence import tell_of_silence
from phalanx.cli.bench.stopwatch import Stopwatch
from phalanx.kube.client import KubeClient, Params
from phalanx.kube.core_resources import PODS

#: So many seconds without a further binding end a round.
PATIENCE = 120.0


class Figures(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of one round: bindings per second from the first to the last, how long that took, how many pods were created
    per second, and in milliseconds how long they waited from their creation to their binding (None, and left out,
    where that was not measured)."""

    pods: int
    bindings_per_second: float
    seconds: float
    created_per_second: float
    p50_milliseconds: float | None = None
    p90_milliseconds: float | None = None
    p99_milliseconds: float | None = None
    max_milliseconds: float | None = None


class Measurement(msgspec.Struct, frozen=True):
    """What was measured; `ratio` is the scheduler's part of what the server lets anybody bind in this mode."""

    mode: str
    nodes: int
    gang: int
    groups: str
    scheduler: Figures
    bare: Figures
    ratio: float


async def backlog(
    client: KubeClient, workload: BenchWorkload, nodes: int, concurrency: int, told: Callable[[int], None]
) -> Figures:
    """All pods wait already when the nodes come."""
    async with Stopwatch(client, workload.namespace, told) as watch:
        await make_gangs(client, workload, concurrency, watch.made)
        await make_nodes(client, workload.namespace, nodes, concurrency)
        await _all_bound(client, workload, watch)
    return figures(watch, waits=False)


async def live(
    client: KubeClient, workload: BenchWorkload, concurrency: int, told: Callable[[int], None]
) -> Figures:
    """The nodes are there, and pods come as fast as they can be created."""
    async with Stopwatch(client, workload.namespace, told) as watch:
        await make_gangs(client, workload, concurrency, watch.made)
        await _all_bound(client, workload, watch)
    return figures(watch, waits=True)


async def _all_bound(client: KubeClient, workload: BenchWorkload, watch: Stopwatch) -> None:
    telling = asyncio.create_task(tell_of_silence(client, workload, watch))
    try:
        await watch.all_bound(workload.pods, PATIENCE)
    finally:
        telling.cancel()


async def bare_backlog(
    client: KubeClient,
    like: BenchWorkload,
    nodes: int,
    concurrency: int,
    kubeconfig: str | None,
    told: Callable[[int], None],
) -> Figures:
    """As many pods without groups, created while nobody else does anything, and then bound by a process that does
    nothing but post bindings, so many at once."""
    workload = msgspec.structs.replace(like, scheduler=BARE, groups=Groups.NONE)
    async with Stopwatch(client, workload.namespace, told) as watch:
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
    told: Callable[[int], None],
) -> Figures:
    """The same gangs, created as fast as they can be, while a process watches them and binds each pod as soon as it
    sees it, wherever its turn is: what no scheduler can exceed."""
    # (Other names: Kubernetes' own groups stay until a controller that may not be there lets them go.)
    workload = msgspec.structs.replace(like, scheduler=BARE, prefix="bare")
    async with (
        Stopwatch(client, workload.namespace, told) as watch,
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
    """While it is entered a process of its own posts bindings; it has begun by then, and ends by itself."""
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
    """Binds so many pods of a namespace, one after the other over the nodes: those that are there, or with `live`
    those that come. Prints a line when it begins."""
    listed = await client.list_all(PODS.path(namespace))
    waiting = asyncio.Queue[dict[str, Any]]()
    for item in listed["items"]:
        waiting.put_nowait(item["metadata"])

    async def bind(number: int) -> None:
        metadata = await waiting.get()
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
        coming = tasks.create_task(_follow(client, namespace, version, waiting)) if live else None
        await each_of(range(pods), bind, concurrency)
        if coming is not None:
            coming.cancel()


async def _follow(client: KubeClient, namespace: str, version: str, waiting: asyncio.Queue[dict[str, Any]]) -> None:
    """Puts the metadata of each pod that comes into a queue."""
    params: Params = {"watch": True, "resourceVersion": version}
    stream = client.stream(PODS.path(namespace), params, read_timeout=PATIENCE)
    async with contextlib.aclosing(stream):
        async for line in stream:
            event = msgspec.json.decode(line)
            if event["type"] == "ADDED":
                waiting.put_nowait(event["object"]["metadata"])


def figures(watch: Stopwatch, *, waits: bool) -> Figures:
    """What a watch has seen; `waits`: pods came while others were bound, so that how long each waited matters."""
    bound = sorted(watch.bound_at.values())
    seconds, created = max(bound[-1] - bound[0], 1e-6), _rate(sorted(watch.made_at.values()))
    if not waits:
        return Figures(len(bound), _rate(bound), seconds, created)
    waited = sorted(1e3 * (when - watch.made_at[name]) for name, when in watch.bound_at.items())
    quantiles = (_quantile(waited, part) for part in (0.5, 0.9, 0.99, 1.0))
    return Figures(len(bound), _rate(bound), seconds, created, *quantiles)


def _rate(moments: Sequence[float]) -> float:
    """How many a second, from the first to the last."""
    return (len(moments) - 1) / max(moments[-1] - moments[0], 1e-6) if len(moments) > 1 else 0.0


def _quantile(ordered: Sequence[float], part: float) -> float:
    """What so large a part of the values does not exceed, at least 0: a pod may be seen bound before the answer to
    its creation has come."""
    return max(0.0, ordered[min(len(ordered) - 1, int(part * len(ordered)))])

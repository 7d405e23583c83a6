"""The rounds of a measurement: pods that a scheduler binds, and the same bindings posted by hand."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence

import msgspec

from phalanx.cli.bench.objects import BARE, Groups, Workload, clear, each_of, make_gangs, make_nodes, node_name
from phalanx.cli.bench.stopwatch import Stopwatch
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import PODS

#: So many seconds without a further binding end a round.
PATIENCE = 120.0


class Figures(msgspec.Struct, frozen=True):
    """Of one round: bindings per second from the first to the last, how long that took, how many pods were created
    per second, and in milliseconds how long they waited from their creation to their binding (0 where that was not
    measured)."""

    pods: int
    bindings_per_second: float
    seconds: float
    created_per_second: float
    p50_milliseconds: float = 0.0
    p90_milliseconds: float = 0.0
    p99_milliseconds: float = 0.0
    max_milliseconds: float = 0.0


class Answer(msgspec.Struct, frozen=True):
    """What was measured; `ratio` is the scheduler's part of what the server lets anybody bind."""

    mode: str
    nodes: int
    gang: int
    groups: str
    scheduler: Figures
    bare: Figures
    ratio: float


async def backlog(
    client: KubeClient, workload: Workload, nodes: int, concurrency: int, told: Callable[[int], None]
) -> Figures:
    """All pods wait already when the nodes come."""
    async with Stopwatch(client, workload.namespace, told) as watch:
        await make_gangs(client, workload, concurrency, watch.made)
        await make_nodes(client, workload.namespace, nodes, concurrency)
        await watch.all_bound(workload.pods, PATIENCE)
    return figures(watch, waits=False)


async def live(client: KubeClient, workload: Workload, concurrency: int, told: Callable[[int], None]) -> Figures:
    """The nodes are there, and pods come as fast as they can be created."""
    async with Stopwatch(client, workload.namespace, told) as watch:
        await make_gangs(client, workload, concurrency, watch.made)
        await watch.all_bound(workload.pods, PATIENCE)
    return figures(watch, waits=True)


async def bare(
    client: KubeClient,
    like: Workload,
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
        arguments = ["bench", "post", "--namespace", workload.namespace, "--nodes", str(nodes)]
        arguments += ["--concurrency", str(concurrency), *(["--kubeconfig", kubeconfig] if kubeconfig else [])]
        child = await asyncio.create_subprocess_exec(sys.executable, "-m", "phalanx.cli", *arguments)
        try:
            await watch.all_bound(workload.pods, PATIENCE)
        finally:
            if child.returncode is None:
                await child.wait()
    await clear(client, workload)
    return figures(watch, waits=False)


async def post(client: KubeClient, namespace: str, nodes: int, concurrency: int) -> None:
    """Binds all pods of a namespace, one after the other over the nodes."""
    listed = (await client.list_all(PODS.path(namespace)))["items"]

    async def bind(number: int) -> None:
        metadata = listed[number]["metadata"]
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": metadata["name"], "namespace": namespace, "uid": metadata["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node_name(namespace, number % nodes)},
        }
        path = PODS.path(namespace, metadata["name"], "binding")
        await client.request("POST", path, body=msgspec.json.encode(body))

    await each_of(range(len(listed)), bind, concurrency)


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

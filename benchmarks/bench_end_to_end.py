"""Bindings per second through an API server: `phalanx scheduler` beside a bare client that posts the same bindings.

Gangs of four over 100 nodes. The API server is ours in a process of its own, or the one that
PHALANX_E2E_KUBECONFIG names. Both sides use the same client library at the same concurrency, and both are timed by
the same watch: from the first binding that the API server tells to the last.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from benchmarks.figures import record
from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from phalanx.kube.paths import Resource

PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODE_COUNT = 100
GANG = 4
CONCURRENCY = 64


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Metadata(msgspec.Struct):
    name: str
    uid: str


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec


class _Event(msgspec.Struct):
    object: _Pod


async def measure(kubeconfig: str, pods: int) -> tuple[float, float]:
    """(bindings/s of the scheduler, bindings/s of the bare client)."""
    async with KubeClient(load_config(kubeconfig)) as client:
        await _make_nodes(client)
        # Each twice, in turns, and the better one counts: the first round also warms the server up.
        planned = bare = 0.0
        for turn in range(2):
            bare = max(
                bare,
                await _round(
                    client,
                    f"bench-bare-{turn}",
                    pods,
                    lambda namespace=f"bench-bare-{turn}": _bare_client(kubeconfig, namespace),
                ),
            )
            planned = max(
                planned, await _round(client, f"bench-scheduler-{turn}", pods, lambda: _scheduler(kubeconfig))
            )
        await _clean(client)
    return planned, bare


async def _round(client: KubeClient, namespace: str, pods: int, actor) -> float:  # type: ignore[no-untyped-def]
    await client.create(
        NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    )
    scheduler = "phalanx" if "scheduler" in namespace else "nobody"
    await _make_pods(client, namespace, pods, scheduler)
    watching = asyncio.create_task(_time_bindings(client, namespace, pods))
    await asyncio.sleep(0.5)
    async with actor():
        seconds = await watching
    await client.request("DELETE", PODS.path(namespace), params={"gracePeriodSeconds": 0}, timeout=120)
    return pods / seconds


async def _time_bindings(client: KubeClient, namespace: str, pods: int) -> float:
    """Seconds between the first and the last pod that is seen with a node."""
    decoder = msgspec.json.Decoder(_Event)
    version = (await client.get(PODS.path(namespace), {"limit": 1}))["metadata"]["resourceVersion"]
    bound: set[str] = set()
    first = 0.0
    params = {"watch": True, "resourceVersion": version}
    stream = client.stream_batches(PODS.path(namespace), params, read_timeout=120)
    async with contextlib.aclosing(stream):
        async for lines in stream:
            for line in lines:
                pod = decoder.decode(line).object
                if pod.spec.node_name and pod.metadata.uid not in bound:
                    first = first or time.perf_counter()
                    bound.add(pod.metadata.uid)
            if len(bound) >= pods:
                break
    return time.perf_counter() - first


async def _post_all(client: KubeClient, namespace: str, uids: dict[str, str]) -> None:
    waiting = list(uids.items())

    async def work() -> None:
        while waiting:
            name, uid = waiting.pop()
            node = f"bench-{len(waiting) % NODE_COUNT:03}"
            body = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": name, "namespace": namespace, "uid": uid},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            }
            await client.request("POST", PODS.path(namespace, name, "binding"), body=msgspec.json.encode(body))

    await asyncio.gather(*(work() for _ in range(CONCURRENCY)))


async def _make_nodes(client: KubeClient) -> None:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    ready = [{"type": "Ready", "status": "True", "reason": "Benchmark"}]
    for number in range(NODE_COUNT):
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"bench-{number:03}"},
            "status": {"allocatable": amounts, "capacity": amounts, "conditions": ready},
        }
        await client.create(NODES.path(), node)
        # A real API server taints every new node; nobody here is a node controller that would take it away.
        await client.request(
            "PATCH",
            NODES.path(name=f"bench-{number:03}"),
            body=b'{"spec":{"taints":null}}',
            content_type="application/merge-patch+json",
        )


async def _make_pods(client: KubeClient, namespace: str, pods: int, scheduler: str) -> None:
    waiting = list(range(pods))
    prefix = "pod-group.scheduling.sigs.k8s.io"

    async def work() -> None:
        while waiting:
            number = waiting.pop()
            labels = {f"{prefix}/name": f"gang-{number // GANG}", f"{prefix}/min-available": str(GANG)}
            spec = {
                "schedulerName": scheduler,
                "containers": [
                    {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
                ],
            }
            name = f"pod-{number:05}"
            await client.create(
                PODS.path(namespace),
                {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec},
            )

    await asyncio.gather(*(work() for _ in range(16)))


async def _clean(client: KubeClient) -> None:
    for number in range(NODE_COUNT):
        await client.delete(NODES.path(name=f"bench-{number:03}"))


@contextlib.asynccontextmanager
async def _scheduler(kubeconfig: str) -> AsyncIterator[None]:
    async with _child("scheduler", "--kubeconfig", kubeconfig, "--log-level", "warning"):
        yield


@contextlib.asynccontextmanager
async def _bare_client(kubeconfig: str, namespace: str) -> AsyncIterator[None]:
    """A process of its own, like the scheduler's: it knows the pods, and posts a binding for each."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.bench_end_to_end", "--post", namespace, "--kubeconfig", kubeconfig
    )
    try:
        yield
    finally:
        await child.wait()


async def post(kubeconfig: str, namespace: str) -> None:
    async with KubeClient(load_config(kubeconfig), max_connections=CONCURRENCY) as client:
        listed = await client.list_all(PODS.path(namespace))
        uids = {item["metadata"]["name"]: item["metadata"]["uid"] for item in listed["items"]}
        await _post_all(client, namespace, uids)


@contextlib.asynccontextmanager
async def _child(*arguments: str) -> AsyncIterator[None]:
    """A phalanx command that is ready inside."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "phalanx.cli", *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    try:
        if not await child.stdout.readline():
            raise RuntimeError(f"phalanx {arguments[0]} did not start")
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        await child.wait()


async def run(pods: int) -> None:
    print(f"{'API server':12} {'pods':>6} {'scheduler/s':>12} {'bare/s':>8} {'ratio':>6}")
    kubeconfig = os.environ.get("PHALANX_E2E_KUBECONFIG", "")
    if kubeconfig:
        planned, bare = await measure(kubeconfig, pods)
        name = "given"
    else:
        with tempfile.TemporaryDirectory() as directory:
            kubeconfig = str(Path(directory) / "kubeconfig")
            async with _child("apiserver", "--kubeconfig-out", kubeconfig):
                planned, bare = await measure(kubeconfig, pods)
        name = "embedded"
    record(__file__, f"bindings, {pods} pods, backlog, API server {name}", planned, "pods/s", bare=bare)
    print(f"{name:12} {pods:6} {planned:12.0f} {bare:8.0f} {planned / bare:6.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--post", metavar="NAMESPACE", help=argparse.SUPPRESS)
    parser.add_argument("--kubeconfig", help=argparse.SUPPRESS)
    parser.add_argument("--pods", type=int, default=4000, help="a multiple of four, at most 6400")
    options = parser.parse_args()
    asyncio.run(post(options.kubeconfig, options.post) if options.post else run(options.pods))


if __name__ == "__main__":
    main()

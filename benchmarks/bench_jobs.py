"""Jobs per second, created and bound: `phalanx controllers` beside a client that posts the same pods itself.

Both go through the embedded API server with the same scheduler; both are timed from the first post to the last pod
that is bound. `--finished N` puts N jobs that have ended into the API and measures what controllers cost that have
nothing to do, and how much memory a job takes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.bench_end_to_end import NAMESPACES, NODES, PODS, _make_nodes, _time_bindings
from benchmarks.figures import record
from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.paths import Resource

JOBS = Resource("batch.volcano.sh", "v1alpha1", "jobs", "Job")
PROMISE = 0.8
_CONCURRENCY = 32
_CONTAINERS = [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]


class _Child:
    """A phalanx command that is ready."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.pid = process.pid

    def cpu(self) -> float:
        """Seconds of CPU so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def megabytes(self) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        raise AssertionError("no VmRSS")


@contextlib.asynccontextmanager
async def _child(*arguments: str) -> AsyncIterator[_Child]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "phalanx.cli", *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        if not await process.stdout.readline():
            raise RuntimeError(f"phalanx {arguments[0]} did not start")
        yield _Child(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _each(count: int, post: Callable[[int], Awaitable[Any]]) -> None:
    waiting = list(range(count))

    async def work() -> None:
        while waiting:
            await post(waiting.pop())

    await asyncio.gather(*(work() for _ in range(_CONCURRENCY)))


def _job(name: str, size: int, phase: str = "") -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", "containers": _CONTAINERS}}
    body: dict[str, Any] = {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "phalanx",
            "minAvailable": size,
            "queue": "default",
            "tasks": [{"name": "w", "replicas": size, "template": template}],
        },
    }
    if phase:
        state = {"phase": phase, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        body["status"] = {"state": state, "succeeded": size}
    return body


def _pod(number: int, size: int) -> dict[str, Any]:
    prefix = "pod-group.scheduling.sigs.k8s.io"
    labels = {f"{prefix}/name": f"gang-{number // size}", f"{prefix}/min-available": str(size)}
    spec = {"schedulerName": "phalanx", "restartPolicy": "Never", "containers": _CONTAINERS}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number:05}", "labels": labels},
        "spec": spec,
    }


async def _round(client: KubeClient, namespace: str, pods: int, post: Callable[[], Awaitable[None]]) -> float:
    """Seconds from the first post to the last binding."""
    await client.create(
        NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    )
    watching = asyncio.create_task(_time_bindings(client, namespace, pods))
    await asyncio.sleep(0.3)
    begun = time.perf_counter()
    await post()
    await watching
    seconds = time.perf_counter() - begun
    await client.request("DELETE", JOBS.path(namespace), timeout=300)
    await client.request("DELETE", PODS.path(namespace), params={"gracePeriodSeconds": 0}, timeout=300)
    await asyncio.sleep(3)
    return seconds


async def throughput(kubeconfig: str, jobs: int, size: int) -> float:
    """Prints the line; the share of the bare client's speed."""
    async with KubeClient(load_config(kubeconfig)) as client:
        await _make_nodes(client)
        async with (
            _child("scheduler", "--kubeconfig", kubeconfig, "--log-level", "warning"),
            _child("controllers", "--kubeconfig", kubeconfig, "--log-level", "warning") as controllers,
        ):
            best: dict[str, float] = {"jobs": 0.0, "pods": 0.0}
            cpu = 0.0
            for turn in range(2):
                for what in best:
                    namespace = f"bench-{what}-{turn}"

                    async def post(what: str = what, namespace: str = namespace) -> None:
                        if what == "jobs":
                            path = JOBS.path(namespace)
                            await _each(jobs, lambda number: client.create(path, _job(f"job-{number:04}", size)))
                        else:
                            path = PODS.path(namespace)
                            await _each(jobs * size, lambda number: client.create(path, _pod(number, size)))

                    before = controllers.cpu()
                    seconds = await _round(client, namespace, jobs * size, post)
                    if what == "jobs":
                        cpu = controllers.cpu() - before
                    best[what] = max(best[what], jobs / seconds)
        for number in range(100):
            await client.delete(NODES.path(name=f"bench-{number:03}"))
    share = best["jobs"] / best["pods"]
    print(f"{jobs} jobs of {size}: {best['jobs']:.1f} jobs/s, bare client {best['pods']:.1f}, {share:.2f} of it;")
    record(__file__, f"jobs of {size} pods", best["jobs"], "jobs/s", bare=best["pods"])
    record(__file__, "CPU of the controllers per job", 1e3 * cpu / jobs, "ms")
    print(f"  controllers: {cpu:.1f} s of CPU, {1e3 * cpu / jobs:.1f} ms a job")
    return share


async def idle(kubeconfig: str, finished: int) -> None:
    """What controllers cost that watch jobs that have ended."""
    async with KubeClient(load_config(kubeconfig)) as client:
        async with _child("controllers", "--kubeconfig", kubeconfig) as controllers:
            empty = controllers.megabytes()
        path = JOBS.path("default")

        async def post(number: int) -> None:
            body = _job(f"old-{number:05}", 10, "Completed")
            await client.create(path, body)
            await client.patch(f"{path}/old-{number:05}/status", {"status": body["status"]}, PatchType.MERGE)

        await _each(finished, post)
        async with _child("controllers", "--kubeconfig", kubeconfig) as controllers:
            await asyncio.sleep(15)
            before, seconds = controllers.cpu(), 20.0
            full = controllers.megabytes()
            await asyncio.sleep(seconds)
            spent = controllers.cpu() - before
    print(f"{finished} finished jobs: {100 * spent / seconds:.2f} % CPU at rest;")
    record(__file__, f"CPU at rest with {finished} finished jobs", 100 * spent / seconds, "%", promised=1.0)
    record(__file__, "memory per finished job", 1024 * (full - empty) / finished, "kB")
    print(f"  {full:.0f} MB, {1024 * (full - empty) / finished:.1f} kB a job")


async def run(jobs: int, size: int, finished: int) -> int:
    with tempfile.TemporaryDirectory() as directory:
        kubeconfig = str(Path(directory) / "kubeconfig")
        async with _child("apiserver", "--kubeconfig-out", kubeconfig):
            install = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "phalanx.cli", "install", "--kubeconfig", kubeconfig),
                stdout=asyncio.subprocess.DEVNULL,
            )
            await install.wait()
            share = await throughput(kubeconfig, jobs, size) if jobs else 1.0
            if finished:
                await idle(kubeconfig, finished)
    return 0 if share >= PROMISE else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--size", type=int, default=10, help="pods of a job")
    parser.add_argument("--finished", type=int, default=0, help="jobs that have ended, for the second measurement")
    options = parser.parse_args()
    return asyncio.run(run(options.jobs, options.size, options.finished))


if __name__ == "__main__":
    sys.exit(main())

"""CPU time of `phalanx scheduler`: of its start, and for each bound pod until the last status is written.

The embedded API server, the scheduler and this client are processes of their own. With `--against CHECKOUT` the
scheduler of another checkout runs in turns with this one, and the table shows the ratio of the two: on a shared
machine only such ratios count.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks.figures import record
from phalanx.cli.bench.objects import BenchWorkload, Groups, make_gangs, make_namespace, make_nodes, native_version
from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import PODS

ROOT = Path(__file__).parent.parent
NAMESPACE = "bench"
NODE_COUNT = 100
GANG = 4
#: Phases of a PodGroup whose pods are all bound and not started: Volcano's, then scheduler-plugins'.
_BOUND = frozenset({"Running", "Scheduled"})
#: Seconds between two reads of the CPU time; a process at rest uses less than `_REST` between them.
_PERIOD = 1.0
_REST = 0.03
_CONCURRENCY = 16


class Measured(NamedTuple):
    """CPU seconds of a scheduler process, and the promised share of the other checkout's."""

    what: str
    unit: str
    promised: float | None
    measure: Callable[[str, int, Groups], Awaitable[float]]


async def backlog(checkout: str, pods: int, groups: Groups) -> float:
    """Return the CPU microseconds per pod if all pods exist before the scheduler starts."""
    async with _cluster(pods, groups) as (client, kubeconfig, workload):
        await make_gangs(client, workload, _CONCURRENCY)
        async with _scheduler(checkout, kubeconfig) as scheduler:
            return 1e6 * await _until_published(client, workload, scheduler.pid) / pods


async def live(checkout: str, pods: int, groups: Groups) -> float:
    """Return the CPU microseconds per pod if the pods are created while the scheduler runs."""
    async with (
        _cluster(pods, groups) as (client, kubeconfig, workload),
        _scheduler(checkout, kubeconfig) as scheduler,
    ):
        assert scheduler.stdout is not None
        await scheduler.stdout.readline()
        await make_gangs(client, workload, _CONCURRENCY)
        return 1e6 * await _until_published(client, workload, scheduler.pid) / pods


async def start(checkout: str, pods: int, groups: Groups) -> float:
    """Return the CPU milliseconds from the start of the process to its first list."""
    listed: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    async with _server("--insecure") as kubeconfig:
        config = load_config(kubeconfig)
        port = int(config.server.rpartition(":")[2])

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                first = await reader.readuntil(b"\r\n")
            except asyncio.IncompleteReadError:
                writer.close()
                return
            if first.split()[1].split(b"?")[0] in (b"/api/v1/nodes", b"/api/v1/pods") and not listed.done():
                listed.set_result(cpu_seconds(scheduler.pid))
            upstream, to_upstream = await asyncio.open_connection("127.0.0.1", port)
            to_upstream.write(first)
            with contextlib.suppress(ConnectionError):
                await asyncio.gather(_copy(reader, to_upstream), _copy(upstream, writer))

        async with await asyncio.start_server(relay, "127.0.0.1", 0) as proxy:
            ours = proxy.sockets[0].getsockname()[1]
            _replace_port(Path(kubeconfig), port, ours)
            async with _scheduler(checkout, kubeconfig) as scheduler:
                return 1e3 * await listed


async def ready(checkout: str, pods: int, groups: Groups) -> float:
    """Return the CPU milliseconds from the start of the process until it is ready, in an empty cluster."""
    async with _server() as kubeconfig, _scheduler(checkout, kubeconfig) as scheduler:
        assert scheduler.stdout is not None
        await scheduler.stdout.readline()
        return 1e3 * cpu_seconds(scheduler.pid)


def _replace_port(kubeconfig: Path, port: int, other: int) -> None:
    kubeconfig.write_text(kubeconfig.read_text("utf-8").replace(f":{port}", f":{other}"), "utf-8")


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


ALL = (
    Measured("start to the first list", "ms", 0.4, start),
    Measured("start until ready", "ms", None, ready),
    Measured("backlog", "µs/pod", 0.5, backlog),
    Measured("live", "µs/pod", 0.5, live),
)


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.asynccontextmanager
async def _cluster(pods: int, groups: Groups) -> AsyncIterator[tuple[KubeClient, str, BenchWorkload]]:
    async with _server() as kubeconfig, KubeClient(load_config(kubeconfig)) as client:
        async with _phalanx(str(ROOT), "install", "--crds-only", "--kubeconfig", kubeconfig) as installation:
            await installation.communicate()
        version = await native_version(client) if groups is Groups.NATIVE else ""
        workload = BenchWorkload(NAMESPACE, pods // GANG, GANG, "phalanx", groups, version)
        await make_namespace(client, NAMESPACE)
        await make_nodes(client, NAMESPACE, -(-pods // 64) if pods > 6400 else NODE_COUNT, _CONCURRENCY)
        yield client, kubeconfig, workload


async def _until_published(client: KubeClient, workload: BenchWorkload, pid: int) -> float:
    """Return the CPU seconds of the scheduler once all pods are bound, all groups have their status, and it is at
    rest."""
    await _until_all(client, PODS.path(NAMESPACE), workload.pods, _is_bound)
    group = workload.group(0)
    if group is not None and workload.groups is not Groups.NATIVE:
        await _until_all(client, group[0].path(NAMESPACE), workload.gangs, _is_published)
    used = cpu_seconds(pid)
    while True:
        await asyncio.sleep(_PERIOD)
        before, used = used, cpu_seconds(pid)
        if used - before < _REST:
            return used


def _is_bound(pod: dict[str, Any]) -> bool:
    return bool(pod["spec"].get("nodeName"))


def _is_published(group: dict[str, Any]) -> bool:
    return (group.get("status") or {}).get("phase") in _BOUND


async def _until_all(client: KubeClient, path: str, count: int, done: Callable[[dict[str, Any]], bool]) -> None:
    listed = await client.list_all(path)
    names = {item["metadata"]["name"] for item in listed["items"] if done(item)}
    params = {"watch": True, "resourceVersion": listed["metadata"]["resourceVersion"]}
    async with contextlib.aclosing(client.stream(path, params, read_timeout=300)) as lines:
        while len(names) < count:
            document = msgspec.json.decode(await anext(lines))["object"]
            if done(document):
                names.add(document["metadata"]["name"])


@contextlib.asynccontextmanager
async def _server(*arguments: str) -> AsyncIterator[str]:
    with tempfile.TemporaryDirectory() as directory:
        kubeconfig = str(Path(directory) / "kubeconfig")
        async with _phalanx(str(ROOT), "apiserver", "--kubeconfig-out", kubeconfig, *arguments) as server:
            assert server.stdout is not None
            if not await server.stdout.readline():
                raise RuntimeError("phalanx apiserver did not start")
            yield kubeconfig


def _scheduler(
    checkout: str, kubeconfig: str
) -> contextlib.AbstractAsyncContextManager[asyncio.subprocess.Process]:
    return _phalanx(checkout, "scheduler", "--kubeconfig", kubeconfig, "--log-level", "warning")


@contextlib.asynccontextmanager
async def _phalanx(checkout: str, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a command of a checkout until the end of the block, with bytecode."""
    folders = (f"{checkout}/src", f"{checkout}/packages/local/src", os.environ.get("PYTHONPATH", ""))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "phalanx.cli",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        env=environment,
    )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        await child.communicate()


async def run(chosen: Collection[Measured], against: str, pods: int, rounds: int, groups: Groups) -> None:
    print(f"{'what':26} {'this':>16} {'other':>16} {'ratio':>6} {'promised':>9}")
    for measured in chosen:
        ours: list[float] = []
        others: list[float] = []
        for _ in range(rounds):
            ours.append(await measured.measure(str(ROOT), pods, groups))
            if against:
                others.append(await measured.measure(against, pods, groups))
        ours_median = statistics.median(ours)
        what = f"{measured.what}, {pods} pods" if measured.unit != "ms" else measured.what
        record(__file__, f"CPU, {what}", ours_median, measured.unit)
        line = f"{what:26} {ours_median:9.1f} {measured.unit:6}"
        if others:
            ratio = ours_median / statistics.median(others)
            record(__file__, f"CPU, {what}, share of the other", ratio, "", promised=measured.promised)
            promise = f"{measured.promised:9.2f}" if measured.promised is not None else ""
            line += f" {statistics.median(others):9.1f} {measured.unit:6} {ratio:6.2f} {promise}"
        print(line, " ".join(f"{value:.0f}" for value in ours), "|", *(f"{value:.0f}" for value in others))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=8000, help="a multiple of four")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--groups", type=Groups, default=Groups.VOLCANO, choices=list(Groups))
    parser.add_argument("--against", default="", metavar="CHECKOUT", help="another version of the scheduler")
    names = [measured.measure.__name__ for measured in ALL]
    parser.add_argument("--only", choices=names, action="append", help="repeatable; default: all")
    options = parser.parse_args()
    chosen = [measured for measured in ALL if measured.measure.__name__ in (options.only or names)]
    against = str(Path(options.against).resolve()) if options.against else ""
    asyncio.run(run(chosen, against, options.pods, options.rounds, options.groups))


if __name__ == "__main__":
    main()

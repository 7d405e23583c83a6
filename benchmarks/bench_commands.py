"""CPU of commands on a large cluster whose page's server answers, and of the same commands with own rights.

An embedded API server and `phalanx dashboard --login token` run as processes of their own. The nodes are full with
running gangs, and some gangs wait. Each command runs as a process; its CPU time is that of the second run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.bench_viewers import child, ready
from benchmarks.figures import record
from phalanx.kube.auth.config import SERVER_EXTENSION, load_config, with_extension
from phalanx.kube.client import KubeClient

NAMESPACES, MEMBERS, PER_NODE = 20, 10, 100
#: Limit of a command's CPU in seconds where the server answers.
PROMISED = 0.5
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("jobs", "-n", "team-0", "--server"),
    ("jobs", "-n", "team-0", "-t", "PD", "--server"),
    ("queue", "list"),
    ("queue", "tree"),
    ("order",),
    ("why", "podgroup/gang-0", "-n", "team-0"),
    ("nodes",),
    ("jobs", "--start", "-n", "team-0"),
)
#: Commands that also run with own rights, for comparison.
OWN: tuple[tuple[str, ...], ...] = (
    ("jobs", "-n", "team-0"),
    ("queue", "list"),
    ("why", "podgroup/gang-0", "-n", "team-0"),
)


async def seed(client: KubeClient, pods: int, waiting: int) -> None:
    """Create full nodes with gangs of MEMBERS running pods in `NAMESPACES` namespaces, and `waiting` gangs."""
    for number in range(NAMESPACES):
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"team-{number}"}}
        await client.create("/api/v1/namespaces", document)
    nodes = pods // PER_NODE
    await _many(client, [("/api/v1/nodes", _node(number)) for number in range(nodes)])
    objects: list[tuple[str, dict[str, Any]]] = []
    for gang in range(pods // MEMBERS):
        running = gang >= waiting
        namespace = f"team-{gang % NAMESPACES}"
        for member in range(MEMBERS):
            node = f"node-{(gang * MEMBERS + member) % nodes:05}" if running else ""
            objects.append((f"/api/v1/namespaces/{namespace}/pods", _pod(gang, member, node)))
    await _many(client, objects)


def _node(number: int) -> dict[str, Any]:
    amounts = {"cpu": str(PER_NODE), "memory": "1Ti", "pods": "250"}
    condition = {"type": "Ready", "status": "True"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [condition]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{number:05}"}, "status": status}


def _pod(gang: int, member: int, node: str) -> dict[str, Any]:
    prefix = "pod-group.scheduling.sigs.k8s.io"
    labels = {f"{prefix}/name": f"gang-{gang}", f"{prefix}/min-available": str(MEMBERS)}
    # Waiting pods are larger than any free room.
    requests = {"cpu": "1" if node else str(PER_NODE), "memory": "1Gi"}
    container = {"name": "c", "image": "x", "resources": {"requests": requests}}
    placed = {"nodeName": node} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"gang-{gang}-{member}", "labels": labels},
        "spec": {"schedulerName": "phalanx", "containers": [container], **placed},
        "status": {"phase": "Running" if node else "Pending"},
    }


async def _many(client: KubeClient, objects: list[tuple[str, dict[str, Any]]]) -> None:
    waiting = objects[::-1]

    async def worker() -> None:
        while waiting:
            await client.create(*waiting.pop())

    await asyncio.gather(*(worker() for _ in range(32)))


def _name_server(kubeconfig: Path, named: Path, url: str) -> None:
    config = with_extension(json.loads(kubeconfig.read_bytes()), SERVER_EXTENSION, {"url": url})
    named.write_text(json.dumps(config))


def cpu_of(words: tuple[str, ...], environment: dict[str, str]) -> float:
    """Return the CPU seconds of the second run of a command."""
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run = subprocess.run(
            [sys.executable, "-m", "phalanx.cli", *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if run.returncode:
            raise RuntimeError(f"phalanx {' '.join(words)}: {run.stderr}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


async def run(pods: int, waiting: int) -> bool:
    kept = True
    with tempfile.TemporaryDirectory() as directory:
        kubeconfig, named = str(Path(directory) / "kubeconfig"), Path(directory) / "named"
        async with (
            child(directory, "apiserver", "--kubeconfig-out", kubeconfig),
            KubeClient(load_config(kubeconfig)) as client,
        ):
            await seed(client, pods, waiting)
            quiet = ("--kubeconfig", kubeconfig, "--log-level", "warning")
            async with (
                child(directory, "dashboard", "--login", "token", *quiet) as (_, line),
                aiohttp.ClientSession() as session,
            ):
                url = line.rpartition(" ")[2]
                await ready(session, url)
                _name_server(Path(kubeconfig), named, url)
                environment = {key: text for key, text in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
                environment["PYTHONPYCACHEPREFIX"] = str(Path(directory) / "bytecode")
                for words in COMMANDS:
                    asked = (*words, url) if words[-1] == "--server" else words
                    seconds = await asyncio.to_thread(cpu_of, asked, {**environment, "KUBECONFIG": str(named)})
                    kept = kept and seconds <= PROMISED
                    _show(f"{' '.join(words)}, {pods:,} pods", seconds, PROMISED)
                for words in OWN:
                    seconds = await asyncio.to_thread(cpu_of, words, {**environment, "KUBECONFIG": kubeconfig})
                    _show(f"{' '.join(words)}, {pods:,} pods, own rights", seconds, None)
    return kept


def _show(what: str, seconds: float, promised: float | None) -> None:
    record(__file__, what, seconds, "s CPU", promised=promised)
    limit = f" ({'kept' if seconds <= promised else 'MISSED'}: {promised} s)" if promised is not None else ""
    print(f"{what:70} {seconds:6.2f} s of CPU{limit}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--waiting", type=int, default=200, help="waiting gangs of ten pods")
    chosen = parser.parse_args()
    sys.exit(0 if asyncio.run(run(**vars(chosen))) else 1)


if __name__ == "__main__":
    main()

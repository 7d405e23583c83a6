"""Memory of the scheduler in a full cluster while gangs are created, bound, run, end and are deleted.

By default 1,000 nodes and 20,000 running pods, and then 500,000 events of further pods, five of each: created,
bound, running, succeeded, deleted. The API server is the embedded one, in a process of its own, and changes objects
without HTTP. Run with ``python -m benchmarks.bench_churn``.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.bench_restart import GROUP, group, pod, serve_filled
from benchmarks.figures import record
from phalanx.cluster.pods.records import PodRecord
from phalanx.daemon.garbage_collection import until_ready
from phalanx.daemon.service import SchedulerOptions, SchedulerService
from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from phalanx.model.pod import PodPhase

_EVENTS_OF_A_POD = 5
_GANG = 2
# Pods of a round: they end before those of the next round are created.
_AT_ONCE = 2_000


def serve(pipe: Connection, nodes: int, pods: int, kubeconfig: str) -> None:
    """Run the API server's process; it applies the received changes of gangs (word, first gang, end)."""
    asyncio.run(serve_filled(pipe, nodes, pods, _GANG, kubeconfig, _apply))


def _apply(server: Any, change: tuple[str, int, int]) -> None:
    word, first, end = change
    pods = server.api.collection(server.registry.find("", "pods"))
    groups = server.api.collection(server.registry.find(GROUP, "podgroups"))
    store = server.store
    for gang in range(first, end):
        new = [pod(gang, member, "") for member in range(_GANG)]
        if word == "create":
            store.put(groups, group(gang, _GANG), None)
            for obj in new:
                store.put(pods, obj, None)
            continue
        for obj in new:
            stored = pods.records[obj["metadata"]["namespace"], obj["metadata"]["name"]]
            if word == "delete":
                store.remove(pods, stored)
                continue
            document = stored.load()
            document["status"]["phase"] = word
            store.put(pods, document, stored)
        if word == "delete":
            document = group(gang, _GANG)["metadata"]
            store.remove(groups, groups.records[document["namespace"], document["name"]])


async def measure(kubeconfig: str, pipe: Connection, first: int, events: int) -> list[tuple[int, int, int]]:
    """Return (events so far, memory blocks, resident megabytes) after each round."""
    found = []
    async with KubeClient(load_config(kubeconfig)) as client:
        service = SchedulerService(client, SchedulerOptions())
        running = asyncio.create_task(service.run())
        await until_ready(service.ready)
        pods, gangs = service.state.pods, _AT_ONCE // _GANG
        settled = len(pods)

        async def change(word: str, begin: int, until: Callable[[], bool]) -> None:
            pipe.send((word, begin, begin + gangs))
            while not until():  # noqa: ASYNC110 - the state has no event to await
                await asyncio.sleep(0.05)

        for begin in range(first, first + events // _EVENTS_OF_A_POD // _GANG, gangs):
            members = [(gang, member) for gang in range(begin, begin + gangs) for member in range(_GANG)]
            uids = [pod(gang, member, "")["metadata"]["uid"] for gang, member in members]
            await change("create", begin, partial(_are_bound, pods, uids))
            for phase in PodPhase.RUNNING, PodPhase.SUCCEEDED:
                await change(phase.value, begin, partial(_are_in, pods, uids, phase))
            await change("delete", begin, lambda: len(pods) == settled)
            await asyncio.sleep(1.0)
            gc.unfreeze()
            gc.collect()
            done = (begin - first + gangs) * _GANG * _EVENTS_OF_A_POD
            found.append((done, sys.getallocatedblocks(), _resident()))
            print(f"{found[-1][0]:8} events, {found[-1][1]:9} blocks, {found[-1][2]:5} MB", flush=True)
        service.stop()
        await running
    return found


def _are_bound(pods: Mapping[str, PodRecord], uids: Sequence[str]) -> bool:
    return all(uid in pods and pods[uid].pod.node for uid in uids)


def _are_in(pods: Mapping[str, PodRecord], uids: Sequence[str], phase: PodPhase) -> bool:
    return all(pods[uid].pod.phase is phase for uid in uids)


def _resident() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--events", type=int, default=500_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = str(Path(folder) / "kubeconfig")
        ours, theirs = multiprocessing.Pipe()
        arguments = (theirs, options.nodes, options.pods, kubeconfig)
        server = multiprocessing.get_context("spawn").Process(target=serve, args=arguments, daemon=True)
        server.start()
        theirs.close()
        ours.recv()
        found = asyncio.run(measure(kubeconfig, ours, options.pods // _GANG + 1, options.events))
        ours.close()
        server.join(10)
    # Caches of 10,000 gangs fill and are cleared, so the peaks of both halves are compared.
    half = len(found) // 2
    early, late = max(blocks for _, blocks, _ in found[:half]), max(blocks for _, blocks, _ in found[half:])
    growth = 100 * (late / early - 1)
    print(f"second half: {growth:+.1f} % blocks at most; {found[-1][2]} MB at the end")
    of = f"{options.nodes} nodes, {options.pods} pods, {options.events} events"
    record(__file__, f"growth of memory blocks, {of}", growth, "%")
    record(__file__, f"memory at the end, {of}", found[-1][2], "MB")


if __name__ == "__main__":
    main()

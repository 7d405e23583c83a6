"""What people who look at the page cost: 200 viewers of `phalanx dashboard` over a cluster that changes.

An embedded API server, a scheduler and the dashboard run as processes of their own. Each viewer is an HTTP client
with a token of its own: it lists the tables of a view, follows their stream, and moves to another view at times, as
the page does. Half of them see all namespaces, the others their own. CPU is what the processes were charged with
while gangs come and go: before anybody looks, with the viewers, and after they have left.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.figures import record
from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError

NODES, NAMESPACES, MEMBERS = 100, 10, 2
# Of a busy page: most look at gangs, some at one of them.
VIEWS = (
    ("summary", "gangs"),
    ("summary", "gangs"),
    ("summary", "queues"),
    ("summary", "nodes"),
    ("summary", "evictions"),
    ("gangs", "summary"),
)
ONE_GANG = ("gangs", "summary")
SHARE = 20.0
_DELTA = re.compile(rb'id: ([0-9a-f]+)-(\d+)\ndata: \{"table":"(\w+)"')


def charged(pid: int) -> float:
    """Seconds of CPU of a process, with those of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(fields[index]) for index in (11, 12, 13, 14)) / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextlib.asynccontextmanager
async def child(directory: str, *arguments: str) -> AsyncIterator[tuple[int, str]]:
    """Run a `phalanx` command as a process; yield its pid and its first line."""
    with (Path(directory) / f"{arguments[0]}.log").open("wb") as log:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "phalanx.cli", *arguments), stdout=asyncio.subprocess.PIPE, stderr=log
        )
        assert child.stdout is not None
        try:
            line = (await child.stdout.readline()).decode().strip()
            if not line:
                raise RuntimeError(f"phalanx {arguments[0]} did not start")
            yield child.pid, line
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
            await child.wait()


class Cluster:
    """Gangs that come and go in some namespaces."""

    def __init__(self, client: KubeClient, gangs: int) -> None:
        self._client = client
        self._gangs = gangs
        self.changed = 0

    async def seed(self) -> None:
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        for number in range(NODES):
            metadata = {"name": f"node-{number:03}", "labels": {"topology.kubernetes.io/rack": f"r{number % 8}"}}
            status = {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [{"type": "Ready", "status": "True"}],
            }
            node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}
            await self._client.create("/api/v1/nodes", node)
        for number in range(NAMESPACES):
            await self._make("/api/v1/namespaces", "v1", "Namespace", {"name": f"team-{number}"})
        await self._many(range(self._gangs), self.make_gang)

    async def churn(self, rate: float) -> None:
        """Delete and create `rate` gangs per second, until cancelled."""
        chosen = random.Random(7)
        while True:
            begun = time.monotonic()
            numbers = chosen.sample(range(self._gangs), max(1, int(rate)))
            await self._many(numbers, self._again)
            self.changed += len(numbers)
            await asyncio.sleep(max(0.0, 1.0 - (time.monotonic() - begun)))

    async def make_gang(self, number: int) -> None:
        prefix, namespace = "pod-group.scheduling.sigs.k8s.io", f"team-{number % NAMESPACES}"
        labels = {f"{prefix}/name": f"gang-{number}", f"{prefix}/min-available": str(MEMBERS)}
        # A third of them waits: the cluster is full.
        requests = {"cpu": "2", "memory": "1Gi"}
        spec = {
            "schedulerName": "phalanx",
            "containers": [{"name": "c", "image": "x", "resources": {"requests": requests}}],
        }
        for member in range(MEMBERS):
            metadata = {"name": f"gang-{number}-{member}", "labels": labels}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            await self._client.create(f"/api/v1/namespaces/{namespace}/pods", pod)

    async def _again(self, number: int) -> None:
        for member in range(MEMBERS):
            path = f"/api/v1/namespaces/team-{number % NAMESPACES}/pods/gang-{number}-{member}"
            with contextlib.suppress(ApiError):
                await self._client.delete(path, grace_seconds=0)
        await self.make_gang(number)

    async def viewer(self, number: int) -> str:
        """Return the token of a new viewer with rights in all namespaces, or in one."""
        namespace, name = f"team-{number % NAMESPACES}", f"viewer-{number}"
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        if number < NAMESPACES:
            rules = [
                {"apiGroups": [""], "resources": ["pods", "events", "nodes"], "verbs": ["get", "list"]},
                {"apiGroups": ["scheduling.volcano.sh"], "resources": ["queues"], "verbs": ["get", "list"]},
            ]
            role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": rules}
            with contextlib.suppress(ApiError):
                await self._client.create(f"{rbac}/clusterroles", {**role, "metadata": {"name": "looks"}})
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        await self._make(accounts, "v1", "ServiceAccount", {"name": name})
        everything = number % 2 == 0
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding" if everything else "RoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looks"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }
        where = "clusterrolebindings" if everything else f"namespaces/{namespace}/rolebindings"
        await self._client.create(f"{rbac}/{where}", binding)
        issued = await self._client.create(f"{accounts}/{name}/token", {"spec": {"expirationSeconds": 36_000}})
        token: str = issued["status"]["token"]
        return token

    async def _make(self, path: str, version: str, kind: str, metadata: dict[str, Any]) -> None:
        await self._client.create(path, {"apiVersion": version, "kind": kind, "metadata": metadata})

    async def _many(self, numbers: Any, work: Any) -> None:
        waiting = list(numbers)

        async def worker() -> None:
            while waiting:
                await work(waiting.pop())

        await asyncio.gather(*(worker() for _ in range(16)))


class Viewer:
    """One tab: it keeps the versions that it has seen, as the page does."""

    def __init__(self, url: str, token: str, number: int, period: float, counts: Counter[str]) -> None:
        self._url, self._counts = f"{url}/api/v1/", counts
        self._headers = {"Authorization": f"Bearer {token}"}
        self._random = random.Random(number)
        self._period = period
        self._versions: dict[str, int] = {}
        self._epoch = ""
        self._gang = ""

    async def run(self, session: aiohttp.ClientSession, connected: asyncio.Semaphore) -> None:
        first = True
        while True:
            view = self._random.choice(VIEWS)
            for table in view:
                if table not in self._versions:
                    found = json.loads(await self._ask(session, f"tables/{table}"))
                    self._versions[table], self._epoch = found["version"], found["epoch"]
                    if table == "gangs" and found["rows"]:
                        self._gang = self._random.choice(found["rows"])["id"]
            asked = ",".join(f"{table}:{self._versions[table]}" for table in view)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._period * self._random.uniform(0.5, 1.5)):
                    path = f"{self._url}stream?tables={asked}&epoch={self._epoch}"
                    async with session.get(path, headers=self._headers) as answer:
                        if answer.status != 200:
                            self._counts[f"answer {answer.status}"] += 1
                            await asyncio.sleep(1)
                            continue
                        if first:
                            first = False
                            connected.release()
                        async for part in answer.content.iter_any():
                            self._counts["bytes"] += len(part)
                            for _, version, table in _DELTA.findall(part):
                                self._versions[table.decode()] = int(version)
                                self._counts["deltas"] += 1
                                if view == ONE_GANG and table == b"summary" and self._gang:
                                    await self._ask(session, f"gangs/{self._gang}", known=(200, 404))
            self._counts["moves"] += 1

    async def _ask(self, session: aiohttp.ClientSession, path: str, known: tuple[int, ...] = (200,)) -> bytes:
        while True:
            async with session.get(self._url + path, headers=self._headers) as answer:
                body = await answer.read()
                self._counts["requests"] += 1
                if answer.status in known:
                    return body
                self._counts[f"answer {answer.status}"] += 1
            await asyncio.sleep(self._random.uniform(0.5, 2.0))


async def _measured(pids: dict[str, list[int]], seconds: float, cluster: Cluster, title: str) -> dict[str, float]:
    """Percent of a core of each."""
    before = {name: sum(map(charged, each)) for name, each in pids.items()}
    begun, changed = time.monotonic(), cluster.changed
    await asyncio.sleep(seconds)
    took = time.monotonic() - begun
    found = {name: 100 * (sum(map(charged, each)) - before[name]) / took for name, each in pids.items()}
    shares = "".join(f"{share:11.1f}%" for share in found.values())
    print(f"{title:22} {(cluster.changed - changed) / took:10.1f}{shares}", flush=True)
    return found


async def run(viewers: int, gangs: int, rate: float, seconds: float, period: float) -> bool:
    with tempfile.TemporaryDirectory() as directory:
        kubeconfig = str(Path(directory) / "kubeconfig")
        quiet = ("--kubeconfig", kubeconfig, "--log-level", "warning")
        async with (
            child(directory, "apiserver", "--kubeconfig-out", kubeconfig) as (server, _),
            KubeClient(load_config(kubeconfig)) as client,
        ):
            cluster = Cluster(client, gangs)
            await cluster.seed()
            tokens = [await cluster.viewer(number) for number in range(viewers)]
            async with (
                child(directory, "scheduler", *quiet) as (scheduler, _),
                child(directory, "dashboard", "--login", "token", *quiet) as (page, line),
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
            ):
                url = line.rpartition(" ")[2]
                await ready(session, url)
                pids = {
                    "page": [page],
                    "rehearsals": children(page),
                    "scheduler": [scheduler],
                    "apiserver": [server],
                }
                churning = asyncio.create_task(cluster.churn(rate))
                await asyncio.sleep(seconds / 2)
                print(f"{'':22} {'gangs/s':>10}{''.join(f'{name:>12}' for name in pids)}")
                alone = await _measured(pids, seconds, cluster, "nobody looks")
                counts: Counter[str] = Counter()
                connected = asyncio.Semaphore(0)
                tabs = [Viewer(url, token, number, period, counts) for number, token in enumerate(tokens)]
                looking = [asyncio.create_task(tab.run(session, connected)) for tab in tabs]
                for _ in looking:
                    await connected.acquire()
                counts.clear()
                watched = await _measured(pids, seconds, cluster, f"{viewers} viewers")
                print({name: round(count / seconds, 1) for name, count in sorted(counts.items())}, "a second")
                failed = await _ended(looking)
                left = await _measured(pids, seconds, cluster, "nobody looks any more")
                failed += await _ended([churning])
                if failed:
                    print(f"{len(failed)} ended early: {failed[0]!r}")
    # The cluster changes meanwhile: the cost without viewers is between the measurements before and after.
    costs = {name: watched[name] - (alone[name] + left[name]) / 2 for name in pids}
    print("viewers cost:", ", ".join(f"{name} {cost:+.1f} %" for name, cost in costs.items()))
    cost = costs["page"]
    kept = cost < SHARE and not failed
    record(__file__, f"{viewers} viewers of the page", cost, "% CPU", promised=SHARE)
    print(f"{viewers} viewers cost the page {cost:.1f} % of a core ({'kept' if kept else 'MISSED'}: {SHARE:.0f} %)")
    return kept


async def _ended(tasks: list[asyncio.Task[None]]) -> list[BaseException | None]:
    """Ends them; what those failed of that had ended before."""
    for task in tasks:
        task.cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    return [each for each in found if not isinstance(each, asyncio.CancelledError)]


async def ready(session: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(300):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"{url}/readyz") as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--viewers", type=int, default=200)
    parser.add_argument("--gangs", type=int, default=4000, help="of two pods each")
    parser.add_argument("--rate", type=float, default=20, help="gangs that are made anew in a second")
    parser.add_argument("--seconds", type=float, default=30, help="of each measurement")
    parser.add_argument("--period", type=float, default=30, help="seconds between two moves of a viewer")
    chosen = parser.parse_args()
    sys.exit(0 if asyncio.run(run(**vars(chosen))) else 1)


if __name__ == "__main__":
    main()

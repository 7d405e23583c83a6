"""Evictions of whole gangs and of surplus members, as Volcano's suite of gang evictions judges them (facts, August
2026): Volcano Jobs in queues with deserved amounts, on nodes of one CPU or on two domains of two nodes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from phalanx.kube.client import PatchType
from phalanx.kube.paths import Resource
from tests.e2e.clock import passing
from tests.e2e.job_cluster import job_cluster
from tests.e2e.world import PODS, Object, World

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

POLICY = """
actions: "enqueue, allocate, gangreclaim, gangpreempt, backfill"
tiers:
- plugins:
  - name: priority
  - {name: gang, enablePreemptable: false}
  - name: conformance
  - name: sla
  - {name: capacity, enableHierarchy: false}
- plugins:
  - name: overcommit
  - {name: drf, enablePreemptable: false}
  - name: predicates
  - name: nodeorder
  - name: binpack
  - name: network-topology-aware
"""
QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
PRIORITIES = {"high": 100, "medium": 50, "low": 10}
DOMAINS = ({"n0", "n1"}, {"n2", "n3"})
# Seconds in which a job that must not start had its turn, and in which evictions have ended.
_TURN = 15


@dataclass(frozen=True)
class Job:
    """Volcano Job of `pods` with one CPU each; `roles` are (name, replicas, minimum) of several tasks."""

    name: str
    queue: str = "q"
    priority: str = "low"
    pods: int = 2
    least: int = 2
    cpu: int = 1
    tier: int = 0
    roles: tuple[tuple[str, int, int], ...] = ()
    partitions: tuple[int, int, int] = ()  # type: ignore[assignment]

    def document(self, unique: str) -> Object:
        container = {"name": "c", "image": "nginx", "resources": {"requests": {"cpu": str(self.cpu)}}}
        labels = {} if self.priority == "high" else {"volcano.sh/preemptable": "true"}
        template = {"metadata": {"labels": labels}, "spec": {"schedulerName": "phalanx", "containers": [container]}}
        tasks: list[Object] = [{"name": "w", "replicas": self.pods, "template": template}]
        if self.roles:
            tasks = [
                {"name": name, "replicas": replicas, "minAvailable": least, "template": template}
                for name, replicas, least in self.roles
            ]
        if self.partitions:
            total, size, least = self.partitions
            tasks[0]["partitionPolicy"] = {"totalPartitions": total, "partitionSize": size, "minPartitions": least}
        spec: Object = {
            "schedulerName": "phalanx",
            "queue": f"{unique}-{self.queue}",
            "priorityClassName": f"{unique}-{self.priority}",
            "minAvailable": self.least,
            "tasks": tasks,
        }
        if self.tier:
            spec["networkTopology"] = {"mode": "hard", "highestTierAllowed": self.tier}
        return {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"name": self.name},
            "spec": spec,
        }


@dataclass(frozen=True)
class Case:
    """`filling` jobs run before `last` is submitted. `running` are the pods on nodes by job afterwards: a number,
    or the least and the most. `one_of` are jobs of which exactly one loses all its pods."""

    name: str
    filling: tuple[Job, ...]
    last: Job
    running: dict[str, int | tuple[int, int]]
    deserved: dict[str, int] = field(default_factory=lambda: {"q": 4})
    guarantee: dict[str, int] = field(default_factory=dict)
    closed: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()
    domains: bool = False
    together: str = ""
    by_role: dict[str, int] = field(default_factory=dict)


def high(pods: int, **fields: Any) -> Job:
    return Job("last", priority="high", pods=pods, least=pods, **fields)


PREEMPT = [
    Case("surplus is evicted and the gang survives", (Job("a", pods=4),), high(2), {"last": 2, "a": 2}),
    Case(
        "surplus of two gangs is evicted and both survive",
        (Job("a", least=1), Job("b", least=1)),
        high(2),
        {"last": 2, "a": 1, "b": 1},
    ),
    Case(
        "one of two gangs without surplus is evicted", (Job("a"), Job("b")), high(2), {"last": 2}, one_of=("a", "b")
    ),
    Case("both gangs are evicted for a large one", (Job("a"), Job("b")), high(4), {"last": 4, "a": 0, "b": 0}),
    Case("a gang that fills the cluster is evicted", (Job("a", pods=4, least=4),), high(2), {"last": 2, "a": 0}),
    Case(
        "no gang of another queue is preempted",
        (Job("a", "r", pods=4, least=4),),
        high(2),
        {"last": 0, "a": 4},
        {"q": 2, "r": 2},
        closed=("r",),
    ),
    Case(
        "no gang of equal priority is preempted",
        (Job("a", priority="medium", pods=4, least=4),),
        Job("last", priority="medium"),
        {"last": 0, "a": 4},
    ),
    Case(
        "no gang of higher priority is preempted, and no other one in vain",
        (Job("a", priority="high"), Job("b")),
        Job("last", priority="medium", pods=4, least=4),
        {"last": 0, "a": 2, "b": 2},
    ),
    Case(
        "members that a role needs stay",
        (Job("a", least=3, roles=(("ps", 1, 1), ("worker", 3, 2))),),
        high(1),
        {"last": 1, "a": 3},
        by_role={"ps": 1, "worker": 2},
    ),
    Case(
        "one subgroup stays",
        (Job("a", pods=4, tier=2, partitions=(2, 2, 1)),),
        high(2, tier=2),
        {"last": 2, "a": (2, 4)},
        domains=True,
    ),
    Case(
        "the preemptor gets one domain of tier 1",
        (Job("a", pods=4, tier=2),),
        high(2, tier=1),
        {"last": 2, "a": (2, 4)},
        domains=True,
        together="last",
    ),
    Case(
        "no gang is evicted for a domain that is too small",
        (Job("a", pods=4, least=4, tier=2),),
        high(3, cpu=5, tier=1),
        {"last": 0, "a": 4},
        {"q": 16},
        domains=True,
    ),
    Case(
        "a wider domain is used",
        (Job("a", pods=4, tier=2),),
        high(3, tier=2),
        {"last": 3, "a": (2, 4)},
        domains=True,
    ),
    Case(
        "the narrowest domain with room is preferred",
        (Job("a", pods=4, tier=2),),
        high(2, tier=2),
        {"last": 2, "a": (2, 4)},
        domains=True,
        together="last",
    ),
]
TWO = {"q": 2, "r": 2}
RECLAIM = [
    Case("surplus is reclaimed", (Job("a", "r", pods=4),), Job("last"), {"last": 2, "a": 2}, TWO),
    Case(
        "one of two gangs without surplus is reclaimed",
        (Job("a", "r"), Job("b", "r")),
        Job("last"),
        {"last": 2},
        TWO,
        one_of=("a", "b"),
    ),
    Case(
        "nothing is reclaimed from queues within their deserved amounts",
        (Job("a", "r"), Job("b", "s")),
        Job("last"),
        {"last": 0, "a": 2, "b": 2},
        {"q": 2, "r": 2, "s": 2},
    ),
    Case(
        "nothing is reclaimed from a queue that is not reclaimable",
        (Job("a", "r", pods=4),),
        Job("last"),
        {"last": 0, "a": 4},
        TWO,
        closed=("r",),
    ),
    Case(
        "a guarantee is not reclaimed",
        (Job("a", "r", pods=4),),
        Job("last", pods=4, least=4),
        {"last": 0, "a": 4},
        {"q": 4, "r": 2},
        {"r": 2},
    ),
    Case(
        "a queue above its deserved amount reclaims nothing",
        (Job("a"), Job("b", "r")),
        Job("last"),
        {"last": 0, "a": 2, "b": 2},
        {"q": 1, "r": 3},
    ),
    Case(
        "members that a role needs stay (reclaim)",
        (Job("a", "r", least=3, roles=(("ps", 1, 1), ("worker", 3, 2))),),
        Job("last", pods=1, least=1),
        {"last": 1, "a": 3},
        {"q": 1, "r": 3},
        by_role={"ps": 1, "worker": 2},
    ),
    Case(
        "one subgroup stays (reclaim)",
        (Job("a", "r", pods=4, tier=2, partitions=(2, 2, 1)),),
        Job("last", tier=2),
        {"last": 2, "a": (2, 4)},
        TWO,
        domains=True,
    ),
    Case(
        "the reclaimer gets one domain of tier 1",
        (Job("a", "r", pods=4, tier=2),),
        Job("last", tier=1),
        {"last": 2, "a": (2, 4)},
        TWO,
        domains=True,
        together="last",
    ),
    Case(
        "nothing is reclaimed for a domain that is too small",
        (Job("a", "r", pods=4, least=4, tier=2),),
        Job("last", pods=3, least=3, cpu=5, tier=1),
        {"last": 0, "a": 4},
        {"q": 16, "r": 16},
        domains=True,
    ),
    Case(
        "a wider domain is used (reclaim)",
        (Job("a", "r", pods=4, tier=2),),
        Job("last", pods=3, least=3, tier=2),
        {"last": 3, "a": (2, 4)},
        TWO,
        domains=True,
    ),
    Case(
        "the narrowest domain with room is preferred (reclaim)",
        (Job("a", "r", pods=4, tier=2),),
        Job("last", tier=2),
        {"last": 2, "a": (2, 4)},
        TWO,
        domains=True,
        together="last",
    ),
]


@pytest_asyncio.fixture(loop_scope="session")
async def world(tmp_path: Path) -> AsyncIterator[World]:
    with passing():
        async with job_cluster(tmp_path, POLICY, kubelets=True) as made:
            yield made


async def prepare(world: World, case: Case) -> None:
    for node in range(4):
        await world.node(f"n{node}", cpu="8" if case.domains else "1", memory="64Gi")
    for name, value in PRIORITIES.items():
        meta = {"name": f"{world.name}-{name}"}
        await world.make(
            {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": value}
        )
    for name, cpu in case.deserved.items():
        spec: Object = {"deserved": {"cpu": str(cpu)}, "weight": 1, "reclaimable": True}
        if name in case.guarantee:
            spec["guarantee"] = {"resource": {"cpu": str(case.guarantee[name])}}
        await world.make(
            {
                "apiVersion": QUEUES.api_version,
                "kind": "Queue",
                "metadata": {"name": f"{world.name}-{name}"},
                "spec": spec,
            }
        )
    members = {"s0": ("n0", "n1"), "s1": ("n2", "n3"), "s2": ("s0", "s1")}
    for name, parts in members.items() if case.domains else ():
        nodes = name != "s2"
        listed = [
            {
                "type": "Node" if nodes else "HyperNode",
                "selector": {"exactMatch": {"name": f"{world.name}-{part}"}},
            }
            for part in parts
        ]
        await world.make(
            {
                "apiVersion": "topology.volcano.sh/v1alpha1",
                "kind": "HyperNode",
                "metadata": {"name": f"{world.name}-{name}"},
                "spec": {"tier": 1 if nodes else 2, "members": listed},
            }
        )


async def on_nodes(world: World) -> dict[str, list[tuple[str, str]]]:
    """Return (pod, node) of the pods on nodes, by job."""
    found: dict[str, list[tuple[str, str]]] = {}
    for pod in await world.list(PODS):
        metadata, node = pod["metadata"], pod["spec"].get("nodeName", "")
        if node and not metadata.get("deletionTimestamp"):
            job = metadata["labels"]["volcano.sh/job-name"]
            found.setdefault(job, []).append((metadata["name"], node.removeprefix(f"{world.name}-")))
    return found


@pytest.mark.parametrize("case", [*PREEMPT, *RECLAIM], ids=lambda case: case.name)
async def test_gang_eviction(world: World, case: Case) -> None:
    await prepare(world, case)
    for job in case.filling:
        await world.make(job.document(world.name))
        pods = sum(replicas for _, replicas, _ in job.roles) or job.pods

        async def full(name: str = job.name, count: int = pods) -> bool:
            return len((await on_nodes(world)).get(name, ())) == count

        await world.until(full, f"all pods of {job.name} run")
    for queue in case.closed:
        await world.client.patch(
            QUEUES.path(None, f"{world.name}-{queue}"), {"spec": {"reclaimable": False}}, PatchType.MERGE
        )
    await world.make(case.last.document(world.name))
    await asyncio.sleep(_TURN)
    placed = await on_nodes(world)
    counts = Counter({job: len(pods) for job, pods in placed.items()})
    for name, wanted in case.running.items():
        least, most = wanted if isinstance(wanted, tuple) else (wanted, wanted)
        assert least <= counts[name] <= most, (name, placed)
    if case.one_of:
        assert sorted(counts[name] for name in case.one_of) == [0, 2], placed
    if case.together:
        nodes = {node for _, node in placed[case.together]}
        assert any(nodes <= domain for domain in DOMAINS), placed
    roles = Counter(pod.split("-")[1] for pod, _ in placed.get("a", ()))
    for role, number in case.by_role.items():
        assert roles[role] == number, placed

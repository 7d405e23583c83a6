"""Volcano Jobs in a tree of HyperNodes, as Volcano's suite of network topologies judges them (facts, August 2026).

Eight nodes of 8 CPUs: n0 and n1 form s0, up to s3; s0 and s1 form s4, s2 and s3 form s5, and both form s6.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from tests.e2e.clock import passing
from tests.e2e.job_cluster import job_cluster
from tests.e2e.world import PODS, Object, World

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

POLICY = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins:
  - {name: predicates}
  - {name: proportion}
  - {name: binpack, arguments: {binpack.weight: 10}}
  - {name: network-topology-aware}
"""
TREE = {
    **{f"s{number}": (1, (f"n{2 * number}", f"n{2 * number + 1}")) for number in range(4)},
    "s4": (2, ("s0", "s1")),
    "s5": (2, ("s2", "s3")),
    "s6": (3, ("s4", "s5")),
}
SOFT = 99
_TURN = 6


@dataclass(frozen=True)
class Case:
    """`used` are CPUs in use by node. The job has `pods` of `cpu` each, of which `least` start together, in one
    HyperNode of at most `tier` (SOFT: preferred, 0: anywhere); `parts` are (number, size, minimum, tier).
    `nodes` are the nodes of its pods with their numbers; `racks` only the numbers per rack, in any order.
    """

    name: str
    used: dict[str, int]
    tier: int
    cpu: int
    pods: int
    least: int = 0
    parts: tuple[int, int, int, int] = (0, 0, 0, 0)
    nodes: dict[str, int] | None = None
    racks: tuple[int, ...] | None = None
    inside: str = ""

    def document(self) -> Object:
        container = {"name": "c", "image": "nginx", "resources": {"requests": {"cpu": str(self.cpu)}}}
        template = {"spec": {"schedulerName": "phalanx", "containers": [container]}}
        task: Object = {"name": "w", "replicas": self.pods, "template": template}
        total, size, least, tier = self.parts
        if total:
            policy: Object = {"totalPartitions": total, "partitionSize": size}
            if least:
                policy["minPartitions"] = least
            task["partitionPolicy"] = {**policy, "networkTopology": topology(tier)} if tier else policy
        spec: Object = {"schedulerName": "phalanx", "minAvailable": self.least or self.pods, "tasks": [task]}
        if self.tier:
            spec["networkTopology"] = topology(self.tier)
        return {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"name": "job"},
            "spec": spec,
        }


def topology(tier: int) -> Object:
    return {"mode": "soft"} if tier == SOFT else {"mode": "hard", "highestTierAllowed": tier}


NONE: dict[str, int] = {}
EVERY_RACK = {"n0": 4, "n2": 8, "n3": 4, "n4": 4, "n6": 8, "n7": 4}
CASES = [
    Case("1.1 the fuller domain", {"n2": 1, "n3": 1}, 1, 2, 2, inside="s1"),
    Case("1.2 the domain with room", {"n2": 5, "n3": 5, "n4": 1}, 1, 4, 2, inside="s2"),
    Case(
        "1.3 no domain has room",
        dict.fromkeys(("n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"), 7),
        1,
        2,
        2,
        nodes=NONE,
    ),
    Case(
        "2.1 a wider domain",
        {"n0": 8, "n1": 5, "n2": 8, "n3": 7, "n4": 8, "n5": 5, "n6": 8, "n7": 5},
        2,
        2,
        2,
        nodes={"n5": 1, "n7": 1},
    ),
    Case(
        "2.2 no wider domain has room",
        {"n0": 8, "n1": 8, "n2": 8, "n3": 5, "n4": 8, "n5": 8, "n6": 8, "n7": 5},
        2,
        2,
        2,
        nodes=NONE,
    ),
    Case(
        "3.1 a preferred domain",
        {"n0": 8, "n1": 5, "n2": 8, "n3": 7, "n4": 8, "n5": 5, "n6": 8, "n7": 5},
        SOFT,
        2,
        2,
        nodes={"n5": 1, "n7": 1},
    ),
    Case("4.1 parts in one domain", {"n2": 2, "n3": 2}, 1, 2, 4, parts=(2, 2, 0, 1), inside="s1"),
    Case("4.2 no domain for all parts", EVERY_RACK, 1, 5, 2, parts=(2, 1, 0, 1), nodes=NONE),
    Case(
        "5.2 each part in a domain",
        {"n0": 8, "n2": 8, "n4": 8, "n5": 8, "n6": 8, "n7": 8},
        2,
        3,
        4,
        parts=(2, 2, 0, 1),
        racks=(2, 2),
    ),
    Case("5.4 parts in the fuller domain", {"n0": 6, "n1": 6, "n2": 2}, 2, 2, 4, parts=(2, 2, 0, 1), inside="s1"),
    Case(
        "5.6 room without topology",
        {"n0": 8, "n1": 3, "n2": 8, "n3": 8, "n4": 8, "n5": 3, "n6": 8, "n7": 8},
        2,
        4,
        2,
        parts=(2, 1, 0, 1),
        nodes=NONE,
    ),
    Case(
        "6.2 parts preferred in domains",
        {"n0": 8, "n1": 8, "n2": 8, "n3": 8, "n4": 4, "n5": 4, "n6": 4, "n7": 4},
        2,
        4,
        4,
        parts=(2, 2, 0, SOFT),
        nodes={"n4": 1, "n5": 1, "n6": 1, "n7": 1},
    ),
    Case(
        "7.1 each part in a domain of any branch",
        {"n0": 8, "n2": 8, "n3": 8, "n4": 8, "n6": 8, "n7": 8},
        SOFT,
        3,
        4,
        parts=(2, 2, 0, 1),
        nodes={"n1": 2, "n5": 2},
    ),
    Case(
        "7.2 too few domains for the parts",
        {"n0": 8, "n2": 8, "n3": 8, "n4": 8, "n6": 8, "n7": 8, "n1": 4, "n5": 4},
        SOFT,
        4,
        3,
        parts=(3, 1, 0, 1),
        nodes=NONE,
    ),
    Case(
        "8.1 parts alone are constrained",
        {"n0": 8, "n2": 8, "n3": 8, "n4": 8, "n6": 8, "n7": 8},
        0,
        3,
        4,
        parts=(2, 2, 0, 1),
        nodes={"n1": 2, "n5": 2},
    ),
    Case(
        "parts without a topology",
        {"n1": 8, "n3": 8, "n5": 8, "n7": 8},
        0,
        8,
        4,
        parts=(2, 2, 0, 0),
        racks=(1, 1, 1, 1),
    ),
    Case("9.1 the minimum fits exactly", {"n2": 2, "n3": 2}, 1, 3, 4, 4, (2, 2, 2, 1), inside="s1"),
    Case("9.2 more than the minimum", {"n2": 2, "n3": 2}, 2, 3, 8, 4, (4, 2, 4, 1), inside="s4"),
    Case(
        "9.3 parts fit and the minimum does not",
        {"n0": 2, "n2": 2, "n4": 2, "n6": 2, "n1": 2, "n3": 2, "n5": 2, "n7": 2},
        1,
        3,
        12,
        6,
        (6, 2, 2, 1),
        nodes=NONE,
    ),
    Case(
        "9.4 the minimum fits and the parts do not",
        {"n0": 2, "n2": 2, "n4": 2, "n6": 2, "n1": 2, "n3": 2, "n5": 2, "n7": 2},
        1,
        3,
        12,
        4,
        (6, 2, 4, 1),
        nodes=NONE,
    ),
]


@pytest_asyncio.fixture(loop_scope="session")
async def world(tmp_path: Path) -> AsyncIterator[World]:
    with passing():
        async with job_cluster(tmp_path, POLICY, kubelets=True) as made:
            yield made


async def prepare(world: World, used: dict[str, int]) -> None:
    for number in range(8):
        await world.node(f"n{number}", cpu="8", memory="64Gi")
    for name, (tier, parts) in TREE.items():
        kind = "Node" if tier == 1 else "HyperNode"
        members = [{"type": kind, "selector": {"exactMatch": {"name": f"{world.name}-{part}"}}} for part in parts]
        await world.make(
            {
                "apiVersion": "topology.volcano.sh/v1alpha1",
                "kind": "HyperNode",
                "metadata": {"name": f"{world.name}-{name}"},
                "spec": {"tier": tier, "members": members},
            }
        )
    for node, cpu in used.items():
        await world.pod(f"used-{node}", cpu=str(cpu), nodeName=f"{world.name}-{node}")
    await asyncio.sleep(1)


async def placed(world: World) -> Counter[str]:
    return Counter(
        pod["spec"]["nodeName"].removeprefix(f"{world.name}-")
        for pod in await world.list(PODS)
        if pod["metadata"]["name"].startswith("job-") and pod["spec"].get("nodeName")
    )


def nodes_of(name: str) -> set[str]:
    _, parts = TREE[name]
    return set().union(*(nodes_of(part) if part in TREE else {part} for part in parts))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_job_in_a_tree_of_hypernodes(world: World, case: Case) -> None:
    await prepare(world, case.used)
    await world.make(case.document())
    await asyncio.sleep(_TURN)
    found = await placed(world)
    if case.nodes is not None:
        assert dict(found) == case.nodes
    else:
        assert sum(found.values()) == case.pods
    if case.inside:
        assert set(found) <= nodes_of(case.inside), found
    if case.racks is not None:
        racks = Counter(
            {rack: sum(found[node] for node in nodes_of(rack)) for rack, (tier, _) in TREE.items() if tier == 1}
        )
        assert sorted(count for count in racks.values() if count) == sorted(case.racks), found


@pytest.mark.parametrize("tier", [1, 2])
async def test_pod_of_a_job_that_is_killed_returns_to_the_same_domain(world: World, tier: int) -> None:
    await prepare(world, {"n6": 1})
    await world.make(Case("killed", {}, tier, 2, 2).document())
    await asyncio.sleep(_TURN)
    before = await placed(world)
    assert set(before) <= nodes_of("s3")
    await world.delete(PODS, "job-w-0")
    await asyncio.sleep(_TURN)
    after = await placed(world)
    assert sum(after.values()) == 2
    assert set(after) <= nodes_of("s3")

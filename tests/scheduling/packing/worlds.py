"""Random small worlds of gangs that arrive together, as data and as a scenario."""

from __future__ import annotations

import random
from collections.abc import Mapping

import msgspec

from phalanx.model.peers import NO_PEERS, Peers, PeerTerm, PodSelection
from phalanx.model.pod import PodClass
from phalanx.model.selectors import Requirement
from phalanx.model.topology import TopologyRule

from ..scenario import NAMESPACE, Scenario

HOST, RACK, POOL, APP = "kubernetes.io/hostname", "rack", "pool", "app"
POOLS = ("x", "y")
# The default policy, but queues are limited by their capability only.
POLICY = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: overcommit}, {name: predicates}, {name: capacity}, {name: nodeorder}]
"""


class PackingNode(msgspec.Struct, frozen=True):
    name: str
    cpu: int
    gpu: int
    rack: str
    pool: str


class PackingRole(msgspec.Struct, frozen=True):
    count: int
    cpu: int
    gpu: int


class PackingGang(msgspec.Struct, frozen=True):
    """A gang of all its pods: in one rack, no two on a node, only on nodes of a pool, as far as stated."""

    name: str
    roles: tuple[PackingRole, ...]
    one_rack: bool
    apart: bool
    pool: str
    priority: int
    queue: str

    @property
    def size(self) -> int:
        return sum(role.count for role in self.roles)

    @property
    def cpu(self) -> int:
        return sum(role.count * role.cpu for role in self.roles)


class PackingWorld(msgspec.Struct, frozen=True):
    """Nodes, gangs in the order of their creation, and the CPU limit of each queue."""

    nodes: tuple[PackingNode, ...]
    gangs: tuple[PackingGang, ...]
    queues: dict[str, int]


def packing_world(seed: int) -> PackingWorld:
    chance = random.Random(seed)
    racks = [f"r{number}" for number in range(chance.randint(1, 3))]
    nodes = tuple(
        PackingNode(
            f"n{number}",
            chance.randint(4, 16),
            chance.choice((0, 0, 2, 4, 8)),
            chance.choice(racks),
            chance.choice(POOLS),
        )
        for number in range(chance.randint(4, 9))
    )
    cpu = sum(node.cpu for node in nodes)
    queues = {"qa": chance.randint(cpu // 3, cpu), "qb": chance.randint(cpu // 3, cpu)} if seed % 2 else {}
    gangs = tuple(
        PackingGang(
            f"g{number}",
            tuple(
                PackingRole(chance.randint(1, 4), chance.randint(1, 8), chance.choice((0, 0, 0, 1, 2)))
                for _ in range(chance.choice((1, 1, 2)))
            ),
            one_rack=chance.random() < 1 / 3,
            apart=chance.random() < 1 / 4,
            pool=chance.choice(POOLS) if chance.random() < 0.2 else "",
            priority=chance.choice((10, 20)) if chance.random() < 0.3 else 0,
            queue=chance.choice(sorted(queues)) if queues else "default",
        )
        for number in range(chance.randint(4, 9))
    )
    return PackingWorld(nodes, gangs, queues)


def scenario_of(world: PackingWorld) -> Scenario:
    """Return the world with all gangs waiting."""
    scenario = Scenario(POLICY)
    for queue, cpu in world.queues.items():
        scenario.queue(queue, capability={"cpu": cpu})
    for node in world.nodes:
        labels = {HOST: node.name, RACK: node.rack, POOL: node.pool}
        scenario.node(node.name, cpu=node.cpu, gpu=node.gpu, labels=labels)
    for place, gang in enumerate(world.gangs):
        topology = TopologyRule.by_label(RACK) if gang.one_rack else None
        scenario.gang(gang.name, gang.size, created=1 + place, queue=gang.queue, topology=topology)
        selection = PodSelection((Requirement(APP, "In", (gang.name,)),), (NAMESPACE,))
        peers = Peers(anti=(PeerTerm(selection, HOST),)) if gang.apart else NO_PEERS
        pod_class = PodClass(peers=peers, node_selector=((POOL, gang.pool),) if gang.pool else ())
        for number, role in enumerate(gang.roles):
            for copy in range(role.count):
                scenario.pod(
                    f"{gang.name}-{number}-{copy}",
                    gang=gang.name,
                    created=1 + place,
                    priority=gang.priority,
                    queue=gang.queue,
                    pod_class=pod_class,
                    more={"labels": ((APP, gang.name),)},
                    cpu=role.cpu,
                    gpu=role.gpu,
                )
    return scenario


def check_placement(world: PackingWorld, where: Mapping[str, str]) -> None:
    """Assert that the nodes of the placed pods, by pod name, satisfy the rules of their gangs and all amounts."""
    nodes = {node.name: node for node in world.nodes}
    free = {name: (node.cpu, node.gpu) for name, node in nodes.items()}
    for gang in world.gangs:
        own: list[PackingNode] = []
        for number, role in enumerate(gang.roles):
            for copy in range(role.count):
                name = where.get(f"{gang.name}-{number}-{copy}")
                if name is not None:
                    own.append(nodes[name])
                    free[name] = (free[name][0] - role.cpu, free[name][1] - role.gpu)
        assert len(own) in (0, gang.size), f"gang {gang.name} is not placed as a whole"
        assert not gang.one_rack or len({node.rack for node in own}) <= 1, f"gang {gang.name} is not in one rack"
        assert not gang.apart or len({node.name for node in own}) == len(own), f"gang {gang.name} shares a node"
        assert not gang.pool or {node.pool for node in own} <= {gang.pool}, f"gang {gang.name} is not in its pool"
    assert all(min(amounts) >= 0 for amounts in free.values()), free

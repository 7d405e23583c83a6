"""A second scheduler on the same nodes, nodes that disappear and return, pods deleted by users, and an extender
that hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import pytest

from tests.e2e.world import NODES, PODS, Object, World

from .conftest import Site
from .ledger import cpus
from .scenario import Scenario

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]


def marks(name: str, minimum: int) -> dict[str, str]:
    return {"pod-group/name": name, "pod-group/min-available": str(minimum)}


class Crowd(Scenario):
    """Kubelets that reject pods without room; pods of `theirs` belong to another scheduler."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.queue = "default"
        self._rounds = 0

    async def admit(self, item: Object) -> None:
        name, node = item["metadata"]["name"], item["spec"]["nodeName"]
        running = [
            each
            for each in await self.world.list(PODS)
            if each["spec"].get("nodeName") == node and (each.get("status") or {}).get("phase") == "Running"
        ]
        if sum(map(cpus, running)) + cpus(item) <= 4:
            await self.world.phase("Running", name)
            return
        refused = {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}
        await self.world.patch(PODS, name, {"status": refused}, status=True)

    async def bind_theirs(self) -> None:
        """Bind as the second scheduler with an outdated view: it fills one node after the other, from another
        first node each time.
        """
        waiting = [
            item
            for item in await self.world.list(PODS)
            if item["metadata"]["labels"]["story"] == "theirs" and not item["spec"].get("nodeName")
        ]
        for number, item in enumerate(waiting):
            name, uid = item["metadata"]["name"], item["metadata"]["uid"]
            target = {"kind": "Node", "name": f"{self.prefix}-n{(number // 4 + self._rounds) % 4}"}
            body = {"metadata": {"name": name, "uid": uid}, "target": target}
            await self.world.client.create(PODS.path(self.prefix, name, "binding"), body)
        self._rounds += bool(waiting)

    async def running(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for item in await self.world.list(PODS):
            if (item.get("status") or {}).get("phase") == "Running":
                gang = item["metadata"]["labels"]["story"]
                found[gang] = found.get(gang, 0) + 1
        return found


@pytest.mark.slow
async def test_second_scheduler_on_the_same_nodes_lets_all_pods_run(site: Site) -> None:
    """Both schedulers bind to the same nodes at once; the kubelets decide.

    In the end all pods run, as there is room.
    """
    world = site.world
    for number in range(4):
        await world.node(f"n{number}", cpu="4")
    scheduler = await world.scheduler()
    hold = site.proxy.hold("create", "pods/binding")
    async with Crowd(world) as crowd:
        await crowd.gang("theirs", 6, schedulerName="default-scheduler")
        await crowd.gang("a", 6, labels=marks("a", 6))
        await crowd.gang("b", 4, labels=marks("b", 4))

        async def sent() -> bool:
            return hold.waiting == 10

        await world.until(sent, "bindings are on their way")
        await crowd.bind_theirs()
        hold.release()

        async def all_run() -> bool:
            if (await crowd.running()).get("theirs", 0) < 6:
                with contextlib.suppress(Exception):
                    await crowd.bind_theirs()
            return await crowd.running() == {"theirs": 6, "a": 6, "b": 4}

        await world.until(all_run, "everybody runs", 90)
        await world.settled(scheduler, quiet=1.5)
        refused = [
            item for item in await world.list(PODS) if (item.get("status") or {}).get("reason") == "OutOfcpu"
        ]
        assert refused, "they have met"


@pytest.mark.slow
async def test_gang_is_whole_again_after_lost_nodes_and_deleted_pods(site: Site) -> None:
    """No running pod is evicted, and once the gang is whole, nothing is written."""
    world = site.world
    for number in range(3):
        await world.node(f"n{number}", cpu="2")
    scheduler = await world.scheduler()
    async with Crowd(world) as crowd:
        await crowd.gang("g", 4, labels=marks("g", 4) | {"pod-group/match-policy": "waiting-and-running"})
        await crowd.until(g=4)
        for _ in range(3):
            before = await uids(site)
            lost = (await world.placement())[next(iter(before))]
            gone = [name for name, node in (await world.placement()).items() if node == lost]
            await world.client.delete(NODES.path(None, f"{world.name}-{lost}"))
            await world.delete(PODS, *gone)
            await crowd.until(g=4)
            kept = {name: uid for name, uid in before.items() if name not in gone}
            assert kept.items() <= (await uids(site)).items()
            await world.node(lost, cpu="2")
            by_hand = next(iter(kept))
            await world.delete(PODS, by_hand)
            await crowd.until(g=4)
        await world.settled(scheduler, quiet=1.5)
    assert not site.ledger.faults


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["keep", "release"])
async def test_a_gang_that_cannot_be_whole_again_ends_as_the_policy_says(
    site: Site, policy: str, tmp_path: Path
) -> None:
    """Two members are bound when a node is lost and the remaining ones fail to bind; the timeout is two
    seconds.
    """
    world = site.world
    text = f'actions: "allocate"\ntiers: []\nphalanx: {json.dumps({"partialGang": policy})}\n'
    (tmp_path / "policy.yaml").write_text(text)
    await world.node("n1", cpu="2")
    await world.node("n2", cpu="2")
    scheduler = await world.scheduler(concurrency=1, config=str(tmp_path / "policy.yaml"))
    hold = site.proxy.hold("create", "pods/binding")
    group = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "g"}}
    await world.make({**group, "spec": {"minMember": 4, "scheduleTimeoutSeconds": 2}})
    names = ["a", "b", "c", "d"]
    await world.pods(*names, labels={"pod-group.scheduling.sigs.k8s.io": "g"})

    async def sent() -> bool:
        return hold.waiting == 1

    await world.until(sent, "a binding is on its way")
    asked = [exchange for exchange in site.proxy.exchanges if exchange.asked.resource == "pods/binding"]
    first = asked[-1].binding()["target"]["name"].removeprefix(f"{world.name}-")
    other = {"n1": "n2", "n2": "n1"}[first]
    await world.client.delete(NODES.path(None, f"{world.name}-{other}"))
    hold.release()

    async def some() -> bool:
        return sum(map(bool, (await world.placement()).values())) == 2

    await world.until(some, "two are bound")
    bound = [name for name, node in (await world.placement()).items() if node]
    await world.phase("Running", *bound)
    await asyncio.sleep(4)
    left = {item["metadata"]["name"] for item in await world.list(PODS)}
    assert left == ({*names} if policy == "keep" else {*names} - {*bound})
    await world.settled(scheduler, quiet=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("ignorable", [True, False])
async def test_extender_that_hangs_delays_only_pods_that_need_it(
    site: Site, ignorable: bool, tmp_path: Path
) -> None:
    asked = 0

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.read(-1)
        writer.close()

    extender = await asyncio.start_server(never, "127.0.0.1", 0)
    port = extender.sockets[0].getsockname()[1]
    arguments = {
        "extender.urlPrefix": f"http://127.0.0.1:{port}",
        "extender.httpTimeout": "200ms",
        "extender.predicateVerb": "predicate",
        "extender.ignorable": ignorable,
        "extender.managedResources": ["example.com/special"],
    }
    plugins = [{"name": "gang"}, {"name": "predicates"}, {"name": "extender", "arguments": arguments}]
    text = f"actions: allocate\ntiers: [{{plugins: {json.dumps(plugins)}}}]\n"
    (tmp_path / "policy.yaml").write_text(text)
    world = site.world
    await world.node("n1", cpu="8", example__com_special="8")
    await world.patch_node("n1", {"status": {"allocatable": {"example.com/special": "8"}}}, status=True)
    scheduler = await world.scheduler(config=str(tmp_path / "policy.yaml"))
    special = {"cpu": "1", "example.com/special": "1"}
    await world.pods("s-0", "s-1", labels=marks("s", 2), requests=special)
    await world.pods("p-0", "p-1", labels=marks("p", 2))
    await world.until_bound("p-0", "p-1")
    if ignorable:
        await world.until_bound("s-0", "s-1")
    else:
        await world.until_held("s-0", "s-1", words="could not be checked by the extender")
    await world.settled(scheduler, quiet=1.0)
    assert asked <= 2
    extender.close()


async def uids(site: Site) -> dict[str, str]:
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in await site.world.list(PODS)}

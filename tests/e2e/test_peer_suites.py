"""Cases that the end-to-end suites of KAI (v0.13), Kueue (0.20), the Training Operator and Volcano (1.16-alpha)
judge by placement and status, as facts and in the objects that Phalanx reads."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from phalanx.kube.client import PatchType
from phalanx.kube.paths import Resource
from tests.e2e.world import NODES, PODS, Object, World

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

GPU = "nvidia.com/gpu"
POLICY = """
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: overcommit}, {name: drf}, {name: predicates}, {name: capacity}, {name: nodeorder}]
"""
GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
PLAIN_GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
RACK, BLOCK = "cloud.provider.com/topology-rack", "cloud.provider.com/topology-block"
# Seconds in which everything that can start has started.
_TURN = 8


async def start(world: World, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    await world.scheduler(config=str(tmp_path / "policy.yaml"))


async def queue(world: World, name: str, parent: str = "", **spec: Any) -> str:
    full = f"{world.name}-{name}"
    above = {"parent": f"{world.name}-{parent}"} if parent else {}
    document = {"apiVersion": QUEUES.api_version, "kind": "Queue", "metadata": {"name": full}}
    await world.make({**document, "spec": {**spec, **above}})
    return full


async def priority(world: World, name: str, value: int) -> str:
    full = f"{world.name}-{name}"
    document = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": full}}
    await world.make({**document, "value": value})
    return full


async def group(world: World, name: str, least: int, **spec: Any) -> None:
    document = {"apiVersion": GROUPS.api_version, "kind": "PodGroup", "metadata": {"name": name}}
    await world.make({**document, "spec": {"minMember": least, **spec}})


async def members(world: World, gang: str, count: int, *, first: int = 0, role: str = "", **what: Any) -> None:
    annotations = {"scheduling.k8s.io/group-name": gang, **what.pop("annotations", {})}
    if role:
        annotations["volcano.sh/task-spec"] = role
    for number in range(first, first + count):
        name = f"{gang}-{role}-{number}" if role else f"{gang}-{number}"
        await world.pod(name, annotations=annotations, **what)


async def ended(world: World) -> None:
    """Delete the pods that are terminating, and let the bound ones run, as kubelets would."""
    for pod in await world.list(PODS):
        name = pod["metadata"]["name"]
        if pod["metadata"].get("deletionTimestamp"):
            await world.delete(PODS, name)
        elif pod["spec"].get("nodeName") and pod["status"].get("phase") == "Pending":
            await world.phase("Running", name)


async def settled(world: World) -> dict[str, str]:
    """Return pod -> node once everything that can start has started."""
    for _ in range(4):
        await asyncio.sleep(_TURN / 4)
        await ended(world)
    return await world.placement()


def count(placement: dict[str, str], prefix: str) -> int:
    return sum(bool(node) for name, node in placement.items() if name.startswith(f"{prefix}-"))


async def racks(
    world: World, blocks: int, racks_each: int, nodes_each: int, **amounts: Any
) -> dict[str, tuple[str, str]]:
    """Make a tree of blocks, racks and nodes; return node -> (block, rack)."""
    places = {}
    for block in range(blocks):
        for rack in range(racks_each):
            for node in range(nodes_each):
                name = f"b{block}r{rack}n{node}"
                await world.node(name, **amounts)
                labels = {BLOCK: f"b{block}", RACK: f"b{block}r{rack}"}
                await world.patch_node(name, {"metadata": {"labels": labels}})
                places[name] = (f"b{block}", f"b{block}r{rack}")
    return places


class TestElastic:
    async def test_gang_starts_in_part_where_the_limit_of_its_queue_has_room_for_its_minimum_only(
        self, world: World, tmp_path: Path
    ) -> None:
        await world.node("n1")
        name = await queue(world, "q", capability={"cpu": "500m"})
        await start(world, tmp_path)
        await group(world, "g", 1, queue=name)
        await members(world, "g", 2, cpu="500m")
        assert count(await settled(world), "g") == 1

    async def test_gang_starts_whole_where_the_limit_has_room(self, world: World, tmp_path: Path) -> None:
        await world.node("n1")
        name = await queue(world, "q", capability={"cpu": "500m"})
        await start(world, tmp_path)
        await group(world, "g", 1, queue=name)
        await members(world, "g", 2, cpu="200m")
        assert count(await settled(world), "g") == 2

    async def test_two_gangs_fill_the_limit_together(self, world: World, tmp_path: Path) -> None:
        await world.node("n1")
        name = await queue(world, "q", capability={"cpu": "500m"})
        await start(world, tmp_path)
        for gang in ("g", "h"):
            await members(world, gang, 3, cpu="100m")
        for gang in ("g", "h"):
            await group(world, gang, 1, queue=name)
        placement = await settled(world)
        assert count(placement, "g") + count(placement, "h") == 5
        assert {count(placement, "g"), count(placement, "h")} == {2, 3}

    async def test_surplus_of_higher_priority_comes_before_a_pod_of_lower_priority(
        self, world: World, tmp_path: Path
    ) -> None:
        await world.node("n1")
        name = await queue(world, "q", capability={"cpu": "500m"})
        high, low = await priority(world, "high", 100), await priority(world, "low", 10)
        await start(world, tmp_path)
        await members(world, "g", 2, cpu="250m", priorityClassName=high)
        await group(world, "g", 1, queue=name, priorityClassName=high)
        annotations = {"scheduling.volcano.sh/queue-name": name}
        await world.pod("single-0", cpu="250m", annotations=annotations, priorityClassName=low)
        placement = await settled(world)
        assert (count(placement, "g"), count(placement, "single")) == (2, 0)


class TestReclaimElastic:
    async def play(self, world: World, tmp_path: Path, gpus: int, deserved: int, pods: int, least: int) -> int:
        """Let a gang of queue a fill the node, and a gang of 2 pods of queue b reclaim its 2 GPUs."""
        await world.node("n1", nvidia_com__gpu=gpus)
        first = await queue(world, "a", deserved={GPU: str(deserved), "cpu": "1"})
        second = await queue(world, "b", deserved={GPU: "2", "cpu": "1"})
        await start(world, tmp_path)
        await group(world, "a", least, queue=first)
        await members(world, "a", pods, requests={GPU: "1"})
        assert count(await settled(world), "a") == pods
        await group(world, "b", 2, queue=second)
        await members(world, "b", 2, requests={GPU: "1"})
        placement = await settled(world)
        assert count(placement, "b") == 2
        return count(placement, "a")

    async def test_whole_gang_is_reclaimed_where_nothing_is_deserved(self, world: World, tmp_path: Path) -> None:
        assert await self.play(world, tmp_path, gpus=2, deserved=0, pods=2, least=1) == 0

    async def test_surplus_is_reclaimed_and_the_minimum_stays(self, world: World, tmp_path: Path) -> None:
        assert await self.play(world, tmp_path, gpus=4, deserved=2, pods=3, least=2) == 2


class TestSubgroups:
    async def play(
        self, world: World, tmp_path: Path, least: int, pods: int, *gangs: str, limit: str = "600m"
    ) -> dict[str, str]:
        """Create the gangs in a queue with a limit, which is 600m at last."""
        await world.node("n1")
        name = await queue(world, "q", capability={"cpu": limit})
        await start(world, tmp_path)
        for gang in gangs:
            for role in ("one", "two"):
                await members(world, gang, pods, role=role, cpu="100m")
            roles = {"one": least, "two": least}
            await group(world, gang, 2 * least, queue=name, minTaskMember=roles)
            await settled(world)
        await world.client.patch(
            QUEUES.path(None, name), {"spec": {"capability": {"cpu": "600m"}}}, PatchType.MERGE
        )
        return await settled(world)

    async def test_each_subgroup_gets_its_minimum(self, world: World, tmp_path: Path) -> None:
        placement = await self.play(world, tmp_path, 3, 5, "g")
        assert (count(placement, "g-one"), count(placement, "g-two")) == (3, 3)

    async def test_two_gangs_get_their_subgroups_and_equal_surplus(self, world: World, tmp_path: Path) -> None:
        placement = await self.play(world, tmp_path, 1, 3, "g", "h", limit="0")
        assert (count(placement, "g"), count(placement, "h")) == (3, 3)
        assert all(count(placement, f"{gang}-{role}") for gang in "gh" for role in ("one", "two"))

    async def test_gang_whose_subgroups_do_not_fit_starts_no_pod(self, world: World, tmp_path: Path) -> None:
        placement = await self.play(world, tmp_path, 2, 3, "g", "h")
        assert (count(placement, "g"), count(placement, "h")) == (6, 0)


class TestTopology:
    @pytest.mark.parametrize(
        ("level", "rule", "pods", "gpus", "racks_used", "blocks_used"),
        [
            ("required", RACK, 2, 8, 1, 1),
            ("preferred", RACK, 2, 8, 1, 1),
            ("required", BLOCK, 4, 8, 2, 1),
            ("preferred", RACK, 4, 8, 2, 1),
            ("required", RACK, 4, 8, 0, 0),
        ],
        ids=["rack", "rack if possible", "block in two racks", "block where no rack fits", "no rack fits"],
    )
    async def test_gang_in_a_tree_of_blocks_and_racks(
        self,
        world: World,
        tmp_path: Path,
        level: str,
        rule: str,
        pods: int,
        gpus: int,
        racks_used: int,
        blocks_used: int,
    ) -> None:
        places = await racks(world, 2, 2, 2, nvidia_com__gpu=8)
        await start(world, tmp_path)
        annotations = {f"kueue.x-k8s.io/podset-{level}-topology": rule}
        await group(world, "g", pods)
        await members(world, "g", pods, requests={GPU: str(gpus)}, annotations=annotations)
        placement = await settled(world)
        used = [places[node] for node in placement.values() if node]
        assert len(used) == (pods if racks_used else 0)
        assert (len({rack for _, rack in used}), len({block for block, _ in used})) == (racks_used, blocks_used)

    @pytest.mark.parametrize(("gpus", "nodes"), [(4, 1), (8, 2)], ids=["one node", "two nodes of a rack"])
    async def test_required_rack_with_a_preferred_node(
        self, world: World, tmp_path: Path, gpus: int, nodes: int
    ) -> None:
        places = await racks(world, 1, 2, 2, nvidia_com__gpu=8)
        await start(world, tmp_path)
        annotations = {
            "kueue.x-k8s.io/podset-required-topology": RACK,
            "kueue.x-k8s.io/podset-preferred-topology": "kubernetes.io/hostname",
        }
        await group(world, "g", 2)
        await members(world, "g", 2, requests={GPU: str(gpus)}, annotations=annotations)
        placement = await settled(world)
        assert len(set(placement.values())) == nodes
        assert len({places[node][1] for node in placement.values()}) == 1

    async def test_replacement_of_a_member_on_a_failed_node_stays_in_the_domain(
        self, world: World, tmp_path: Path
    ) -> None:
        places = await racks(world, 2, 1, 3, nvidia_com__gpu=8)
        await start(world, tmp_path)
        annotations = {"kueue.x-k8s.io/podset-required-topology": BLOCK}
        await group(world, "g", 2)
        await members(world, "g", 2, requests={GPU: "8"}, annotations=annotations)
        before = await settled(world)
        failed = before["g-0"]
        taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        await world.patch_node(failed, {"spec": {"taints": [taint]}})
        await world.delete(PODS, "g-0")
        await members(world, "g", 1, first=2, requests={GPU: "8"}, annotations=annotations)
        after = await settled(world)
        assert after["g-2"] not in ("", failed)
        assert places[after["g-2"]][0] == places[before["g-1"]][0]

    async def test_scaled_gang_stays_in_its_domain(self, world: World, tmp_path: Path) -> None:
        places = await racks(world, 2, 1, 2, nvidia_com__gpu=8)
        await start(world, tmp_path)
        annotations = {"kueue.x-k8s.io/podset-required-topology": BLOCK}
        await group(world, "g", 1)
        await members(world, "g", 1, requests={GPU: "8"}, annotations=annotations)
        await settled(world)
        await members(world, "g", 1, first=1, requests={GPU: "8"}, annotations=annotations)
        after = await settled(world)
        assert len({places[node][0] for node in after.values()}) == 1


def kueue(gang: str, total: int) -> dict[str, Any]:
    return {
        "labels": {"kueue.x-k8s.io/pod-group-name": gang},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": str(total)},
    }


class TestPodGroupsOfKueue:
    async def test_incomplete_group_does_not_start_until_it_is_complete(self, world: World, tmp_path: Path) -> None:
        await world.node("n1")
        await start(world, tmp_path)
        await world.pod("g-0", **kueue("g", 2))
        assert count(await settled(world), "g") == 0
        await world.pod("g-1", **kueue("g", 2))
        assert count(await settled(world), "g") == 2

    async def test_failed_pod_is_replaced(self, world: World, tmp_path: Path) -> None:
        await world.node("n1")
        await start(world, tmp_path)
        for number in range(2):
            await world.pod(f"g-{number}", **kueue("g", 2))
        await settled(world)
        await world.phase("Failed", "g-0")
        await world.pod("g-2", **kueue("g", 2))
        assert (await settled(world))["g-2"] == "n1"

    async def test_group_of_diverse_pods_starts(self, world: World, tmp_path: Path) -> None:
        await world.node("n1")
        await start(world, tmp_path)
        for number, cpu in enumerate(("1", "2", "500m")):
            await world.pod(f"g-{number}", cpu=cpu, **kueue("g", 3))
        assert count(await settled(world), "g") == 3

    async def test_group_of_lower_priority_is_preempted_whole_and_starts_again_later(
        self, world: World, tmp_path: Path
    ) -> None:
        await world.node("n1", cpu="2")
        high = await priority(world, "high", 100)
        await start(world, tmp_path)
        for number in range(2):
            await world.pod(f"low-{number}", **kueue("low", 2))
        await settled(world)
        for number in range(2):
            await world.pod(f"high-{number}", priorityClassName=high, **kueue("high", 2))
        placement = await settled(world)
        assert (count(placement, "high"), count(placement, "low")) == (2, 0)
        for number in range(2):
            await world.pod(f"low-{number + 2}", **kueue("low", 2))
        assert count(await settled(world), "low") == 0
        await world.phase("Succeeded", "high-0", "high-1")
        assert count(await settled(world), "low") == 2


async def test_borrowing_in_a_tree_of_queues_ends_at_the_root(world: World, tmp_path: Path) -> None:
    await world.node("n1", cpu="20")
    await queue(world, "root", capability={"cpu": "10"})
    for team in ("a", "b"):
        await queue(world, team, "root", deserved={"cpu": "2"})
        await queue(world, f"{team}1", team, deserved={"cpu": "2"})
    await start(world, tmp_path)
    for gang, team in (("g", "a1"), ("h", "b1"), ("over", "a1")):
        await group(world, gang, 2 if gang != "over" else 1, queue=f"{world.name}-{team}")
        await members(world, gang, 1 if gang == "over" else 2, cpu="3" if gang == "over" else "2")
        await settled(world)
    placement = await settled(world)
    assert (count(placement, "g"), count(placement, "h"), count(placement, "over")) == (2, 2, 0)


async def test_minimum_above_the_pods_of_a_training_job_waits_until_it_is_lowered(
    world: World, tmp_path: Path
) -> None:
    await world.node("n1")
    await start(world, tmp_path)
    document = {"apiVersion": PLAIN_GROUPS.api_version, "kind": "PodGroup", "metadata": {"name": "job"}}
    await world.make({**document, "spec": {"minMember": 10, "scheduleTimeoutSeconds": 60}})
    labels = {"scheduling.x-k8s.io/pod-group": "job"}
    for name in ("job-master-0", "job-worker-0"):
        await world.pod(name, labels=labels)
    assert count(await settled(world), "job") == 0
    path = PLAIN_GROUPS.path(world.namespace, "job")
    await world.client.patch(path, {"spec": {"minMember": 2}}, PatchType.MERGE)
    assert count(await settled(world), "job") == 2


async def test_min_resources_above_the_cluster_hold_the_pods_of_a_job(world: World, tmp_path: Path) -> None:
    await world.node("n1", cpu="4")
    await start(world, tmp_path)
    document = {"apiVersion": PLAIN_GROUPS.api_version, "kind": "PodGroup", "metadata": {"name": "job"}}
    await world.make({**document, "spec": {"minMember": 2, "minResources": {"cpu": "6"}}})
    for name in ("job-master-0", "job-worker-0"):
        await world.pod(name, labels={"scheduling.x-k8s.io/pod-group": "job"})
    assert count(await settled(world), "job") == 0
    node: Object = await world.client.get(NODES.path(None, f"{world.name}-n1"))
    amounts = {**node["status"]["allocatable"], "cpu": "8"}
    await world.patch_node("n1", {"status": {"allocatable": amounts, "capacity": amounts}}, status=True)
    assert count(await settled(world), "job") == 2


@pytest.mark.parametrize("size", [1, 3])
async def test_group_with_a_terminating_member_stays_running_and_is_not_unschedulable(
    world: World, tmp_path: Path, size: int
) -> None:
    await world.node("n1")
    await start(world, tmp_path)
    await group(world, "g", size)
    await members(world, "g", size, terminationGracePeriodSeconds=300)
    await settled(world)
    await world.until_status(GROUPS, "g", phase="Running")
    await world.client.delete(PODS.path(world.namespace, "g-0"), grace_seconds=300)
    await asyncio.sleep(_TURN)
    status = (await world.get(GROUPS, "g"))["status"]
    assert status["phase"] == "Running"
    told = [each for each in status["conditions"] if each["type"] == "Unschedulable" and each["status"] == "True"]
    assert told == []


async def test_pod_of_lower_priority_is_preempted_for_an_anti_affinity(world: World, tmp_path: Path) -> None:
    await world.node("n1")
    high, low = await priority(world, "high", 100), await priority(world, "low", 10)
    await start(world, tmp_path)
    await world.pod("low-0", labels={"app": "x"}, priorityClassName=low)
    await settled(world)
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    await world.pod("high-0", priorityClassName=high, affinity=affinity)
    placement = await settled(world)
    assert (count(placement, "high"), count(placement, "low")) == (1, 0)

"""Kubernetes' own groups of 1.36 (scheduling.k8s.io/v1alpha2): their spec, and the status that is published."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from phalanx.kube.client import PatchType
from phalanx.kube.paths import Resource
from tests.e2e.world import PODS, Object, World, condition

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

GROUPS = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")
MEMBER: dict[str, Any] = {"schedulingGroup": {"podGroupName": "g"}}


def group(least: int = 2, **spec: Any) -> Object:
    policy = {"gang": {"minCount": least}}
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"schedulingPolicy": policy, **spec},
    }


async def until_told(world: World, kind: str, status: str, reason: str) -> Object:
    """Waits until the group says so; the condition."""

    async def told() -> Object:
        found = condition(await world.get(GROUPS, "g"), kind)
        return found if (found.get("status"), found.get("reason")) == (status, reason) else {}

    said: Object = await world.until(told, f"the group says {kind} {status} {reason}")
    return said


async def remove_group(world: World) -> None:
    """The finalizer that protects groups is for a controller that need not be there."""
    path = GROUPS.path(world.namespace, "g")
    await world.client.patch(path, {"metadata": {"finalizers": None}}, PatchType.MERGE)
    await world.client.delete(path)


async def test_members_wait_for_their_group_and_for_each_other(world: World) -> None:
    await world.node("n1")
    await world.scheduler()
    await world.pods("a", "b", **MEMBER)
    said = await world.until_held("a", "b", words="^waiting for PodGroup [^ ]*/g")
    assert said["message"].endswith("To fix: create it.")
    await world.make(group(3))
    await world.until_held("a", "b", words="waiting for members of PodGroup .*: have 2 of 3 pods")
    await world.pod("c", **MEMBER)
    await world.until_bound("a", "b", "c")
    await until_told(world, "PodGroupScheduled", "True", "Scheduled")


async def test_all_members_of_a_gang_that_does_not_fit_get_one_reason(world: World) -> None:
    await world.node("n1", cpu="2")
    await world.scheduler()
    await world.make(group(3))
    await world.pods("a", "b", "c", **MEMBER)
    await world.until_held("a", "b", "c", words="2 of the 3 required pods")
    pods = [await world.get(PODS, name) for name in "abc"]
    assert len({condition(pod, "PodScheduled")["message"] for pod in pods}) == 1
    told = await until_told(world, "PodGroupScheduled", "False", "Unschedulable")
    assert "2 of the 3 required pods" in told["message"]


async def test_recreated_group_starts_without_the_state_of_the_old_one(world: World) -> None:
    await world.node("n1")
    scheduler = await world.scheduler()
    await world.make(group(2))
    await world.pods("a", "b", **MEMBER)
    await world.until_bound("a", "b")
    await until_told(world, "PodGroupScheduled", "True", "Scheduled")
    await remove_group(world)
    await world.make(group(4))
    await world.pod("c", **MEMBER)
    await world.until_held("c", words="have 3 of 4 pods")
    await until_told(world, "PodGroupScheduled", "False", "Unschedulable")
    await scheduler.kill()
    await world.scheduler()
    await world.settled(*world.schedulers[1:])
    assert (await world.placement())["c"] == ""
    await world.pod("d", **MEMBER)
    await world.until_bound("c", "d")
    await until_told(world, "PodGroupScheduled", "True", "Scheduled")


async def test_a_member_that_replaces_another_joins_alone(world: World) -> None:
    await world.node("n1")
    first = await world.scheduler()
    await world.make(group(3))
    await world.pods("a", "b", "c", **MEMBER)
    await world.until_bound("a", "b", "c")
    await until_told(world, "PodGroupScheduled", "True", "Scheduled")
    await world.phase("Succeeded", "a")
    await world.delete(PODS, "b")
    await first.kill()
    await world.scheduler()
    await world.pod("b2", **MEMBER)
    await world.until_bound("b2")


async def test_members_may_have_another_priority_than_their_group(world: World) -> None:
    """The server gives a group without a class priority 0, whatever the priority of its pods; kube-scheduler
    accepts this too.
    """
    await world.node("n1")
    name = f"{world.name}-high"
    await world.make(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": 10,
        }
    )
    await world.scheduler()
    await world.make(group(2))
    assert (await world.get(GROUPS, "g"))["spec"].get("priority", 0) == 0
    await world.pods("a", "b", priorityClassName=name, **MEMBER)
    await world.until_bound("a", "b")


async def test_group_held_by_a_queue_gets_the_reason_and_is_never_unschedulable(world: World) -> None:
    await world.node("n1")
    queue = f"{world.name}-small"
    await world.make(
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": queue},
            "spec": {"capability": {"cpu": 1}},
        }
    )
    scheduler = await world.scheduler()
    await world.make(group(2))
    await world.pods("a", "b", annotations={"scheduling.volcano.sh/queue-name": queue}, **MEMBER)
    told = await until_told(world, "phalanx.dev/Admitted", "False", "QuotaExceeded")
    assert queue in told["message"]
    assert told["observedGeneration"] >= 0 if "observedGeneration" in told else True
    await world.settled(scheduler)
    assert condition(await world.get(GROUPS, "g"), "PodGroupScheduled") == {}
    assert condition(await world.get(PODS, "a"), "PodScheduled").get("reason") != "Unschedulable"
    patch = {"spec": {"capability": {"cpu": 2}}}
    await world.client.patch(f"/apis/scheduling.volcano.sh/v1beta1/queues/{queue}", patch, PatchType.MERGE)
    await world.until_bound("a", "b")
    await until_told(world, "phalanx.dev/Admitted", "True", "Admitted")


async def test_the_group_of_another_scheduler_is_left_alone(world: World) -> None:
    await world.node("n1")
    scheduler = await world.scheduler()
    await world.make(group(2))
    await world.pods("a", "b", scheduler="another", **MEMBER)
    await world.settled(scheduler)
    await asyncio.sleep(0.3)
    found = await world.get(GROUPS, "g")
    assert not (found.get("status") or {}).get("conditions")


async def test_status_that_is_already_true_is_not_written_again(world: World) -> None:
    await world.node("n1", cpu="1")
    first = await world.scheduler()
    await world.make(group(2))
    await world.pods("a", "b", **MEMBER)
    await until_told(world, "PodGroupScheduled", "False", "Unschedulable")
    await world.settled(first)
    version = (await world.get(GROUPS, "g"))["metadata"]["resourceVersion"]
    await first.stop()
    second = await world.scheduler()
    await world.settled(second)
    assert (await world.get(GROUPS, "g"))["metadata"]["resourceVersion"] == version


async def test_group_evicted_as_a_whole_reports_its_preemption(world: World) -> None:
    for name in ("n1", "n2"):
        await world.node(name, cpu="4")
    for value in (1, 1000):
        document = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value}
        await world.make({**document, "metadata": {"name": f"{world.name}-{value}"}})
    await world.scheduler()
    low = f"{world.name}-1"
    await world.make(group(1, disruptionMode="PodGroup", priorityClassName=low))
    await world.pods("a", "b", cpu="4", priorityClassName=low, terminationGracePeriodSeconds=30, **MEMBER)
    await world.until_bound("a", "b")
    await world.phase("Running", "a", "b")
    await world.pod("vip", cpu="4", priorityClassName=f"{world.name}-1000")

    async def leave() -> bool:
        pods = [await world.get(PODS, name) for name in "ab"]
        return all(pod["metadata"].get("deletionTimestamp") for pod in pods)

    await world.until(leave, "both members are told to leave")
    told = await until_told(world, "DisruptionTarget", "True", "PreemptionByScheduler")
    assert "vip" in told["message"]
    assert condition(await world.get(GROUPS, "g"), "PodGroupScheduled")["status"] == "True"
    await world.delete(PODS, "a", "b")
    await world.until_bound("vip")


async def test_a_topology_key_keeps_all_members_in_one_domain(world: World) -> None:
    for name, rack, cpu in (("n1", "r1", "2"), ("n2", "r2", "1"), ("n3", "r2", "2")):
        await world.node(name, cpu=cpu)
        await world.patch_node(name, {"metadata": {"labels": {"example.com/rack": rack}}})
    await world.scheduler()
    await world.make(group(3, schedulingConstraints={"topology": [{"key": "example.com/rack"}]}))
    await world.pods("a", "b", "c", **MEMBER)
    placed = await world.until_bound("a", "b", "c")
    assert {placed[name] for name in "abc"} == {"n2", "n3"}
    await world.pod("d", **MEMBER)
    await world.until_held("d")
    await world.pod("other", cpu="1")
    assert (await world.until_bound("other"))["other"] == "n1", "it was not for lack of room elsewhere"
    await world.delete(PODS, "a")
    await world.until_bound("d")

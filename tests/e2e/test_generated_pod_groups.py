"""Gangs declared by pods only get a PodGroup, which follows their labels and is deleted with them (as in ACK)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from phalanx.kube.client import PatchType
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from tests.e2e.world import PODS, Object, World, pod

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

X_K8S = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
SIGS = Resource("scheduling.sigs.k8s.io", "v1alpha1", "podgroups", "PodGroup")
NAME, MINIMUM = "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"
MARK = "phalanx.dev/generated-from-pods"
KOORDINATOR = "gang.scheduling.koordinator.sh"


def labelled(minimum: int = 2, name: str = "g") -> dict[str, Any]:
    return {"labels": {NAME: name, MINIMUM: str(minimum)}}


async def made(world: World, name: str = "g") -> Object:
    async def there() -> Object | None:
        return await find(world, X_K8S, name)

    found: Object = await world.until(there, f"PodGroup {name} is there")
    return found


async def find(world: World, resource: Resource, name: str) -> Object | None:
    try:
        return await world.get(resource, name)
    except ApiError as error:
        if error.status == 404:
            return None
        raise


async def absent(world: World, resource: Resource, name: str = "g") -> None:
    async def gone() -> bool:
        return await find(world, resource, name) is None

    await world.until(gone, f"PodGroup {name} is gone")


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    "declaration",
    [
        labelled(),
        {"labels": {"pod-group/name": "g", "pod-group/min-available": "2"}},
        {"annotations": {f"{KOORDINATOR}/name": "g", f"{KOORDINATOR}/min-available": "2"}},
    ],
    ids=["labels of ACK", "labels of KEP-2", "annotations of Koordinator"],
)
async def test_a_gang_that_only_pods_declare_can_be_listed_and_has_a_status(
    world: World, declaration: dict[str, Any]
) -> None:
    scheduler = await world.scheduler()
    await world.pods("a", "b", **declaration)
    group = await made(world)
    assert group["spec"] == {"minMember": 2}
    assert {owner["name"] for owner in group["metadata"]["ownerReferences"]} == {"a", "b"}
    await world.until_status(X_K8S, "g", phase="Scheduling")
    await world.node("n1")
    await world.until_bound("a", "b")
    await world.phase("Running", "a", "b")
    await world.until_status(X_K8S, "g", phase="Running", running=2)
    # In a steady state nothing is written.
    await world.settled(scheduler, quiet=0.6)
    assert await find(world, SIGS, "g") is None


async def test_generated_group_of_a_gang_without_room_has_the_event_unschedulable(world: World) -> None:
    """The group is created after the verdict on its gang was published."""
    await world.scheduler()
    await world.node("n1")
    await world.pods("a", "b", cpu="500", **labelled())
    await made(world)

    async def told() -> bool:
        listed = await world.client.get(f"/api/v1/namespaces/{world.namespace}/events")
        return any(
            (event["involvedObject"]["kind"], event["reason"]) == ("PodGroup", "Unschedulable")
            for event in listed["items"]
        )

    await world.until(told, "the event on the PodGroup")


async def test_generated_group_is_owned_by_the_controller_of_its_members(world: World) -> None:
    await world.scheduler()
    for name in ("a", "b"):
        document = pod(name, owner="job-1", **labelled())
        document["metadata"]["ownerReferences"][0]["controller"] = True
        await world.make(document)
    owners = (await made(world))["metadata"]["ownerReferences"]
    assert [(owner["kind"], owner["name"]) for owner in owners] == [("Job", "job-1")]
    assert not any(owner.get("controller") or owner.get("blockOwnerDeletion") for owner in owners)


async def test_the_labels_stay_the_source(world: World) -> None:
    await world.node("n1", cpu="2")
    await world.scheduler()
    await world.pods("a", "b", **labelled(3))
    await made(world)
    # Only members with labels count: here the third member is missing.
    await asyncio.sleep(0.5)
    assert await world.placement() == {"a": "", "b": ""}
    await world.delete(PODS, "a", "b")
    await absent(world, X_K8S)
    await world.pods("c", "d", **labelled(2))
    assert (await made(world))["spec"]["minMember"] == 2
    await world.until_bound("c", "d")


async def test_generated_group_is_deleted_with_its_last_member_and_a_second_run_gets_a_new_one(
    world: World,
) -> None:
    await world.node("n1")
    await world.scheduler()
    await world.pods("a", "b", **labelled())
    first = await made(world)
    await world.until_bound("a", "b")
    await world.phase("Succeeded", "a", "b")
    await world.until_status(X_K8S, "g", phase="Finished")
    await world.delete(PODS, "a", "b")
    await absent(world, X_K8S)
    await world.pods("c", "d", **labelled())
    await world.until_bound("c", "d")
    assert (await made(world))["metadata"]["uid"] != first["metadata"]["uid"]


@pytest.mark.slow
async def test_a_restarted_scheduler_knows_it(world: World) -> None:
    first = await world.scheduler()
    await world.pods("a", "b", **labelled())
    before = await made(world)
    await world.until_status(X_K8S, "g", phase="Scheduling")
    await first.stop()
    again = await world.scheduler()
    await world.settled(again, quiet=0.6)
    after = await world.get(X_K8S, "g")
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"] or (
        after["spec"] == before["spec"] and after["metadata"]["uid"] == before["metadata"]["uid"]
    )
    await again.stop()
    await world.delete(PODS, "a", "b")
    await world.scheduler()
    await absent(world, X_K8S)


async def test_generated_group_whose_spec_a_user_edits_belongs_to_the_user(world: World) -> None:
    await world.node("n1", cpu="2")
    await world.scheduler()
    await world.pods("a", "b", **labelled(3))
    await made(world)
    await world.client.patch(X_K8S.path(world.namespace, "g"), {"spec": {"minMember": 2}}, PatchType.MERGE)
    await world.until_bound("a", "b")

    async def left_alone() -> bool:
        metadata = (await world.get(X_K8S, "g"))["metadata"]
        return MARK not in metadata.get("annotations", {}) and not metadata.get("ownerReferences")

    await world.until(left_alone, "nothing of ours is left on it")
    await world.delete(PODS, "a", "b")
    await asyncio.sleep(0.5)
    assert (await world.get(X_K8S, "g"))["spec"]["minMember"] == 2


async def test_an_object_that_the_user_makes_later_in_the_other_kind_wins(world: World) -> None:
    await world.node("n1", cpu="2")
    await world.scheduler()
    await world.pods("a", "b", **labelled(3))
    await made(world)
    spec = {"minMember": 2}
    await world.make({"apiVersion": SIGS.api_version, "kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec})
    await world.until_bound("a", "b")
    await absent(world, X_K8S)
    await world.until_status(SIGS, "g", phase="Scheduled")


async def test_a_mark_that_a_tenant_writes_is_worth_nothing(world: World) -> None:
    await world.node("n1", cpu="2")
    await world.scheduler()
    for name, note in (("g", "pods"), ("h", '{"minMember":2}')):
        document = {
            "apiVersion": X_K8S.api_version,
            "kind": "PodGroup",
            "metadata": {"name": name, "annotations": {MARK: note}},
            "spec": {"minMember": 2},
        }
        await world.client.create(X_K8S.path(world.namespace), document)
    # One that is no record of its spec is a user's object like every other.
    await world.pods("a", "b", labels={"scheduling.x-k8s.io/pod-group": "g"})
    await world.until_bound("a", "b")
    # A group that imitates a generated one declares nothing, and is deleted like a generated one.
    await world.pods("c", labels={"scheduling.x-k8s.io/pod-group": "h"})
    await absent(world, X_K8S, "h")
    assert MARK not in (await world.get(X_K8S, "g"))["metadata"].get("annotations", {})
    assert (await world.placement())["c"] == ""


async def test_the_policy_switches_it_off(world: World, tmp_path: Any) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        'actions: "enqueue, allocate, backfill"\n'
        "tiers: [{plugins: [{name: gang}, {name: predicates}]}]\n"
        "phalanx: {createPodGroups: false}\n"
    )
    await world.node("n1")
    await world.scheduler(config=str(policy))
    await world.pods("a", "b", **labelled())
    await world.until_bound("a", "b")
    await asyncio.sleep(0.5)
    assert await find(world, X_K8S, "g") is None


async def test_group_generated_by_another_scheduler_is_not_changed(world: World) -> None:
    scheduler = await world.scheduler()
    await world.pods("a", "b", scheduler="another", **labelled())
    document = {
        "apiVersion": X_K8S.api_version,
        "kind": "PodGroup",
        "metadata": {"name": "g", "annotations": {MARK: '{"minMember":2}'}},
        "spec": {"minMember": 2},
    }
    made_by_another = await world.make(document)
    await asyncio.sleep(0.5)
    await world.settled(scheduler, quiet=0.5)
    assert (await world.get(X_K8S, "g"))["metadata"] == made_by_another["metadata"]

"""Jobs whose operators create their PodGroups: every command accepts the name of the job.

Tests play the operators.
"""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.kube.paths import Resource
from tests.e2e.test_job_command import run
from tests.e2e.test_list_commands import cluster_wide
from tests.e2e.world import PODS, Object, World, pod

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

PYTORCH_JOBS = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
RAY_CLUSTERS = Resource("ray.io", "v1", "rayclusters", "RayCluster")
RAY_JOBS = Resource("ray.io", "v1", "rayjobs", "RayJob")
POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")


def definition(resource: Resource) -> Object:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {"plural": resource.plural, "kind": resource.kind},
            "versions": [{"name": resource.version, "served": True, "storage": True, "schema": schema}],
        },
    }


async def made(world: World, resource: Resource, name: str, owner: Object | None = None, **spec: Any) -> Object:
    metadata: Object = {"name": name}
    if owner is not None:
        metadata["ownerReferences"] = [reference(owner)]
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**head, **await world.make({**head, "metadata": metadata, "spec": spec})}


def reference(owner: Object) -> Object:
    name, uid = owner["metadata"]["name"], owner["metadata"]["uid"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name,
        "uid": uid,
        "controller": True,
    }


async def members(world: World, owner: Object, group: str, count: int) -> None:
    for index in range(count):
        name = f"{owner['metadata']['name']}-{index}"
        document = pod(name, annotations={"scheduling.k8s.io/group-name": group})
        document["metadata"]["ownerReferences"] = [reference(owner)]
        await world.make(document)


async def test_why_and_cancel_accept_the_name_of_the_job_that_owns_the_group(world: World) -> None:
    """As in KubeRay, the RayJob owns its PodGroup, and the RayCluster owns its pods."""
    await world.node("small", cpu="1")
    for kind in (RAY_JOBS, RAY_CLUSTERS):
        await world.make(definition(kind))
    job = await made(world, RAY_JOBS, "rj")
    await made(world, POD_GROUPS, "ray-rj-pg", job, minMember=3)
    code, output = await run(world, "why", "rayjob/rj")
    assert (code, f"Gang {world.namespace}/rj: Pending (NotEnoughMembers)" in output) == (0, True), output

    cluster = await made(world, RAY_CLUSTERS, "rj-abc", job)
    await members(world, cluster, "ray-rj-pg", 3)
    await made(world, RAY_CLUSTERS, "bare")
    for name in ("rayjob/rj", "rj", "raycluster/rj-abc", "rayclusters.ray.io/rj-abc", "ray-rj-pg"):
        code, output = await run(world, "why", name)
        assert (code, f"Gang {world.namespace}/rj: Pending" in output) == (0, True), f"{name}: {output}"
    for name in ("rayjob/rj", "rj", "rj-abc", "ray-rj-pg"):
        code, output = await run(world, "cancel", name, "--dry-run")
        assert (code, "rayjob/rj in namespace" in output, "3 pods" in output) == (0, True, True), output
    code, output = await run(world, "hold", "rj")
    assert (code, "shutdownAfterJobFinishes" in output) == (1, True), output
    for name in ("bare", "raycluster/bare"):
        code, output = await run(world, "why", name)
        assert (code, "raycluster/bare has neither pods nor a PodGroup" in output) == (1, True), output
    code, output = await cluster_wide(world, "what-if", "--gang", f"{world.namespace}/rj")
    assert (code, f"{world.namespace}/rj (3 pods)" in output) == (0, True), output
    for command in (("jobs", "-o", "name"), ("order", "-o", "name"), ("jobs", "--start", "-o", "name")):
        code, output = await run(world, *command)
        assert (code, output.split()) == (0, ["rayjob/rj"]), f"{command}: {output}"

    # Of several gangs of one job it is the one that waits.
    await made(world, POD_GROUPS, "another", job, minMember=1)
    await members(world, await made(world, RAY_CLUSTERS, "a", job), "another", 1)
    target = {"apiVersion": "v1", "kind": "Node", "name": "small"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a-0"}, "target": target}
    await world.client.create(PODS.path(world.namespace, "a-0", "binding"), binding)
    code, output = await cluster_wide(world, "what-if", "--gang", f"{world.namespace}/rj")
    assert (code, f"{world.namespace}/rj/ray-rj-pg (3 pods)" in output) == (0, True), output


async def test_pods_of_a_raycluster_are_shown_by_the_rayjob_that_made_it(world: World) -> None:
    await world.node("small", cpu="1")
    for kind in (RAY_JOBS, RAY_CLUSTERS):
        await world.make(definition(kind))
    job = await made(world, RAY_JOBS, "sub")
    cluster = await made(world, RAY_CLUSTERS, "sub-x7", job, workerGroupSpecs=[{"groupName": "w", "replicas": 2}])
    for name, role in (("head", "head"), ("w-0", "worker"), ("w-1", "worker")):
        document = pod(name)
        document["metadata"]["ownerReferences"] = [reference(cluster)]
        document["metadata"]["labels"] = {
            "ray.io/node-type": role,
            "ray.io/group": "w" if role == "worker" else "headgroup",
        }
        await world.make(document)
    for command in (("jobs", "-o", "name"), ("order", "-o", "name"), ("jobs", "--start", "-o", "name")):
        code, output = await run(world, *command)
        assert (code, output.split()) == (0, ["rayjob/sub"]), f"{command}: {output}"
    for name in ("sub", "rayjob/sub", "sub-x7", "raycluster/sub-x7"):
        code, output = await run(world, "why", name)
        assert (code, f"Gang {world.namespace}/sub: Pending" in output) == (0, True), f"{name}: {output}"
        code, output = await run(world, "cancel", name, "--dry-run")
        assert (code, "rayjob/sub in namespace" in output) == (0, True), f"{name}: {output}"


async def test_a_job_that_is_suspended_has_no_group_and_still_its_name(world: World) -> None:
    """As in training-operator, which deletes the PodGroup of a suspended job."""
    await world.make(definition(PYTORCH_JOBS))
    job = await made(world, PYTORCH_JOBS, "train")
    await made(world, POD_GROUPS, "train", job, minMember=2)
    await members(world, job, "train", 2)

    async def suspended() -> Any:
        found = await world.get(PYTORCH_JOBS, "train")
        return found["spec"].get("runPolicy", {}).get("suspend")

    code, output = await run(world, "hold", "train")
    assert (code, await suspended()) == (0, True), output
    await world.delete(PODS, "train-0", "train-1")
    code, output = await run(world, "why", "train")  # other operators leave the group in place
    assert (code, "pytorchjob/train is suspended" in output, "phalanx release" in output) == (0, True, True), output
    await world.delete(POD_GROUPS, "train")
    for name in ("train", "pytorchjob/train"):
        code, output = await run(world, "why", name)
        assert (code, "it is suspended" in output, "phalanx release pytorchjob/train" in output) == (1, True, True)
    code, output = await run(world, "release", "train")
    assert (code, await suspended()) == (0, False), output
    for name in ("train", "pytorchjob/train"):
        for order, value in (("suspend", True), ("resume", False)):
            code, output = await run(world, "job", order, name)
            assert (code, await suspended()) == (0, value), output
    await run(world, "hold", "train")
    code, output = await run(world, "cancel", "train", "--yes")
    assert (code, "pytorchjob/train cancelled" in output) == (0, True), output


async def test_group_that_waits_for_admission_without_pods_is_listed_with_its_reason(world: World) -> None:
    await world.node("small", cpu="1")
    await world.make(definition(PYTORCH_JOBS))
    await world.scheduler()
    job = await made(world, PYTORCH_JOBS, "large")
    await made(world, POD_GROUPS, "large", job, minMember=2, minResources={"cpu": "40"})

    async def told() -> bool:
        code, output = await run(world, "jobs")
        return code == 0 and "(AwaitingAdmission)" in output

    await world.until(told, "the list says what the group waits for")

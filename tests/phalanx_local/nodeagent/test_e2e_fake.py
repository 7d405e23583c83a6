"""Pretended pods on pretended nodes, over HTTP against the embedded API server."""

from __future__ import annotations

import asyncio
import shutil
from typing import Any

import pytest

from phalanx.kube.client import PatchType
from phalanx_local.nodeagent.node_file import NodeFileError
from phalanx_local.nodeagent.node_registration import Adoption
from phalanx_local.nodeagent.pod_runtime.images import Images

from .pods import container, manifest
from .world import NODES, PATIENCE, PODS, World, condition

pytestmark = pytest.mark.e2e

TWO = "[{name: 'n{i}', count: 2, allocatable: {cpu: 8, memory: 16Gi, nvidia.com/gpu: 4}}]"
ONE = "[{name: n0, allocatable: {cpu: 8, memory: 16Gi, nvidia.com/gpu: 4}}]"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


def gpus(count: int) -> list[dict[str, Any]]:
    amounts = {"nvidia.com/gpu": str(count)}
    return [container(resources={"requests": amounts, "limits": amounts})]


async def test_nodes_of_the_file_are_ready_and_have_a_lease(world: World) -> None:
    await world.start(
        "[{name: n0, allocatable: {cpu: 8}, labels: {zone: a}, taints: [{key: gpu, effect: NoSchedule}]}]"
    )
    node = await world.until(f"{NODES}/n0", lambda node: condition(node, "Ready") == "True")
    assert node["metadata"]["labels"] | {"zone": "a", "kubernetes.io/hostname": "n0"} == node["metadata"]["labels"]
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["gpu"]
    assert node["status"]["allocatable"]["cpu"] == "8"
    lease = await world.get(f"{LEASES}/n0")
    assert lease is not None
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseDurationSeconds"]) == ("n0", 40)
    assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]


async def test_a_pod_runs_and_succeeds(world: World) -> None:
    await world.start(TWO)
    made = await world.create(manifest("a", notes={"run-seconds": "0.1"}))
    changes = await world.changes_until_phase(made, "Succeeded")
    running = next(pod for pod in changes if pod["status"]["phase"] == "Running")
    assert condition(running, "Ready") == "True"
    assert condition(running, "PodScheduled") == "True"
    assert running["status"]["podIP"].startswith("10.")
    done = changes[-1]
    assert done["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert done["status"]["podIP"] == running["status"]["podIP"]


async def test_pod_that_does_not_fit_is_rejected_with_an_event(world: World) -> None:
    await world.start(ONE)
    await world.create(manifest("a", containers=gpus(3)))
    await world.until_phase("a", "Running")
    await world.create(manifest("b", containers=gpus(2)))
    refused = await world.until_phase("b", "Failed")
    assert refused["status"]["reason"] == "OutOfnvidia.com/gpu"
    await world.until(
        "/api/v1/namespaces/default/events",
        lambda events: [e["reason"] for e in events["items"]] == ["OutOfnvidia.com/gpu"],
    )


async def test_deleted_pod_is_removed_after_its_end_is_published(world: World) -> None:
    await world.start(ONE)
    await world.create(manifest("a", containers=gpus(4)))
    await world.until_phase("a", "Running")
    await world.client.delete(f"{PODS}/a")
    await world.until_gone(f"{PODS}/a")
    await world.create(manifest("b", containers=gpus(4)))
    await world.until_phase("b", "Running")


async def test_the_file_is_followed_while_the_agent_runs(world: World) -> None:
    await world.start(ONE)
    await world.create(manifest("a", policy="Always"))
    await world.until_phase("a", "Running")
    world.write_nodes("[{name: n0, allocatable: {cpu: 9}}, {name: late, allocatable: {cpu: 1}}]")
    await world.until(f"{NODES}/late", lambda node: condition(node, "Ready") == "True")
    await world.until(f"{NODES}/n0", lambda node: node["status"]["allocatable"] == {"cpu": "9", "pods": "110"})
    world.write_nodes("[{name: late, allocatable: {cpu: 1}}]")
    await world.until_gone(f"{NODES}/n0")
    await world.until_gone(f"{LEASES}/n0")
    drained = await world.get(f"{PODS}/a")
    if drained is not None:  # pod garbage collection may have been faster
        assert drained["status"]["reason"] == "Terminated"
        assert condition(drained, "DisruptionTarget") == "True"


async def test_grown_node_admits_at_once_a_pod_that_it_rejected_before(world: World) -> None:
    await world.start(ONE)
    world.write_nodes(ONE.replace("gpu: 4", "gpu: 8"))
    await world.until(f"{NODES}/n0", lambda node: node["status"]["allocatable"]["nvidia.com/gpu"] == "8")
    await world.create(manifest("a", containers=gpus(8)))
    await world.until_phase("a", "Running")


async def test_mistakes_in_the_file_remove_no_node(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.start(TWO)
    world.write_nodes("[{name: n9, allocatable: {cpu: 1}}, {name: n8, allocatable: {cpu: oops}}]")
    await world.until(f"{NODES}/n9", lambda node: condition(node, "Ready") == "True")
    world.write_nodes("[{name: n7, allocatable: {cpu: 1}")
    async with asyncio.timeout(PATIENCE):
        while "the nodes stay as they are" not in caplog.text:  # noqa: ASYNC110 - the state is the agent's
            await asyncio.sleep(0.005)
    # The corrected file removes n1; removals of earlier files would be visible by then.
    world.write_nodes(ONE.replace("]", ", {name: n9, allocatable: {cpu: 1}}]"))
    await world.until_gone(f"{NODES}/n1")
    nodes = await world.client.list_all(NODES)
    assert sorted(node["metadata"]["name"] for node in nodes["items"]) == ["n0", "n9"]


async def test_a_file_that_cannot_be_read_stops_the_start(world: World) -> None:
    with pytest.raises(NodeFileError, match=r"nodes\.yaml"):
        await world.start("{")


async def test_marked_nodes_are_adopted_and_unmarked_ones_ignored(world: World) -> None:
    await world.start(None)

    def node(name: str, **notes: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "annotations": notes},
            "spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "4", "pods": "10"}, "capacity": {"cpu": "4", "pods": "10"}},
        }

    await world.client.create(NODES, node("mine", **{"phalanx.dev/fake": "true"}))
    await world.client.create(NODES, node("theirs"))
    for name in ("mine", "theirs"):
        await world.create(manifest(f"on-{name}", node=name))
    await world.until(
        f"{NODES}/mine", lambda node: condition(node, "Ready") == "True" and not node["spec"].get("taints")
    )
    await world.until_phase("on-mine", "Running")
    theirs, pod = await world.get(f"{NODES}/theirs"), await world.get(f"{PODS}/on-theirs")
    assert theirs is not None
    assert pod is not None
    assert theirs["spec"]["taints"]
    assert pod["status"]["phase"] == "Pending"


async def test_all_nodes_means_all_nodes(world: World) -> None:
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "x"}, "status": {"allocatable": {"pods": "3"}}}
    await world.client.create(NODES, body)
    await world.create(manifest("a", node="x"))
    await world.start(None, adoption=Adoption.ALL)
    await world.until_phase("a", "Running")


async def test_a_new_agent_takes_over_without_losing_anything(world: World) -> None:
    first = await world.start(ONE)
    await world.create(manifest("runs", policy="Always", containers=gpus(3)))
    await world.create(manifest("ends", notes={"run-seconds": "86400"}))
    before = await world.until_phase("runs", "Running")
    await world.until_phase("ends", "Running")
    await world.stop(first)
    # Its time is over while no agent runs.
    await world.patch(f"{PODS}/ends", {"metadata": {"annotations": {"phalanx.dev/run-seconds": "0"}}})
    await world.create(manifest("new", containers=gpus(2)))
    await world.start(ONE)
    await world.until_phase("ends", "Succeeded")
    refused = await world.until_phase("new", "Failed")
    assert refused["status"]["reason"] == "OutOfnvidia.com/gpu"
    after = await world.get(f"{PODS}/runs")
    assert after is not None
    assert after["status"] == before["status"]


async def test_refused_and_lost_status_writes_are_retried_until_they_succeed(world: World) -> None:
    await world.start(ONE)
    world.server.faults.answer("PATCH", r"/pods/a/status$", 500, times=2)
    world.server.faults.answer("PATCH", r"/pods/b/status$", 429, times=1)
    world.server.faults.drop("PATCH", r"/pods/c/status$", after_write=True)
    for name in "abc":
        await world.create(manifest(name, policy="Always"))
    for name in "abc":
        await world.until_phase(name, "Running")
    world.server.faults.answer("DELETE", r"/pods/a$", 503, times=1)
    await world.client.delete(f"{PODS}/b")
    await world.until_gone(f"{PODS}/b")


async def test_broken_watches_lose_nothing(world: World) -> None:
    await world.start(ONE)
    await world.create(manifest("a", policy="Always"))
    await world.until_phase("a", "Running")
    world.server.faults.cut_watches(r"/(pods|nodes)$")
    await world.client.delete(f"{PODS}/a")
    await world.create(manifest("b", policy="Always"))
    await world.until_phase("b", "Running")
    await world.until_gone(f"{PODS}/a")


async def test_node_deleted_by_a_user_is_not_recreated(world: World) -> None:
    await world.start(TWO)
    await world.client.delete(f"{NODES}/n0")
    await world.create(manifest("late", node="n1"))
    await world.until_phase("late", "Running")
    assert await world.get(f"{NODES}/n0") is None
    world.write_nodes(TWO.replace("cpu: 8", "cpu: 9"))
    await world.until(f"{NODES}/n0", lambda node: node["status"]["allocatable"]["cpu"] == "9")


async def test_the_not_ready_taint_of_a_silent_kubelet_is_taken_away_and_no_other(world: World) -> None:
    await world.start(ONE)
    taints = [
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        {"key": "keep", "effect": "NoSchedule"},
    ]
    await world.patch(f"{NODES}/n0", {"spec": {"taints": taints}})
    await world.until(f"{NODES}/n0", lambda node: [taint["key"] for taint in node["spec"]["taints"]] == ["keep"])


async def test_node_marked_unready_by_a_user_becomes_ready_again(world: World) -> None:
    await world.start(ONE)
    lost = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    await world.patch(f"{NODES}/n0/status", lost, PatchType.STRATEGIC)
    await world.until(f"{NODES}/n0", lambda node: condition(node, "Ready") == "True")


async def test_a_resize_is_carried_out_or_explained(world: World) -> None:
    await world.start(ONE)
    cpu = [container(resources={"requests": {"cpu": "2"}})]
    await world.create(manifest("a", policy="Always", containers=cpu))
    await world.until_phase("a", "Running")

    def to(amount: str) -> dict[str, Any]:
        return {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": amount}}}]}}

    await world.patch(f"{PODS}/a/resize", to("9"), PatchType.STRATEGIC)
    await world.until(f"{PODS}/a", lambda pod: condition(pod, "PodResizePending") == "True")
    await world.patch(f"{PODS}/a/resize", to("8"), PatchType.STRATEGIC)
    grown = await world.until(f"{PODS}/a", lambda pod: condition(pod, "PodResizePending") == "")
    assert grown["status"]["containerStatuses"][0]["allocatedResources"] == {"cpu": "8"}
    assert condition(grown, "PodScheduled") == "True"


@needs_kubectl
async def test_kubectl_shows_the_pod_and_its_log(world: World) -> None:
    await world.start(ONE)
    await world.create(manifest("a", policy="Always", notes={"log": "step 1\nstep 2"}))
    await world.until_phase("a", "Running")
    assert "1/1     Running" in await world.kubectl("get", "pod", "a")
    log = await world.kubectl("logs", "a")
    assert "container main of default/a pretends to run example/image on node n0" in log
    assert log.endswith("step 1\nstep 2\n")
    assert await world.kubectl("logs", "a", "--tail=1") == "step 2\n"
    described = await world.kubectl("describe", "pod", "a")
    node = await world.get(f"{NODES}/n0")
    assert node is not None
    assert f"Node:             n0/{node['status']['addresses'][0]['address']}" in described
    assert "Ready                       True" in described
    assert "n0     Ready" in await world.kubectl("get", "nodes")
    await world.kubectl("wait", "--for=condition=Ready", "pod/a", "--timeout=5s")
    assert 'pod "a" deleted' in await world.kubectl("delete", "pod", "a")


@needs_kubectl
async def test_the_log_of_a_finished_pod_can_still_be_read(world: World) -> None:
    await world.start(ONE)
    await world.create(manifest("a", notes={"run-seconds": "0", "exit-code": "2"}))
    await world.until_phase("a", "Failed")
    assert "ends with exit code 2" in await world.kubectl("logs", "a")


async def test_each_node_has_an_address_that_its_pods_report(world: World) -> None:
    agent = await world.start(TWO)
    await world.create(manifest("a", hostNetwork=True))
    await world.create(manifest("b", node="n1"))
    addresses = {}
    for name in ("n0", "n1"):
        node = await world.get(f"{NODES}/{name}")
        assert node is not None
        stated = {item["type"]: item["address"] for item in node["status"]["addresses"]}
        addresses[name] = stated["InternalIP"]
        assert stated["InternalDNS"] == "localhost"  # where its logs are read
    assert len(set(addresses.values())) == 2
    here = (await world.until_phase("a", "Running"))["status"]
    assert (here["hostIP"], here["podIP"]) == (addresses["n0"], addresses["n0"])
    there = (await world.until_phase("b", "Running"))["status"]
    assert (there["hostIP"], there["hostIPs"]) == (addresses["n1"], [{"ip": addresses["n1"]}])
    await world.stop(agent)
    await world.start(TWO)
    node = await world.get(f"{NODES}/n1")
    assert node is not None
    assert node["status"]["addresses"][0]["address"] == addresses["n1"]


async def test_a_node_s_own_address_stays(world: World) -> None:
    await world.start(ONE)
    own = [{"type": "InternalIP", "address": "192.168.77.10"}]
    await world.patch(f"{NODES}/n0/status", {"status": {"addresses": own}}, PatchType.STRATEGIC)
    await world.create(manifest("a"))
    assert (await world.until_phase("a", "Running"))["status"]["hostIP"] == "192.168.77.10"


async def test_allocatable_follows_a_patched_capacity(world: World) -> None:
    await world.start(ONE)

    async def state(**capacity: str | None) -> None:
        await world.patch(f"{NODES}/n0/status", {"status": {"capacity": capacity}})

    async def offers(name: str, amount: str | None) -> None:
        await world.until(f"{NODES}/n0", lambda node: node["status"]["allocatable"].get(name) == amount)

    await state(**{"example.com/fpga": "5"})
    await offers("example.com/fpga", "5")
    await state(**{"example.com/fpga": "7"})
    await offers("example.com/fpga", "7")
    # One is broken: that is not undone.
    await world.patch(f"{NODES}/n0/status", {"status": {"allocatable": {"example.com/fpga": "6"}}})
    await state(**{"example.com/other": "1"})
    await offers("example.com/other", "1")
    await offers("example.com/fpga", "6")
    await state(**{"example.com/fpga": None})
    await offers("example.com/fpga", None)


async def test_a_container_that_has_started_states_its_resources(world: World) -> None:
    await world.start(ONE)
    await world.create(manifest("a", containers=gpus(1)))
    await world.create(manifest("b"))
    status = (await world.until_phase("a", "Running"))["status"]["containerStatuses"][0]
    amounts = {"nvidia.com/gpu": "1"}
    assert (status["resources"], status["allocatedResources"]) == (
        {"requests": amounts, "limits": amounts},
        amounts,
    )
    status = (await world.until_phase("b", "Running"))["status"]["containerStatuses"][0]
    assert status["resources"] == {}
    assert "allocatedResources" not in status


JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "work"},
    "spec": {
        "parallelism": 2,
        "completions": 2,
        "template": {"spec": {"nodeName": "n0", "restartPolicy": "Never", "containers": [container()]}},
    },
}


@needs_kubectl
@pytest.mark.parametrize("cascade", ["background", "foreground"])
async def test_kubectl_deletes_a_job_and_a_namespace_with_running_pods(world: World, cascade: str) -> None:
    await world.start(ONE)
    await world.kubectl("create", "namespace", "team")
    for namespace in ("default", "team"):
        pods = f"/api/v1/namespaces/{namespace}/pods"
        await world.client.create(f"/apis/batch/v1/namespaces/{namespace}/jobs", JOB)
        await world.until(pods, lambda found: [pod["status"]["phase"] for pod in found["items"]] == ["Running"] * 2)
    await world.kubectl("delete", "job", "work", f"--cascade={cascade}", "--timeout=20s")
    await world.until(PODS, lambda found: found["items"] == [])
    await world.kubectl("delete", "namespace", "team", "--timeout=20s")
    assert "team" not in await world.kubectl("get", "namespaces")


CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


async def test_a_pod_starts_when_its_claim_is_allocated_and_reserved_for_it(world: World) -> None:
    await world.start(ONE)
    device = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    await world.client.create(CLAIMS, {"metadata": {"name": "one"}, "spec": {"devices": {"requests": [device]}}})
    claims = [{"name": "gpu", "resourceClaimName": "one"}]
    made = await world.create(
        manifest("a", containers=[container(resources={"claims": [{"name": "gpu"}]})], resourceClaims=claims)
    )
    await world.until(
        "/api/v1/namespaces/default/events",
        lambda events: [event["reason"] for event in events["items"]] == ["FailedPrepareDynamicResources"],
    )
    waiting = await world.until(f"{PODS}/a", lambda pod: "containerStatuses" in pod["status"])
    assert waiting["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ContainerCreating"
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "n0", "device": "gpu-0"}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "a", "uid": made["metadata"]["uid"]}],
    }
    await world.patch(f"{CLAIMS}/one/status", {"status": status})
    await world.until_phase("a", "Running")


async def test_a_missing_image_keeps_the_pod_pending(world: World) -> None:
    await world.start(ONE, images=Images(("registry.invalid/*",)))
    await world.create(manifest("a", containers=[container(image="registry.invalid/none:1")]))
    pod = await world.until(
        f"{PODS}/a",
        lambda pod: "ImagePullBackOff" in str(pod["status"].get("containerStatuses")),
    )
    assert pod["status"]["phase"] == "Pending"
    await world.client.delete(f"{PODS}/a")
    await world.until_gone(f"{PODS}/a")

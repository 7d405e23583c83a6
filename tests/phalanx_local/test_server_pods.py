"""Pods: defaults of the server, and the states from pending over bound to deleted."""

from __future__ import annotations

import pytest
from aiohttp import web

from phalanx_local.server import ApiServer
from tests.phalanx_local.client import NODES, PODS, Client, binding, node, pod

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


async def test_defaults_that_schedulers_and_kubelets_rely_on(client: Client) -> None:
    made = await client.create(PODS, pod("p"))
    spec = made["spec"]
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["serviceAccountName"] == "default"
    assert spec["priority"] == 0
    assert spec["preemptionPolicy"] == "PreemptLowerPriority"
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert made["metadata"]["generation"] == 1


async def test_limits_become_requests_where_none_are_stated(client: Client) -> None:
    resources = {"limits": {"cpu": "2", "example.com/gpu": "1"}, "requests": {"cpu": "1"}}
    made = await client.create(PODS, pod("p", containers=[{"name": "a", "image": "b", "resources": resources}]))
    requests = made["spec"]["containers"][0]["resources"]["requests"]
    assert requests == {"cpu": "1", "example.com/gpu": "1"}
    assert made["status"]["qosClass"] == "Burstable"


async def test_equal_cpu_and_memory_make_a_guaranteed_pod(client: Client) -> None:
    resources = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "2000m", "memory": "1Gi"}}
    made = await client.create(PODS, pod("p", containers=[{"name": "a", "image": "b", "resources": resources}]))
    assert made["status"]["qosClass"] == "Guaranteed"


async def test_host_network_gives_host_ports(client: Client) -> None:
    container = {"name": "a", "image": "b", "ports": [{"containerPort": 80}]}
    made = await client.create(PODS, pod("p", hostNetwork=True, containers=[container]))
    assert made["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]


async def test_pods_tolerate_lost_nodes_for_five_minutes(client: Client) -> None:
    own = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    made = await client.create(PODS, pod("p", tolerations=[own]))
    assert [item["key"] for item in made["spec"]["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    assert "tolerationSeconds" not in made["spec"]["tolerations"][0]
    assert made["spec"]["tolerations"][1]["tolerationSeconds"] == 300


async def test_priority_classes_become_numbers(client: Client) -> None:
    await client.create(CLASSES, {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"})
    made = await client.create(PODS, pod("p", priorityClassName="high"))
    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (1000, "Never")
    critical = await client.create(PODS, pod("c", priorityClassName="system-node-critical"))
    assert critical["spec"]["priority"] == 2_000_001_000

    reply = await client.call("POST", PODS, pod("x", priorityClassName="none"))
    assert (reply.status, reply.reason) == (403, "Forbidden")
    assert "no PriorityClass with name none was found" in reply.body["message"]
    reply = await client.call("POST", PODS, pod("x", priorityClassName="high", priority=5))
    assert reply.status == 403


async def test_the_default_priority_class_is_for_pods_without_one(client: Client) -> None:
    await client.create(CLASSES, {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True})
    made = await client.create(PODS, pod("p"))
    assert (made["spec"]["priorityClassName"], made["spec"]["priority"]) == ("usual", 7)
    reply = await client.call("POST", CLASSES, {"metadata": {"name": "other"}, "value": 8, "globalDefault": True})
    assert reply.status == 403


async def test_a_pod_runs_as_a_service_account_that_exists(client: Client) -> None:
    reply = await client.call("POST", PODS, pod("p", serviceAccountName="robot"))
    assert (reply.status, reply.reason) == (403, "Forbidden")
    assert 'serviceaccount "robot" not found' in reply.body["message"]
    await client.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "robot"}})
    await client.create(PODS, pod("p", serviceAccountName="robot"))


async def test_a_gated_pod_says_so_itself(client: Client) -> None:
    made = await client.create(PODS, pod("p", schedulingGates=[{"name": "example.com/wait"}]))
    assert made["status"]["conditions"][0]["lastProbeTime"] is None
    condition = made["status"]["conditions"][0]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "PodScheduled",
        "False",
        "SchedulingGated",
    )


async def test_gates_are_removed_and_never_added(client: Client) -> None:
    await client.create(PODS, pod("p", schedulingGates=[{"name": "example.com/wait"}]))
    narrowed = await client.merge(f"{PODS}/p", {"spec": {"nodeSelector": {"zone": "a"}}})
    assert narrowed["spec"]["nodeSelector"] == {"zone": "a"}
    freed = await client.merge(f"{PODS}/p", {"spec": {"schedulingGates": None}})
    assert "schedulingGates" not in freed["spec"]
    reply = await client.call(
        "PATCH",
        f"{PODS}/p",
        {"spec": {"schedulingGates": [{"name": "example.com/again"}]}},
        content_type="application/merge-patch+json",
    )
    assert reply.status == 422


@pytest.mark.parametrize(
    "change",
    [
        {"nodeName": "n"},
        {"schedulerName": "other"},
        {"nodeSelector": {"a": "b"}},
        {"priority": 5},
        {"schedulingGroup": {"podGroupName": "g"}},
        {"restartPolicy": "Never"},
    ],
)
async def test_most_of_a_pod_s_spec_is_fixed(client: Client, change: dict[str, object]) -> None:
    await client.create(PODS, pod("p"))
    reply = await client.call("PATCH", f"{PODS}/p", {"spec": change}, content_type="application/merge-patch+json")
    assert reply.status == 422
    assert "pod updates may not change fields other than" in reply.body["message"]


async def test_images_and_further_tolerations_may_change(client: Client) -> None:
    made = await client.create(PODS, pod("p"))
    made["spec"]["containers"][0]["image"] = "other"
    made["spec"]["tolerations"].append({"key": "a", "operator": "Exists"})
    put = await client.ok("PUT", f"{PODS}/p", made)
    assert put["metadata"]["generation"] == 2


async def test_binding_assigns_a_pod_to_a_node(client: Client) -> None:
    await client.create(NODES, node("n"))
    made = await client.create(PODS, pod("p"))
    await client.merge(f"{PODS}/p/status", {"status": {"nominatedNodeName": "m"}})
    meta = {
        "uid": made["metadata"]["uid"],
        "annotations": {"a": "1"},
        "labels": {"topology.kubernetes.io/zone": "z"},
    }
    reply = await client.call("POST", f"{PODS}/p/binding", binding("p", "n", **meta))
    assert reply.status == 201
    assert (reply.body["kind"], reply.body["status"]) == ("Status", "Success")
    bound = await client.get(f"{PODS}/p")
    assert bound["spec"]["nodeName"] == "n"
    assert bound["metadata"]["annotations"] == {"a": "1"}
    assert bound["metadata"]["labels"] == {"topology.kubernetes.io/zone": "z"}
    assert bound["metadata"]["generation"] == 1
    assert "nominatedNodeName" not in bound["status"]
    scheduled = bound["status"]["conditions"][0]
    assert (scheduled["type"], scheduled["status"]) == ("PodScheduled", "True")
    assert scheduled["lastTransitionTime"] == "2027-01-15T08:00:00Z"


async def test_older_bindings_resource_binds_too(client: Client) -> None:
    await client.create(NODES, node("n"))
    await client.create(PODS, pod("p"))
    reply = await client.call("POST", "/api/v1/namespaces/default/bindings", binding("p", "n"))
    assert reply.status == 201
    assert (await client.get(f"{PODS}/p"))["spec"]["nodeName"] == "n"


async def test_a_pod_is_bound_once(client: Client) -> None:
    await client.create(NODES, node("n"))
    await client.create(PODS, pod("p"))
    await client.ok("POST", f"{PODS}/p/binding", binding("p", "n"))
    for target in ("n", "m"):
        reply = await client.call("POST", f"{PODS}/p/binding", binding("p", target))
        assert (reply.status, reply.reason) == (409, "Conflict")
        assert 'pod p is already assigned to node "n"' in reply.body["message"]


async def test_bindings_that_are_refused(client: Client) -> None:
    await client.create(NODES, node("n"))
    made = await client.create(PODS, pod("p"))
    await client.create(PODS, pod("gated", schedulingGates=[{"name": "example.com/wait"}]))
    held = pod("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await client.create(PODS, held)
    await client.ok("DELETE", f"{PODS}/held")

    async def status(name: str, body: dict[str, object]) -> int:
        return (await client.call("POST", f"{PODS}/{name}/binding", body)).status

    assert await status("p", binding("p", "n", uid="another")) == 409
    assert await status("p", binding("p", "n", resourceVersion="1")) == 409
    assert await status("gated", binding("gated", "n")) == 409
    assert await status("held", binding("held", "n")) == 409
    assert await status("none", binding("none", "n")) == 404
    assert await status("p", binding("q", "n")) == 400
    assert await status("p", {"target": {"kind": "Node", "name": "n"}}) == 400
    # upstream finds no better word for a bad target
    assert await status("p", binding("p", "")) == 500
    assert await status("p", {"metadata": {"name": "p"}, "target": {"kind": "Pod", "name": "x"}}) == 500
    assert (await client.get(f"{PODS}/p"))["metadata"]["resourceVersion"] == (made["metadata"]["resourceVersion"])


async def test_pod_that_no_kubelet_runs_is_deleted_at_once(client: Client) -> None:
    await client.create(PODS, pod("p"))
    await client.ok("DELETE", f"{PODS}/p")
    assert (await client.call("GET", f"{PODS}/p")).status == 404


async def test_bound_pod_is_deleted_when_its_kubelet_confirms(client: Client) -> None:
    await client.create(NODES, node("n"))
    await client.create(PODS, pod("p", terminationGracePeriodSeconds=60))
    await client.ok("POST", f"{PODS}/p/binding", binding("p", "n"))
    dying = await client.ok("DELETE", f"{PODS}/p")
    assert dying["metadata"]["deletionGracePeriodSeconds"] == 60
    assert dying["metadata"]["deletionTimestamp"] == "2027-01-15T08:01:00Z"
    longer = await client.ok("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 90})
    assert longer["metadata"]["deletionGracePeriodSeconds"] == 60
    shorter = await client.ok("DELETE", f"{PODS}/p", gracePeriodSeconds="5")
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    assert shorter["metadata"]["deletionTimestamp"] == "2027-01-15T08:00:05Z"
    await client.ok("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert (await client.call("GET", f"{PODS}/p")).status == 404


async def test_a_finished_pod_needs_no_grace(client: Client) -> None:
    await client.create(NODES, node("n"))
    await client.create(PODS, pod("p"))
    await client.ok("POST", f"{PODS}/p/binding", binding("p", "n"))
    await client.merge(f"{PODS}/p/status", {"status": {"phase": "Succeeded"}})
    await client.ok("DELETE", f"{PODS}/p")
    assert (await client.call("GET", f"{PODS}/p")).status == 404


async def test_a_finalizer_holds_a_pod_beyond_its_grace(client: Client) -> None:
    body = pod("p")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    await client.create(NODES, node("n"))
    await client.create(PODS, body)
    await client.ok("POST", f"{PODS}/p/binding", binding("p", "n"))
    await client.ok("DELETE", f"{PODS}/p")
    await client.ok("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
    held = await client.get(f"{PODS}/p")
    assert held["metadata"]["deletionGracePeriodSeconds"] == 0
    await client.merge(f"{PODS}/p", {"metadata": {"finalizers": []}})
    assert (await client.call("GET", f"{PODS}/p")).status == 404


async def test_nominating_a_bound_pod_is_refused(client: Client) -> None:
    await client.create(NODES, node("n"))
    await client.create(PODS, pod("p"))
    await client.ok("POST", f"{PODS}/p/binding", binding("p", "n"))
    reply = await client.call(
        "PATCH",
        f"{PODS}/p/status",
        {"status": {"nominatedNodeName": "m"}},
        content_type="application/merge-patch+json",
    )
    assert reply.status == 422


async def test_resize_and_ephemeral_containers_are_endpoints_of_their_own(client: Client) -> None:
    resources = {"requests": {"cpu": "1"}}
    await client.create(PODS, pod("p", containers=[{"name": "a", "image": "b", "resources": resources}]))
    change = {"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "2"}}}]}}
    strategic = "application/strategic-merge-patch+json"
    assert (await client.call("PATCH", f"{PODS}/p", change, content_type=strategic)).status == 422
    resized = await client.ok("PATCH", f"{PODS}/p/resize", change, content_type=strategic)
    assert resized["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2"}
    debug = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox"}]}}
    debugged = await client.ok("PATCH", f"{PODS}/p/ephemeralcontainers", debug, content_type=strategic)
    assert debugged["spec"]["ephemeralContainers"][0]["name"] == "debug"


async def test_logs_of_pods_that_do_not_run_are_not_there(client: Client, server: ApiServer) -> None:
    await client.create(PODS, pod("p"))
    reply = await client.call("GET", f"{PODS}/p/log")
    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert "waiting to start" in reply.body["message"]
    reply = await client.call("GET", f"{PODS}/p/log", container="none")
    assert "container none is not valid for pod p" in reply.body["message"]


async def test_quantities_are_kept_in_their_canonical_spelling(client: Client) -> None:
    limits = {"cpu": "2000m", "memory": "1024Mi", "example.com/gpu": 1}
    made = await client.create(
        PODS, pod("p", containers=[{"name": "a", "image": "b", "resources": {"limits": limits}}])
    )
    assert made["spec"]["containers"][0]["resources"]["requests"] == {
        "cpu": "2",
        "memory": "1Gi",
        "example.com/gpu": "1",
    }
    registered = await client.create(NODES, node("n", capacity={"cpu": 8, "memory": "0.5Gi"}))
    assert registered["status"]["allocatable"] == {"cpu": "8", "memory": "512Mi"}


async def test_logs_come_from_the_node_s_agent(client: Client) -> None:
    asked: list[str] = []

    async def agent(request: web.BaseRequest) -> web.Response:
        asked.append(request.raw_path)
        if "missing" in request.path:
            return web.Response(status=404, text="no log yet")
        return web.Response(text="hello\nworld\n")

    runner = web.ServerRunner(web.Server(agent))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
    endpoint = {"kubeletEndpoint": {"Port": port}}
    await client.create(NODES, node("n", addresses=addresses, daemonEndpoints=endpoint))
    for name in ("p", "missing"):
        await client.create(PODS, pod(name))
        await client.ok("POST", f"{PODS}/{name}/binding", binding(name, "n"))
    assert await client.get(f"{PODS}/p/log", tailLines="2", follow="true") == "hello\nworld\n"
    assert asked == ["/containerLogs/default/p/main?follow=true&tailLines=2"]
    reply = await client.call("GET", f"{PODS}/missing/log")
    assert (reply.status, reply.body["message"]) == (404, "no log yet")
    await runner.cleanup()
    reply = await client.call("GET", f"{PODS}/p/log")
    assert (reply.status, reply.reason) == (500, "InternalError")


async def test_only_agents_on_this_machine_are_asked_for_logs(client: Client) -> None:
    addresses = [{"type": "InternalIP", "address": "192.0.2.1"}]
    endpoint = {"kubeletEndpoint": {"Port": 10250}}
    await client.create(NODES, node("n", addresses=addresses, daemonEndpoints=endpoint))
    await client.create(PODS, pod("p"))
    await client.ok("POST", f"{PODS}/p/binding", binding("p", "n"))
    reply = await client.call("GET", f"{PODS}/p/log")
    assert (reply.status, reply.reason) == (500, "InternalError")
    assert "has no kubelet endpoint" in reply.body["message"]

"""ResourceQuota: counted amounts, refusals, and their messages; RuntimeClass on pods."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from phalanx_local.server import ApiServer, ServerOptions
from tests.clocks import skip_time
from tests.phalanx_local.client import NODES, PODS, Client, Json, binding, config_map, node, pod
from tests.phalanx_local.conftest import FakeClock, Starter

SPACE = "/api/v1/namespaces/default"
QUOTAS = f"{SPACE}/resourcequotas"


async def limit(client: Client, name: str = "q", **spec: Any) -> None:
    """Return a quota whose hard limits are `hard`."""
    await client.create(QUOTAS, {"metadata": {"name": name}, "spec": spec})


def sized(name: str, requests: Json | None = None, limits: Json | None = None, **spec: Any) -> Json:
    """A pod with one container of a size."""
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    return pod(name, containers=[{"name": "main", "image": "x", "resources": resources}], **spec)


async def used(client: Client, *, name: str = "q", **amounts: str) -> None:
    """Wait until the status of a quota shows this usage (`_` replaces characters that a keyword cannot
    contain).
    """
    wanted = {key.replace("__", "/").replace("_", "."): value for key, value in amounts.items()}
    async with asyncio.timeout(60):
        while True:
            found = (await client.get(f"{QUOTAS}/{name}")).get("status", {}).get("used", {})
            if {key: found.get(key) for key in wanted} == wanted:
                return
            await asyncio.sleep(0.005)


async def test_object_beyond_a_quota_is_refused(client: Client) -> None:
    await limit(client, "two", hard={"pods": "2", "requests.cpu": "4"})
    for name in ("a", "b"):
        await client.create(PODS, sized(name, {"cpu": "500m"}))
    reply = await client.call("POST", PODS, sized("c", {"cpu": "1"}))
    assert (reply.status, reply.reason) == (403, "Forbidden")
    assert reply.body["message"] == (
        'pods "c" is forbidden: exceeded quota: two, requested: pods=1, used: pods=2, limited: pods=2'
    )
    await client.merge(f"{QUOTAS}/two", {"spec": {"hard": {"pods": "9", "requests.cpu": "1500m"}}})
    reply = await client.call("POST", PODS, sized("c", {"cpu": "1"}))
    assert reply.body["message"].endswith(
        "exceeded quota: two, requested: requests.cpu=1, used: requests.cpu=1, limited: requests.cpu=1500m"
    )
    await client.create(PODS, sized("c", {"cpu": "500m"}))
    await used(client, name="two", pods="3", requests_cpu="1500m")
    await client.ok("DELETE", f"{PODS}/a")
    await client.create(PODS, sized("d", {"cpu": "500m"}))


async def test_simultaneous_requests_succeed_up_to_the_quota(client: Client) -> None:
    await limit(client, hard={"pods": "7"})
    replies = await asyncio.gather(*(client.call("POST", PODS, pod(f"p{number}")) for number in range(20)))
    assert sorted(reply.status for reply in replies) == [201] * 7 + [403] * 13
    await used(client, pods="7")


async def test_containers_must_state_counted_resources(client: Client) -> None:
    await limit(client, hard={"requests.cpu": "4", "limits.memory": "1Gi"})
    reply = await client.call("POST", PODS, pod("p"))
    assert reply.body["message"] == (
        'pods "p" is forbidden: failed quota: q: must specify limits.memory for: main; requests.cpu for: main'
    )
    await client.create(PODS, sized("p", {"cpu": "1"}, {"memory": "512Mi"}))
    await used(client, requests_cpu="1", limits_memory="512Mi")


async def test_pod_counts_until_it_has_ended_and_as_an_object_until_it_is_deleted(client: Client) -> None:
    await limit(client, hard={"pods": "1", "count/pods": "2"})
    await client.create(PODS, pod("a"))
    await client.merge(f"{PODS}/a/status", {"status": {"phase": "Succeeded"}})
    await used(client, pods="0", count__pods="1")
    await client.create(PODS, pod("b"))
    reply = await client.call("POST", PODS, pod("c"))
    assert "requested: count/pods=1,pods=1, used: count/pods=2,pods=1" in reply.body["message"]


async def test_pod_past_its_grace_period_does_not_count(
    start: Starter, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client = await start(ServerOptions(insecure=True, clock=clock, controllers=frozenset()))
    await client.create(NODES, node("n"))
    await limit(client, hard={"pods": "1"})
    await client.create(PODS, pod("a", terminationGracePeriodSeconds=5))
    await client.ok("POST", f"{PODS}/a/binding", binding("a", "n"))
    await client.ok("DELETE", f"{PODS}/a")
    assert server.api.quotas is not None
    server.api.quotas.count_again(("default", "a"))
    assert (await client.call("POST", PODS, pod("b"))).status == 403
    clock.seconds += 11
    server.api.quotas.count_again(("default", "a"))
    await client.create(PODS, pod("b"))


async def test_init_containers_sidecars_and_overhead_count_as_the_scheduler_counts_them(client: Client) -> None:
    await limit(client, hard={"requests.cpu": "20", "requests.nvidia.com/gpu": "8", "requests.memory": "8Gi"})

    def container(name: str, cpu: str, **more: Any) -> Json:
        return {"name": name, "image": "x", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}, **more}

    gpu = container("b", "2")
    gpu["resources"]["limits"] = {"nvidia.com/gpu": "2"}
    body = pod("p", containers=[container("a", "1"), gpu])
    body["spec"]["initContainers"] = [
        container("side", "1", restartPolicy="Always"),
        container("init", "7"),
    ]
    await client.create(PODS, body)
    # init beside its sidecar (8) is more than everything that runs together (1 + 2 + 1)
    await used(client, requests_cpu="8", requests_memory="3Gi")
    found = (await client.get(f"{QUOTAS}/q"))["status"]["used"]
    assert found["requests.nvidia.com/gpu"] == "2"


@pytest.mark.parametrize(
    ("spec", "inside", "outside"),
    [
        ({"scopes": ["BestEffort"]}, {}, {"requests": {"cpu": "1"}}),
        ({"scopes": ["NotBestEffort"]}, {"requests": {"cpu": "1"}}, {}),
        ({"scopes": ["Terminating"]}, {"activeDeadlineSeconds": 5}, {}),
        ({"scopes": ["NotTerminating"]}, {}, {"activeDeadlineSeconds": 5}),
        ({"scopes": ["PriorityClass"]}, {"priorityClassName": "high"}, {}),
        (
            {"scopeSelector": {"matchExpressions": [
                {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
            ]}},
            {"priorityClassName": "high"},
            {"priorityClassName": "low"},
        ),
        (
            {"scopeSelector": {"matchExpressions": [
                {"scopeName": "PriorityClass", "operator": "NotIn", "values": ["high"]}
            ]}},
            {"priorityClassName": "low"},
            {"priorityClassName": "high"},
        ),
        (
            {"scopes": ["CrossNamespacePodAffinity"]},
            {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaces": ["other"]}
            ]}}},
            {},
        ),
    ],
)  # fmt: skip
async def test_scopes_choose_the_pods_of_a_quota(client: Client, spec: Json, inside: Json, outside: Json) -> None:
    for name, value in (("high", 10), ("low", 1)):
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        await client.create(path, {"metadata": {"name": name}, "value": value})
    await limit(client, hard={"pods": "1"}, **spec)
    await client.create(PODS, sized("in", **inside))
    assert (await client.call("POST", PODS, sized("in-too", **inside))).status == 403
    await client.create(PODS, sized("out", **outside))
    await client.create(PODS, sized("out-too", **outside))
    await used(client, pods="1")


async def test_objects_of_every_kind_are_counted_by_name(client: Client) -> None:
    await limit(client, hard={"configmaps": "1", "count/deployments.apps": "0", "count/queues.example.com": "1"})
    maps = f"{SPACE}/configmaps"
    await client.create(maps, config_map("a"))
    reply = await client.call("POST", maps, config_map("b"))
    assert "exceeded quota: q, requested: configmaps=1, used: configmaps=1" in reply.body["message"]
    await client.merge(f"{maps}/a", {"data": {"k": "v"}})
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]}
    deployment = {
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    reply = await client.call("POST", "/apis/apps/v1/namespaces/default/deployments", deployment)
    assert reply.body["message"].startswith('deployments.apps "d" is forbidden: exceeded quota: q')
    names = {"plural": "queues", "kind": "Queue"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    definition = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await client.create(crds, {"metadata": {"name": "queues.example.com"}, "spec": definition})
    queues = "/apis/example.com/v1/namespaces/default/queues"
    async with asyncio.timeout(60):
        while (await client.call("GET", queues)).status != 200:  # noqa: ASYNC110 - the state is the server's
            await asyncio.sleep(0.005)
    queue = {"apiVersion": "example.com/v1", "kind": "Queue"}
    await client.create(queues, {**queue, "metadata": {"name": "a"}})
    assert (await client.call("POST", queues, {**queue, "metadata": {"name": "b"}})).status == 403


async def test_services_and_claims_are_measured_and_their_changes_too(client: Client) -> None:
    await limit(
        client,
        hard={
            "services.loadbalancers": "0",
            "services.nodeports": "1",
            "requests.storage": "10Gi",
            "fast.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
        },
    )
    services = f"{SPACE}/services"
    port = {"port": 80}
    await client.create(services, {"metadata": {"name": "s"}, "spec": {"ports": [port]}})
    patch = {"spec": {"type": "LoadBalancer"}}
    reply = await client.call("PATCH", f"{services}/s", patch, content_type="application/merge-patch+json")
    assert "requested: services.loadbalancers=1" in reply.body["message"]
    await client.merge(f"{services}/s", {"spec": {"type": "NodePort"}})
    await used(client, services_nodeports="1")

    def claim(name: str, size: str) -> Json:
        resources = {"requests": {"storage": size}}
        spec = {"accessModes": ["ReadWriteOnce"], "resources": resources, "storageClassName": "fast"}
        return {"metadata": {"name": name}, "spec": spec}

    claims = f"{SPACE}/persistentvolumeclaims"
    reply = await client.call("POST", claims, claim("big", "11Gi"))
    assert "requested: requests.storage=11Gi, used: requests.storage=0, limited: requests.storage=10Gi" in str(
        reply.body["message"]
    )
    await client.create(claims, claim("a", "5Gi"))
    reply = await client.call("POST", claims, claim("b", "1Gi"))
    assert "fast.storageclass.storage.k8s.io/persistentvolumeclaims=1" in reply.body["message"]


async def test_devices_of_claims_are_counted_by_class(client: Client) -> None:
    await limit(client, hard={"gpu.deviceclass.resource.k8s.io/devices": "3"})
    claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"

    def claim(name: str, **exactly: Any) -> Json:
        request = {"name": "r", "exactly": {"deviceClassName": "gpu", **exactly}}
        return {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}

    await client.create(claims, claim("two", allocationMode="ExactCount", count=2))
    assert (await client.call("POST", claims, claim("all", allocationMode="All"))).status == 403
    await client.create(claims, claim("one"))
    assert (await client.call("POST", claims, claim("more"))).status == 403


async def test_a_dry_run_is_checked_and_not_counted(client: Client) -> None:
    await limit(client, hard={"pods": "1"})
    await client.create(PODS, pod("a"), dryRun="All")
    await client.create(PODS, pod("a"))
    assert (await client.call("POST", PODS, pod("b"), dryRun="All")).status == 403


async def test_the_status_is_written_only_when_it_is_untrue(client: Client) -> None:
    await client.create(PODS, pod("a"))
    await limit(client, hard={"pods": "5", "requests.cpu": "1"})
    await used(client, pods="1", requests_cpu="0")
    before = (await client.get(f"{QUOTAS}/q"))["metadata"]["resourceVersion"]
    await client.merge(f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}})
    await client.create(f"{SPACE}/configmaps", config_map("unrelated"))
    await asyncio.sleep(0.05)
    assert (await client.get(f"{QUOTAS}/q"))["metadata"]["resourceVersion"] == before
    await client.merge(f"{QUOTAS}/q/status", {"status": {"used": {"pods": "77"}}})
    await used(client, pods="1")


async def test_a_quota_counts_on_after_a_restart(tmp_path: Path) -> None:
    options = ServerOptions(data=tmp_path / "data", insecure=True)
    for expected in (201, 403):
        server = ApiServer(options)
        await server.start()
        try:
            import aiohttp

            async with aiohttp.ClientSession() as session:
                client = Client(session, server.url)
                if expected == 201:
                    await limit(client, hard={"pods": "1"})
                reply = await client.call("POST", PODS, pod(f"p{expected}"))
                assert reply.status == expected
        finally:
            await server.stop()


# --- runtime classes

CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


async def test_pod_gets_the_fields_of_its_runtime_class(client: Client) -> None:
    toleration = {"key": "sandbox", "operator": "Exists", "effect": "NoSchedule"}
    body = {
        "metadata": {"name": "sandboxed"},
        "handler": "kata",
        "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
        "scheduling": {"nodeSelector": {"sandbox": "yes"}, "tolerations": [toleration]},
    }
    await client.create(CLASSES, body)
    made = await client.create(PODS, pod("p", runtimeClassName="sandboxed", nodeSelector={"zone": "a"}))
    assert made["spec"]["overhead"] == {"cpu": "250m", "memory": "120Mi"}
    assert made["spec"]["nodeSelector"] == {"zone": "a", "sandbox": "yes"}
    assert toleration in made["spec"]["tolerations"]
    same = pod(
        "q", runtimeClassName="sandboxed", overhead={"cpu": "0.25", "memory": "120Mi"}, tolerations=[toleration]
    )
    made = await client.create(PODS, same)
    assert made["spec"]["tolerations"].count(toleration) == 1

    await limit(client, hard={"requests.cpu": "10"})
    await client.create(PODS, sized("r", {"cpu": "1"}, runtimeClassName="sandboxed"))
    await used(client, requests_cpu="1750m")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"runtimeClassName": "none"}, 'pod rejected: RuntimeClass "none" not found'),
        (
            {"runtimeClassName": "kata", "overhead": {"cpu": "1"}},
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
        (
            {"overhead": {"cpu": "1"}},
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
        (
            {"runtimeClassName": "kata", "nodeSelector": {"sandbox": "no"}},
            "conflict: runtimeClass.scheduling.nodeSelector[sandbox] = yes; pod.spec.nodeSelector[sandbox] = no",
        ),
    ],
)
async def test_a_pod_that_contradicts_its_runtime_class_is_refused(client: Client, spec: Json, words: str) -> None:
    body = {
        "metadata": {"name": "kata"},
        "handler": "kata",
        "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"sandbox": "yes"}},
    }
    await client.create(CLASSES, body)
    reply = await client.call("POST", PODS, pod("p", **spec))
    assert (reply.status, reply.body["message"]) == (403, f'pods "p" is forbidden: {words}')


async def test_a_runtime_class_is_checked(client: Client) -> None:
    reply = await client.call("POST", CLASSES, {"metadata": {"name": "x"}, "handler": "Not A Label"})
    assert reply.causes[0][0] == "handler"
    await client.create(CLASSES, {"metadata": {"name": "x"}, "handler": "a"})
    reply = await client.call(
        "PATCH", f"{CLASSES}/x", {"handler": "b"}, content_type="application/merge-patch+json"
    )
    assert reply.causes == [("handler", "FieldValueInvalid")]


async def test_workload_gets_one_event_about_its_missing_pods(client: Client) -> None:
    await limit(client, hard={"pods": "2"})
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]}
    spec = {"replicas": 4, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    await client.create("/apis/apps/v1/namespaces/default/replicasets", {"metadata": {"name": "r"}, "spec": spec})
    events = f"{SPACE}/events"
    async with asyncio.timeout(60):
        while not (await client.get(events))["items"]:  # noqa: ASYNC110 - the state is the server's
            await asyncio.sleep(0.005)
    (event,) = (await client.get(events, fieldSelector="involvedObject.name=r,reason=FailedCreate"))["items"]
    assert "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2" in event["message"]
    assert len(await client.names(PODS)) == 2
    await client.merge(f"{QUOTAS}/q", {"spec": {"hard": {"pods": "4"}}})
    skip_time(1)  # until the controller tries again
    async with asyncio.timeout(60):
        while len(await client.names(PODS)) < 4:  # noqa: ASYNC110 - the state is the server's
            await asyncio.sleep(0.005)
    assert len((await client.get(events))["items"]) == 1

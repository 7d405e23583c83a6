"""Controllers inside the server: garbage collection, namespaces, lost nodes, budgets, protected groups."""

from __future__ import annotations

import asyncio
from typing import Any

from phalanx_local.controllers.event_ttl import EventExpiry
from phalanx_local.server import ApiServer, ServerOptions
from tests.phalanx_local.client import CONFIG_MAPS, NODES, PODS, Client, Json, binding, config_map, node, pod
from tests.phalanx_local.conftest import FakeClock

REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"


def owned(name: str, owner: Json, *, kind: str = "ConfigMap", blocks: bool = False) -> Json:
    body = config_map(name)
    reference: dict[str, Any] = {
        "apiVersion": owner["apiVersion"],
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    if blocks:
        reference["blockOwnerDeletion"] = True
    body["metadata"]["ownerReferences"] = [reference]
    return body


async def test_dependents_are_deleted_after_their_owner(client: Client) -> None:
    owner = await client.create(CONFIG_MAPS, config_map("owner"))
    child = await client.create(CONFIG_MAPS, owned("child", owner))
    await client.create(CONFIG_MAPS, owned("grandchild", child))
    await client.ok("DELETE", f"{CONFIG_MAPS}/owner")
    await client.gone(f"{CONFIG_MAPS}/grandchild")
    assert await client.names(CONFIG_MAPS) == []


async def test_a_dependent_lives_while_one_owner_does(client: Client) -> None:
    first = await client.create(CONFIG_MAPS, config_map("first"))
    second = await client.create(CONFIG_MAPS, config_map("second"))
    body = owned("child", first)
    body["metadata"]["ownerReferences"] += owned("", second)["metadata"]["ownerReferences"]
    await client.create(CONFIG_MAPS, body)
    await client.ok("DELETE", f"{CONFIG_MAPS}/first")
    await client.until(
        f"{CONFIG_MAPS}/child",
        "metadata",
        "ownerReferences",
        equals=owned("", second)["metadata"]["ownerReferences"],
    )


async def test_dependent_of_an_owner_that_never_existed_is_deleted(client: Client) -> None:
    owner = {"apiVersion": "v1", "metadata": {"name": "ghost", "uid": "no-such-uid"}}
    await client.create(CONFIG_MAPS, owned("child", owner))
    await client.gone(f"{CONFIG_MAPS}/child")


async def test_an_owner_of_a_kind_that_is_not_served_is_left_alone(client: Client) -> None:
    owner = {"apiVersion": "example.com/v1", "metadata": {"name": "x", "uid": "u"}}
    await client.create(CONFIG_MAPS, owned("child", owner, kind="Thing"))
    ghost = {"apiVersion": "v1", "metadata": {"name": "ghost", "uid": "no-such-uid"}}
    await client.create(CONFIG_MAPS, owned("sibling", ghost))
    await client.gone(f"{CONFIG_MAPS}/sibling")
    assert await client.names(CONFIG_MAPS) == ["child"]


async def test_orphans_stay_and_forget_their_owner(client: Client) -> None:
    owner = await client.create(CONFIG_MAPS, config_map("owner"))
    await client.create(CONFIG_MAPS, owned("child", owner))
    await client.ok("DELETE", f"{CONFIG_MAPS}/owner", {"propagationPolicy": "Orphan"})
    await client.gone(f"{CONFIG_MAPS}/owner")
    assert "ownerReferences" not in (await client.get(f"{CONFIG_MAPS}/child"))["metadata"]


async def test_foreground_deletion_waits_for_the_dependents(client: Client) -> None:
    owner = await client.create(CONFIG_MAPS, config_map("owner"))
    child = owned("child", owner, blocks=True)
    child["metadata"]["finalizers"] = ["example.com/hold"]
    await client.create(CONFIG_MAPS, child)
    dying = await client.ok("DELETE", f"{CONFIG_MAPS}/owner", {"propagationPolicy": "Foreground"})
    assert dying["metadata"]["finalizers"] == ["foregroundDeletion"]
    await client.until(f"{CONFIG_MAPS}/child", "metadata", "deletionTimestamp", equals="2027-01-15T08:00:00Z")
    assert (await client.call("GET", f"{CONFIG_MAPS}/owner")).status == 200
    await client.merge(f"{CONFIG_MAPS}/child", {"metadata": {"finalizers": None}})
    await client.gone(f"{CONFIG_MAPS}/owner")


async def test_jobs_orphan_their_pods_by_default(client: Client) -> None:
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    template = {"spec": {**pod()["spec"], "restartPolicy": "Never"}}
    job = await client.create(jobs, {"metadata": {"name": "j"}, "spec": {"template": template}})
    body = pod("p")
    body["metadata"]["ownerReferences"] = owned("", job, kind="Job")["metadata"]["ownerReferences"]
    await client.create(PODS, body)
    await client.ok("DELETE", f"{jobs}/j")
    await client.gone(f"{jobs}/j")
    assert "ownerReferences" not in (await client.get(f"{PODS}/p"))["metadata"]


async def test_a_namespace_takes_its_contents_with_it(client: Client) -> None:
    await client.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    inside = "/api/v1/namespaces/team"
    assert await client.names(f"{inside}/serviceaccounts") == ["default"]
    held = config_map("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await client.create(f"{inside}/configmaps", held)
    await client.create(f"{inside}/pods", pod("p"))
    dying = await client.ok("DELETE", inside)
    assert dying["status"]["phase"] == "Terminating"

    reply = await client.call("POST", f"{inside}/configmaps", config_map("late"))
    assert (reply.status, reply.reason) == (403, "Forbidden")
    assert reply.causes == [("metadata.namespace", "NamespaceTerminating")]
    await client.gone(f"{inside}/pods/p")
    assert (await client.get(inside))["metadata"]["name"] == "team"
    await client.merge(f"{inside}/configmaps/held", {"metadata": {"finalizers": None}})
    await client.gone(inside)


async def test_a_namespace_may_be_finalized_by_hand(client: Client) -> None:
    body = {"metadata": {"name": "team"}, "spec": {"finalizers": ["example.com/mine"]}}
    made = await client.create("/api/v1/namespaces", body)
    assert sorted(made["spec"]["finalizers"]) == ["example.com/mine", "kubernetes"]
    await client.ok("DELETE", "/api/v1/namespaces/team")
    left = await client.until("/api/v1/namespaces/team", "spec", "finalizers", equals=["example.com/mine"])
    left["spec"]["finalizers"] = []
    await client.ok("PUT", "/api/v1/namespaces/team/finalize", left)
    await client.gone("/api/v1/namespaces/team")


async def test_pods_of_a_lost_node_fail_and_are_deleted(client: Client) -> None:
    await client.create(NODES, node("n"))
    await client.create(PODS, pod("p"))
    await client.ok("POST", f"{PODS}/p/binding", binding("p", "n"))
    async with client.watch(PODS, fieldSelector="metadata.name=p") as stream:
        assert (await stream.event())[0] == "ADDED"
        await client.ok("DELETE", f"{NODES}/n")
        failed = await stream.next()
        assert failed is not None
        assert failed["object"]["status"]["phase"] == "Failed"
        reasons = {item["type"]: item.get("reason") for item in failed["object"]["status"]["conditions"]}
        assert reasons["DisruptionTarget"] == "DeletionByPodGC"
        assert await stream.event() == ("DELETED", "p")


async def test_pod_bound_to_a_missing_node_is_deleted(client: Client) -> None:
    await client.create(PODS, pod("p"))
    assert (await client.call("POST", f"{PODS}/p/binding", binding("p", "nowhere"))).status == 201
    await client.gone(f"{PODS}/p")


async def run(client: Client, name: str, **labels: str) -> None:
    """A pod that runs and is ready."""
    await client.create(PODS, pod(name, labels=dict(labels)))
    await client.ok("POST", f"{PODS}/{name}/binding", binding(name, "n"))
    ready = [{"type": "Ready", "status": "True"}]
    await client.merge(f"{PODS}/{name}/status", {"status": {"phase": "Running", "conditions": ready}})


def eviction(name: str, **options: Any) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": "default"},
        "deleteOptions": options,
    }


async def test_a_budget_counts_its_pods_and_rations_evictions(client: Client) -> None:
    await client.create(NODES, node("n"))
    for name in ("a", "b", "c"):
        await run(client, name, app="web")
    spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}
    await client.create(BUDGETS, {"metadata": {"name": "web"}, "spec": spec})
    budget = await client.until(f"{BUDGETS}/web", "status", "disruptionsAllowed", equals=1)
    assert budget["status"]["currentHealthy"] == 3
    assert budget["status"]["desiredHealthy"] == 2
    assert budget["status"]["expectedPods"] == 3
    assert budget["status"]["conditions"][0]["reason"] == "SufficientPods"

    assert (await client.call("POST", f"{PODS}/a/eviction", eviction("a"))).status == 201
    evicted = await client.get(f"{PODS}/a")
    assert "deletionTimestamp" in evicted["metadata"]
    conditions = {item["type"]: item.get("reason") for item in evicted["status"]["conditions"]}
    assert conditions["DisruptionTarget"] == "EvictionByEvictionAPI"
    reply = await client.call("POST", f"{PODS}/b/eviction", eviction("b"))
    assert (reply.status, reply.reason) == (429, "TooManyRequests")
    assert reply.body["details"]["causes"][0]["reason"] == "DisruptionBudget"
    await client.until(f"{BUDGETS}/web", "status", "currentHealthy", equals=2)


async def test_budget_in_per_cent_counts_the_replicas_of_the_controller(client: Client) -> None:
    await client.create(NODES, node("n"))
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod()["spec"]}
    spec = {"replicas": 4, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    owner = await client.create(REPLICA_SETS, {"metadata": {"name": "web"}, "spec": spec})
    reference = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web",
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    for name in ("a", "b", "c"):
        await run(client, name, app="web")
        await client.merge(f"{PODS}/{name}", {"metadata": {"ownerReferences": [reference]}})
    budget = {"maxUnavailable": "50%", "selector": {"matchLabels": {"app": "web"}}}
    await client.create(BUDGETS, {"metadata": {"name": "web"}, "spec": budget})
    found = await client.until(f"{BUDGETS}/web", "status", "disruptionsAllowed", equals=1)
    assert (found["status"]["expectedPods"], found["status"]["desiredHealthy"]) == (4, 2)


async def test_several_budgets_for_one_pod_are_an_error(client: Client) -> None:
    await client.create(NODES, node("n"))
    await run(client, "a", app="web")
    for name in ("x", "y"):
        spec = {"minAvailable": 0, "selector": {"matchLabels": {"app": "web"}}}
        await client.create(BUDGETS, {"metadata": {"name": name}, "spec": spec})
    assert (await client.call("POST", f"{PODS}/a/eviction", eviction("a"))).status == 500


async def test_evictions_without_a_budget_and_with_preconditions(client: Client) -> None:
    await client.create(NODES, node("n"))
    await run(client, "a")
    wrong = eviction("a", preconditions={"uid": "another"})
    assert (await client.call("POST", f"{PODS}/a/eviction", wrong)).status == 409
    assert (await client.call("POST", f"{PODS}/none/eviction", eviction("none"))).status == 404
    right = eviction("a", gracePeriodSeconds=0)
    assert (await client.call("POST", f"{PODS}/a/eviction", right)).status == 201
    assert (await client.call("GET", f"{PODS}/a")).status == 404


async def test_a_group_in_use_is_protected(client: Client) -> None:
    policy = {"gang": {"minCount": 2}}
    made = await client.create(GROUPS, {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": policy}})
    assert made["metadata"]["finalizers"] == ["scheduling.k8s.io/podgroup-protection"]
    assert made["spec"]["disruptionMode"] == "Pod"
    await client.create(PODS, pod("p", schedulingGroup={"podGroupName": "g"}))
    await client.ok("DELETE", f"{GROUPS}/g")
    assert (await client.call("GET", f"{GROUPS}/g")).status == 200
    await client.ok("DELETE", f"{PODS}/p")
    await client.gone(f"{GROUPS}/g")


async def test_groups_made_from_a_workload_need_it(client: Client, server: ApiServer) -> None:
    workloads = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/workloads"
    policy = {"gang": {"minCount": 2}}
    link = {"workload": {"workloadName": "w", "podGroupTemplateName": "workers"}}
    group = {
        "metadata": {"name": "g"},
        "spec": {"podGroupTemplateRef": link, "schedulingPolicy": policy},
    }
    assert (await client.call("POST", GROUPS, group)).status == 403
    template = {"name": "workers", "schedulingPolicy": policy}
    await client.create(workloads, {"metadata": {"name": "w"}, "spec": {"podGroupTemplates": [template]}})
    await client.create(GROUPS, group)
    reply = await client.call(
        "PATCH",
        f"{GROUPS}/g",
        {"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}},
        content_type="application/merge-patch+json",
    )
    assert reply.status == 422
    assert server.registry.find("scheduling.k8s.io", "podgroups") is not None


async def test_events_live_for_an_hour_after_their_last_change(clock: FakeClock) -> None:
    api = ApiServer(ServerOptions(insecure=True, clock=clock)).api
    expiry = EventExpiry(api, 3600)
    api.store.listen(expiry.observe)
    namespaces = api.type("", "namespaces").preferred
    api.create(namespaces, "", {"metadata": {"name": "default"}}, api.write())
    events = api.type("", "events").preferred
    for name in ("old", "told-again"):
        api.create(events, "default", {"metadata": {"name": name}}, api.write())
    clock.seconds += 1800
    record = api.record(events.type, "default", "told-again")
    api.save(events.type, record, {**record.load(), "count": 2}, record.load(), api.write())
    clock.seconds += 1900
    expiry.reconcile("sweep")
    assert [item["metadata"]["name"] for item in api.all("", "events")] == ["told-again"]


def taints(node: Json) -> set[tuple[str, str]]:
    return {(item["key"], item["effect"]) for item in node["spec"].get("taints", [])}


async def tainted(client: Client, name: str, *wanted: tuple[str, str]) -> None:
    """Waits until a node has exactly these taints (without the common prefix)."""
    expected = {(f"node.kubernetes.io/{key}", effect) for key, effect in wanted}
    async with asyncio.timeout(60):
        while taints(await client.get(f"{NODES}/{name}")) != expected:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_taints_follow_the_conditions_of_a_node(client: Client) -> None:
    silent = {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "1"}}}
    made = await client.create(NODES, silent)
    assert taints(made) == {("node.kubernetes.io/not-ready", "NoSchedule")}
    strategic = "application/strategic-merge-patch+json"

    async def tell(type_: str, status: str) -> None:
        body = {"status": {"conditions": [{"type": type_, "status": status}]}}
        await client.ok("PATCH", f"{NODES}/n/status", body, content_type=strategic)

    await tell("Ready", "True")
    await tainted(client, "n")
    await tell("Ready", "False")
    await tainted(client, "n", ("not-ready", "NoSchedule"), ("not-ready", "NoExecute"))
    await tell("Ready", "Unknown")
    await tainted(client, "n", ("unreachable", "NoSchedule"), ("unreachable", "NoExecute"))
    await tell("Ready", "True")
    await tell("MemoryPressure", "True")
    await tainted(client, "n", ("memory-pressure", "NoSchedule"))
    await tell("MemoryPressure", "False")
    own = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    await client.merge(f"{NODES}/n", {"spec": {"taints": [own], "unschedulable": True}})
    async with asyncio.timeout(60):
        while len(taints(await client.get(f"{NODES}/n"))) != 2:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    await client.merge(f"{NODES}/n", {"spec": {"unschedulable": None}})
    await client.until(f"{NODES}/n", "spec", equals={"taints": [own]})


async def test_a_node_that_comes_ready_has_no_taints(client: Client) -> None:
    assert "taints" not in (await client.create(NODES, node("n")))["spec"]


async def test_node_whose_lease_expires_is_unknown(client: Client, clock: FakeClock) -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    await client.create(NODES, node("n"))
    await client.create(NODES, node("static"))
    spec = {"holderIdentity": "n", "renewTime": "2027-01-15T08:00:00.000000Z"}
    await client.create(leases, {"metadata": {"name": "n"}, "spec": spec})
    clock.seconds += 60
    for name in ("n", "static"):
        await client.merge(f"{NODES}/{name}", {"metadata": {"labels": {"look": "again"}}})
    await tainted(client, "n", ("unreachable", "NoSchedule"), ("unreachable", "NoExecute"))
    await tainted(client, "static")

"""Taking pods away: the eviction door and its budgets, and deletions that mean one pod and no other."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx_local.server import ServerOptions
from tests.phalanx_local.client import NODES, PODS, Client, Json, Reply, binding, node, pod
from tests.phalanx_local.conftest import FakeClock, Starter

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
WEB: Json = {"matchLabels": {"app": "web"}}
READY = [{"type": "Ready", "status": "True"}]


async def running(client: Client, *names: str, ready: bool = True, app: str = "web") -> None:
    """Pods that run on node n, which must exist."""
    for name in names:
        await client.create(PODS, pod(name, labels={"app": app}))
        await client.ok("POST", f"{PODS}/{name}/binding", binding(name, "n"))
        status: Json = {"phase": "Running", "conditions": READY if ready else []}
        await client.merge(f"{PODS}/{name}/status", {"status": status})


async def budget(
    client: Client, name: str = "web", selector: Any = WEB, allowed: int | None = None, **spec: Any
) -> None:
    """A budget; where `allowed` is given, that is awaited."""
    await client.create(BUDGETS, {"metadata": {"name": name}, "spec": {"selector": selector, **spec}})
    if allowed is not None:
        await client.until(f"{BUDGETS}/{name}", "status", "observedGeneration", equals=1)
        await client.until(f"{BUDGETS}/{name}", "status", "disruptionsAllowed", equals=allowed)


async def evict(client: Client, name: str, **options: Any) -> Reply:
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": "default"},
        "deleteOptions": options,
    }
    return await client.call("POST", f"{PODS}/{name}/eviction", body)


async def leaves(client: Client, name: str) -> bool:
    return "deletionTimestamp" in (await client.get(f"{PODS}/{name}"))["metadata"]


async def test_unobserved_budget_answers_with_a_retry(start: Starter) -> None:
    _, client = await start(ServerOptions(insecure=True, controllers=frozenset()))
    await client.create(NODES, node("n"))
    await running(client, "a")
    await budget(client, minAvailable=0)
    reply = await evict(client, "a")
    assert (reply.status, reply.headers["Retry-After"]) == (429, "10")
    assert reply.body["details"]["retryAfterSeconds"] == 10
    (cause,) = reply.body["details"]["causes"]
    assert cause["reason"] == "DisruptionBudget"
    assert "still being processed" in cause["message"]
    assert not await leaves(client, "a")


async def test_exhausted_budget_states_its_needs(client: Client) -> None:
    await client.create(NODES, node("n"))
    await running(client, "a", "b")
    await budget(client, minAvailable=2, allowed=0)
    reply = await evict(client, "a")
    assert (reply.status, reply.reason, reply.headers.get("Retry-After")) == (429, "TooManyRequests", None)
    (cause,) = reply.body["details"]["causes"]
    assert cause == {
        "reason": "DisruptionBudget",
        "message": "The disruption budget web needs 2 healthy pods and has 2 currently",
    }
    assert not await leaves(client, "a")


@pytest.mark.parametrize(("selector", "status"), [({}, 429), (None, 201)])
async def test_an_empty_selector_means_all_pods_and_none_means_none(
    client: Client, selector: Any, status: int
) -> None:
    await client.create(NODES, node("n"))
    await running(client, "a")
    await budget(client, selector=selector, minAvailable=1, allowed=0)
    assert (await evict(client, "a")).status == status


@pytest.mark.parametrize(
    ("policy", "healthy", "status"),
    [("AlwaysAllow", 1, 201), ("IfHealthyBudget", 2, 201), ("IfHealthyBudget", 1, 429), (None, 1, 429)],
)
async def test_unready_pod_is_evicted_where_its_budgets_policy_allows_it(
    client: Client, policy: str | None, healthy: int, status: int
) -> None:
    await client.create(NODES, node("n"))
    await running(client, *"ab"[:healthy])
    await running(client, "sick", ready=False)
    spec = {} if policy is None else {"unhealthyPodEvictionPolicy": policy}
    await budget(client, minAvailable=2, allowed=0, **spec)
    await client.until(f"{BUDGETS}/web", "status", "currentHealthy", equals=healthy)
    assert (await evict(client, "sick")).status == status


async def test_pods_that_wait_or_leave_anyway_cost_a_budget_nothing(client: Client) -> None:
    await client.create(NODES, node("n"))
    await running(client, "a", "b")
    await budget(client, minAvailable=2, allowed=0)
    await client.create(PODS, pod("waits", labels={"app": "web"}))
    assert (await evict(client, "waits")).status == 201
    assert (await client.call("GET", f"{PODS}/waits")).status == 404
    await client.ok("DELETE", f"{PODS}/a")
    assert (await evict(client, "a")).status == 201


async def test_dry_run_uses_no_budget_and_deletes_no_pod(client: Client) -> None:
    await client.create(NODES, node("n"))
    await running(client, "a")
    await budget(client, maxUnavailable=1, allowed=1)
    before = await client.get(f"{BUDGETS}/web")
    assert (await evict(client, "a", dryRun=["All"])).status == 201
    assert not await leaves(client, "a")
    assert await client.get(f"{BUDGETS}/web") == before


async def test_an_eviction_honours_the_grace_that_it_states(client: Client) -> None:
    await client.create(NODES, node("n"))
    await running(client, "a", "b")
    assert (await evict(client, "a", gracePeriodSeconds=7)).status == 201
    assert (await evict(client, "b")).status == 201
    graces = [(await client.get(f"{PODS}/{name}"))["metadata"]["deletionGracePeriodSeconds"] for name in "ab"]
    assert graces == [7, 30]


async def test_budget_of_an_eviction_without_a_deletion_is_returned_in_time(
    client: Client, clock: FakeClock
) -> None:
    """The budget is charged before the uid is compared, as on a real server."""
    await client.create(NODES, node("n"))
    await running(client, "a", "b")
    await budget(client, maxUnavailable=1, allowed=1)
    reply = await evict(client, "a", preconditions={"uid": "another"})
    assert (reply.status, reply.reason) == (409, "Conflict")
    assert not await leaves(client, "a")
    charged = await client.until(f"{BUDGETS}/web", "status", "disruptionsAllowed", equals=0)
    assert list(charged["status"]["disruptedPods"]) == ["a"]
    clock.seconds += 121
    await client.merge(f"{BUDGETS}/web", {"metadata": {"annotations": {"looked": "at"}}})
    given_back = await client.until(f"{BUDGETS}/web", "status", "disruptionsAllowed", equals=1)
    assert "disruptedPods" not in given_back["status"]


async def test_deletion_with_the_uid_of_a_former_pod_deletes_nothing(client: Client) -> None:
    await client.create(NODES, node("n"))
    await running(client, "a")
    reply = await client.call("DELETE", f"{PODS}/a", {"preconditions": {"uid": "another"}})
    assert (reply.status, reply.reason) == (409, "Conflict")
    assert "does not match the UID in record" in reply.body["message"]
    assert not await leaves(client, "a")
    uid = (await client.get(f"{PODS}/a"))["metadata"]["uid"]
    await client.ok("DELETE", f"{PODS}/a", {"preconditions": {"uid": uid}})
    assert await leaves(client, "a")


async def test_a_nomination_may_be_changed_and_taken_back_while_the_pod_waits(client: Client) -> None:
    await client.create(PODS, pod("p"))
    for name in ("m", "n"):
        shown = await client.merge(f"{PODS}/p/status", {"status": {"nominatedNodeName": name}})
        assert shown["status"]["nominatedNodeName"] == name
    shown = await client.merge(f"{PODS}/p/status", {"status": {"nominatedNodeName": None}})
    assert "nominatedNodeName" not in shown["status"]
    assert shown["status"]["phase"] == "Pending"


async def test_disruption_condition_is_added_to_existing_conditions(client: Client) -> None:
    await client.create(NODES, node("n"))
    await running(client, "a")
    told = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "x"}
    shown = await client.ok(
        "PATCH",
        f"{PODS}/a/status",
        {"status": {"conditions": [told]}},
        content_type="application/strategic-merge-patch+json",
    )
    found = {item["type"]: item.get("reason") for item in shown["status"]["conditions"]}
    assert found == {"Ready": None, "DisruptionTarget": "PreemptionByScheduler"}

"""Orders from the page: the viewer's own rights decide, each order is logged once, and no other page can send
one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from phalanx.cli.installation.dashboard_manifests import ACCOUNT
from phalanx.dashboard import orders
from phalanx.dashboard.access import Viewer, ViewerAccessError
from phalanx.dashboard.limits import RateLimits
from phalanx.dashboard.orders import impersonation
from phalanx.kube.errors import ApiError
from tests.dashboard.cluster import VOLCANO, Page, Site
from tests.e2e.world import pod

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.e2e]

RBAC = "/apis/rbac.authorization.k8s.io/v1"
JOBS = "/apis/batch/v1/namespaces/ours/jobs"


async def order(
    page: Page,
    verb: str,
    name: str,
    *,
    token: str | None = None,
    headers: dict[str, str] | None = None,
    **what: Any,
) -> tuple[int, dict[str, Any]]:
    body = json.dumps({"namespace": "ours", "name": name, **what})
    sent = {"Content_Type": "application/json", **(headers or {})}
    status, answer = await page.ask(f"/api/v1/orders/{verb}", token=token, method="POST", data=body, **sent)
    return status, json.loads(answer)


async def confirmed(page: Page, verb: str, name: str, **what: Any) -> tuple[int, dict[str, Any]]:
    """Send an order as the page does: preview the effect, then confirm exactly that."""
    status, told = await order(page, verb, name, **what)
    assert status == 200, told
    assert not told["done"]
    return await order(page, verb, name, confirmed=True, uid=told["uid"], **what)


async def grant(site: Site, name: str, rule: dict[str, Any], account: str, namespace: str) -> None:
    await site.client.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    binding = {"metadata": {"name": name}, "subjects": [subject], "roleRef": role}
    await site.client.create(f"{RBAC}/clusterrolebindings", binding)


async def allow_here(site: Site, name: str, rule: dict[str, Any], account: str) -> None:
    """Gives an account of `ours` a right there."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": "ours"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    where = f"{RBAC}/namespaces/ours"
    await site.client.create(f"{where}/roles", {"metadata": {"name": name}, "rules": [rule]})
    await site.client.create(
        f"{where}/rolebindings", {"metadata": {"name": name}, "subjects": [subject], "roleRef": role}
    )


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def writing(site: Site) -> AsyncIterator[Page]:
    """A dashboard in the cluster, with writes enabled and the right that they need."""
    rule = {
        "apiGroups": ["", "authentication.k8s.io"],
        "resources": ["*"],
        "verbs": ["impersonate"],
    }
    await grant(site, "dashboard-writes", rule, ACCOUNT, "phalanx-system")
    own = {"apiGroups": ["scheduling.volcano.sh"], "resources": ["podgroups"], "verbs": ["*"]}
    await allow_here(site, "own-groups", own, "tenant")
    async with site.dashboard("token", writes=True, rehearsed=False, orders_per_viewer=100.0) as made:
        yield made
    await site.client.delete(f"{RBAC}/clusterrolebindings/dashboard-writes")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def reader(site: Site) -> str:
    """Return the token of a user with read rights to `ours`."""
    await site.client.create("/api/v1/namespaces/ours/serviceaccounts", {"metadata": {"name": "looker"}})
    see = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}
    await allow_here(site, "look", see, "looker")
    issued = await site.client.create("/api/v1/namespaces/ours/serviceaccounts/looker/token", {"spec": {}})
    token: str = issued["status"]["token"]
    return token


async def exists(site: Site, path: str) -> bool:
    try:
        await site.client.get(path)
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True


async def test_tenant_cancels_an_own_gang_and_the_audit_log_records_it(
    site: Site, writing: Page, caplog: pytest.LogCaptureFixture
) -> None:
    await site.gang("ours", "doomed", 2, requests={"cpu": "1"})
    group = f"{VOLCANO}/namespaces/ours/podgroups/doomed"
    uid = (await site.client.get(group))["metadata"]["uid"]
    ours = site.token("ours")
    status, told = await order(writing, "cancel", "doomed", token=ours)
    assert (status, told["object"], told["uid"], told["done"]) == (200, "podgroup/doomed", uid, False)
    assert "with its 2 pods (0 running)" in told["message"]
    assert await exists(site, group)
    with caplog.at_level(logging.INFO, "phalanx.dashboard.audit"):
        status, told = await order(writing, "cancel", "doomed", token=ours, confirmed=True, uid=uid)
    assert (status, told["done"]) == (200, True), told
    assert not await exists(site, group)
    lines = [each for each in caplog.messages if each.startswith("write:")]
    assert len(lines) == 1
    assert "user='system:serviceaccount:ours:tenant' verb=cancel namespace='ours' gang='doomed'" in lines[0]
    assert f"object='podgroup/doomed' uid='{uid}' answer='podgroup/doomed cancelled" in lines[0]
    assert ours not in caplog.text


async def test_a_job_that_waits_is_held_and_released_by_its_own_field(site: Site, page: Page) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "slow"}, "spec": {"template": template}}
    uid = (await site.client.create(JOBS, job))["metadata"]["uid"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "slow", "uid": uid, "controller": True}
    member = pod("slow-0", requests={"cpu": "900"})
    member["metadata"]["ownerReferences"] = [owner]
    await site.client.create("/api/v1/namespaces/ours/pods", member)
    async with site.dashboard(writes=True, rehearsed=False) as own:
        status, told = await confirmed(own, "hold", "slow-0", pod=True)
        assert (status, told["object"], told["uid"]) == (200, "job/slow", uid), told
        assert (await site.client.get(f"{JOBS}/slow"))["spec"]["suspend"] is True
        status, told = await confirmed(own, "release", "slow-0", pod=True)
        assert status == 200, told
        assert not (await site.client.get(f"{JOBS}/slow"))["spec"].get("suspend")
    await site.client.delete("/api/v1/namespaces/ours/pods/slow-0", grace_seconds=0)
    await site.client.delete(f"{JOBS}/slow")


async def test_viewer_without_write_rights_is_refused_in_the_words_of_the_api_server(
    site: Site, writing: Page, reader: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "phalanx.dashboard.audit"):
        status, told = await confirmed(writing, "cancel", "impossible", token=reader)
    assert status == 403
    assert "the API server refused:" in told["error"]
    assert "system:serviceaccount:ours:looker" in told["error"]
    assert await exists(site, f"{VOLCANO}/namespaces/ours/podgroups/impossible")
    (line,) = [each for each in caplog.messages if each.startswith("write:")]
    assert "looker" in line
    assert 'answer="403 the API server refused' in line or "answer='403 the API server refused" in line


async def account(site: Site, name: str, rule: dict[str, Any]) -> str:
    """Return the token of a user with one rule in `ours`, beside listing pods."""
    accounts = "/api/v1/namespaces/ours/serviceaccounts"
    await site.client.create(accounts, {"metadata": {"name": name}})
    pods = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
    await allow_here(site, f"{name}-pods", pods, name)
    await allow_here(site, name, rule, name)
    issued = await site.client.create(f"{accounts}/{name}/token", {"spec": {}})
    return str(issued["status"]["token"])


async def test_user_who_may_delete_only_pods_cancels_nothing(
    site: Site, writing: Page, caplog: pytest.LogCaptureFixture
) -> None:
    """The user does not see the PodGroup, which would remain and have its pods recreated."""
    await site.gang("ours", "half-seen", 2, requests={"cpu": "1"})
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}
    token = await account(site, "pods-only", rule)
    status, told = await order(writing, "cancel", "half-seen", token=token)
    assert status == 409, told
    assert "cannot list podgroups.scheduling" in told["error"]
    assert "nothing was done" in told["error"]
    for path in (f"{VOLCANO}/namespaces/ours/podgroups/half-seen", "/api/v1/namespaces/ours/pods/half-seen-0"):
        assert await exists(site, path)
    await site.client.delete(f"{VOLCANO}/namespaces/ours/podgroups/half-seen")


async def test_user_who_may_delete_only_the_group_cancels_nothing(site: Site, writing: Page) -> None:
    await site.gang("ours", "half-owned", 2, requests={"cpu": "1"})
    rule = {"apiGroups": ["*"], "resources": ["podgroups"], "verbs": ["*"]}
    token = await account(site, "groups-only", rule)
    status, told = await confirmed(writing, "cancel", "half-owned", token=token)
    assert status == 409, told
    assert "not cancelled, because only a part of it can be deleted" in told["error"]
    for path in (f"{VOLCANO}/namespaces/ours/podgroups/half-owned", "/api/v1/namespaces/ours/pods/half-owned-1"):
        assert await exists(site, path)
    await site.client.delete(f"{VOLCANO}/namespaces/ours/podgroups/half-owned")


async def test_a_gang_that_only_its_pods_declare_is_known_by_the_oldest_of_them(
    site: Site, writing: Page, caplog: pytest.LogCaptureFixture
) -> None:
    labels = {
        "pod-group.scheduling.sigs.k8s.io/name": "loose",
        "pod-group.scheduling.sigs.k8s.io/min-available": "2",
    }
    for name in ("loose-0", "loose-1"):
        await site.client.create("/api/v1/namespaces/ours/pods", pod(name, labels=labels, requests={"cpu": "900"}))
    uid = (await site.client.get("/api/v1/namespaces/ours/pods/loose-0"))["metadata"]["uid"]
    with caplog.at_level(logging.INFO, "phalanx.dashboard.audit"):
        status, told = await confirmed(writing, "cancel", "loose", token=site.token("ours"))
    assert (status, told["done"], told["uid"]) == (200, True, uid), told
    (line,) = [each for each in caplog.messages if each.startswith("write:")]
    assert f"object='podgroup/loose' uid='{uid}'" in line
    assert not await exists(site, "/api/v1/namespaces/ours/pods/loose-0")
    assert not await exists(site, "/api/v1/namespaces/ours/pods/loose-1")


async def test_a_gang_of_another_tenant_is_not_even_looked_up(site: Site, writing: Page) -> None:
    body = json.dumps({"namespace": "hidden-ns", "name": "covert-train"})
    status, answer = await writing.ask(
        "/api/v1/orders/cancel",
        token=site.token("ours"),
        method="POST",
        data=body,
        Content_Type="application/json",
    )
    assert (status, b"covert" in answer) == (403, False)


async def test_hold_of_an_unsuspendable_gang_is_refused_with_the_reason(site: Site, writing: Page) -> None:
    status, told = await confirmed(writing, "hold", "impossible", token=site.token("ours"))
    assert status == 409
    assert "podgroup/impossible cannot be held" in told["error"]


async def test_order_for_a_replaced_object_of_one_name_is_refused(site: Site, writing: Page) -> None:
    status, told = await order(
        writing, "cancel", "impossible", token=site.token("ours"), confirmed=True, uid="of-another"
    )
    assert status == 409
    assert "was replaced by another object" in told["error"]
    assert await exists(site, f"{VOLCANO}/namespaces/ours/podgroups/impossible")


async def test_nothing_is_written_unless_it_is_switched_on(site: Site, shared: Page, page: Page) -> None:
    for each, token in ((shared, site.token("ours")), (page, None)):
        assert (await each.json("session", token=token))["writes"] is False
        status, told = await order(each, "cancel", "impossible", token=token)
        assert status == 403
        assert "--writes" in told["error"]


async def test_without_the_right_to_impersonate_it_writes_nothing_of_its_own(site: Site) -> None:
    binding = await site.client.get(f"{RBAC}/clusterrolebindings/dashboard-writes")
    await site.client.delete(f"{RBAC}/clusterrolebindings/dashboard-writes")
    async with site.dashboard("token", writes=True, rehearsed=False) as made:
        status, told = await order(made, "cancel", "impossible", token=site.token("ours"))
    kept = {key: binding[key] for key in ("subjects", "roleRef")}
    await site.client.create(f"{RBAC}/clusterrolebindings", {"metadata": {"name": "dashboard-writes"}, **kept})
    assert status == 503
    assert "impersonate" in told["error"]


async def test_another_page_cannot_give_orders(site: Site, writing: Page) -> None:
    ours = site.token("ours")
    assert (await writing.json("session", token=ours))["writes"] is True
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ):
        status, _ = await order(writing, "cancel", "impossible", token=ours, headers=headers)
        assert status == 403, headers
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        status, _ = await order(writing, "cancel", "impossible", token=ours, headers={"Content_Type": kind})
        assert status == 415, kind
    status, _ = await order(writing, "cancel", "impossible", token="")
    assert status == 401
    for wrong in ({"name": "a/b"}, {"name": ""}, {"namespace": ""}, {"more": 1}, {"name": 3}):
        body = json.dumps({"namespace": "ours", "name": "impossible", **wrong})
        sent: dict[str, Any] = {"method": "POST", "data": body, "Content_Type": "application/json"}
        status, _ = await writing.ask("/api/v1/orders/cancel", token=ours, **sent)
        assert status == 400, wrong
    status, _ = await order(writing, "explode", "impossible", token=ours)
    assert status == 404


async def test_client_with_too_many_orders_waits_and_no_other_client_does(
    site: Site, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(orders, "RateLimits", partial(RateLimits, clock=lambda: now[0]))
    async with site.dashboard("token", writes=True, rehearsed=False, orders_per_viewer=0.5) as made:

        async def hold(token: str) -> int:
            return (await order(made, "hold", "impossible", token=token))[0]

        assert [await hold(reader) for _ in range(3)] == [200, 429, 429]
        assert await hold(site.token("ours")) == 200
        now[0] = 2.0
        assert [await hold(reader) for _ in range(2)] == [200, 429]


@pytest.mark.parametrize(
    "viewer",
    [Viewer(""), Viewer("a\r\nImpersonate-Group: system:masters"), Viewer("a", ("b\n",)), Viewer("a", uid="ü")],
)
async def test_a_name_that_no_header_carries_is_not_handed_on(viewer: Viewer) -> None:
    with pytest.raises(ViewerAccessError) as refused:
        impersonation(viewer)
    assert refused.value.status == 403


async def test_the_whole_identity_is_handed_on() -> None:
    viewer = Viewer("ann", ("dev", "ops"), "u1", (("example.com/scope", ("a", "b")),))
    assert impersonation(viewer) == (
        ("Impersonate-User", "ann"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Uid", "u1"),
        ("Impersonate-Extra-example.com%2Fscope", "a"),
        ("Impersonate-Extra-example.com%2Fscope", "b"),
    )


async def bulk(page: Page, verb: str, orders: list[dict[str, Any]], token: str) -> tuple[int, dict[str, Any]]:
    path = f"/api/v1/bulk-orders/{verb}"
    body = json.dumps({"orders": orders})
    status, answer = await page.ask(path, token=token, method="POST", data=body, Content_Type="application/json")
    return status, json.loads(answer)


async def test_several_gangs_are_cancelled_by_one_request_and_a_refusal_stops_no_other(
    site: Site, writing: Page
) -> None:
    for name in ("many-a", "many-b"):
        await site.gang("ours", name, 1, requests={"cpu": "1"})
    ours = site.token("ours")
    wanted = [{"namespace": "ours", "name": name} for name in ("many-a", "nowhere", "many-b")]
    status, told = await bulk(writing, "cancel", wanted, ours)
    assert status == 200, told
    assert [bool(each["error"]) for each in told["answers"]] == [False, True, False]
    assert "with its 1 pod (" in told["answers"][0]["message"]
    confirmed_orders = [
        {"namespace": "ours", "name": each["name"], "confirmed": True, "uid": each["uid"]}
        for each in told["answers"]
        if not each["error"]
    ]
    status, done = await bulk(writing, "cancel", confirmed_orders, ours)
    assert (status, [each["error"] for each in done["answers"]]) == (200, ["", ""]), done
    for name in ("many-a", "many-b"):
        assert not await exists(site, f"{VOLCANO}/namespaces/ours/podgroups/{name}")


async def test_several_orders_need_rights_in_each_namespace_and_have_a_limit(site: Site, writing: Page) -> None:
    ours = site.token("ours")
    foreign = [{"namespace": "ours", "name": "train"}, {"namespace": "hidden-ns", "name": "covert-train"}]
    status, told = await bulk(writing, "cancel", foreign, ours)
    assert (status, "hidden-ns" in told["error"]) == (403, True), told
    for count in (0, orders.MOST_ORDERS + 1):
        status, told = await bulk(writing, "cancel", [{"namespace": "ours", "name": "train"}] * count, ours)
        assert (status, "at a time" in told["error"]) == (400, True), told

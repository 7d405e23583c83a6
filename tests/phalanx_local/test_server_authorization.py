"""Rights: roles, bindings, impersonation, and the tokens of service accounts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from phalanx_local.authentication.authenticator import User
from phalanx_local.server import ApiServer, ServerOptions
from tests.phalanx_local.client import Client, Reply, binding, config_map, node, pod
from tests.phalanx_local.conftest import FakeClock, Starter

GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{GROUP}/v1"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
TEAM = "/api/v1/namespaces/team"
PODS = f"{TEAM}/pods"
APPS = "/apis/apps/v1/namespaces/team"
JANE = {"Authorization": "Bearer jane"}


@pytest_asyncio.fixture
async def admin(start: Starter, clock: FakeClock) -> Client:
    """A server with a user `jane` of group `devs`, and a namespace `team`."""
    users = {"jane": User("jane", ("devs", "system:authenticated"))}
    _, client = await start(ServerOptions(insecure=True, clock=clock, users=users))
    await client.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    return client


async def grant(
    client: Client, name: str, rules: list[Any], subject: dict[str, str], namespace: str = "team"
) -> None:
    """A Role (or, without a namespace, a ClusterRole) and its binding."""
    kind, base = (
        ("Role", f"{RBAC}/namespaces/{namespace}/role") if namespace else ("ClusterRole", f"{RBAC}/clusterrole")
    )
    await client.create(f"{base}s", {"metadata": {"name": name}, "rules": rules})
    reference = {"apiGroup": GROUP, "kind": kind, "name": name}
    await client.create(
        f"{base}bindings", {"metadata": {"name": name}, "subjects": [subject], "roleRef": reference}
    )


def rule(verbs: str, resources: str, group: str = "", **more: Any) -> dict[str, Any]:
    return {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split(), **more}


def user(name: str) -> dict[str, str]:
    return {"kind": "User", "apiGroup": GROUP, "name": name}


async def as_jane(client: Client, method: str, path: str, body: Any = None, **more: Any) -> Reply:
    return await client.call(method, path, body, headers=JANE, **more)


async def test_user_without_a_role_is_refused_with_the_missing_right(admin: Client) -> None:
    reply = await as_jane(admin, "GET", PODS)
    assert (reply.status, reply.reason) == (403, "Forbidden")
    assert reply.body["message"] == (
        'pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "team"'
    )
    assert reply.body["details"]["kind"] == "pods"
    for method, path, words in (
        ("GET", f"{PODS}/p", 'pods "p" is forbidden: User "jane" cannot get resource "pods" in API group ""'),
        ("GET", "/api/v1/nodes", 'cannot list resource "nodes" in API group "" at the cluster scope'),
        ("POST", f"{PODS}/p/binding", 'pods "p" is forbidden: User "jane" cannot create resource "pods/binding"'),
        ("DELETE", PODS, 'cannot deletecollection resource "pods"'),
        (
            "DELETE",
            f"{APPS}/deployments/d",
            'deployments.apps "d" is forbidden: User "jane" cannot delete resource',
        ),
        ("GET", "/logs", 'forbidden: User "jane" cannot get path "/logs"'),
    ):
        reply = await as_jane(admin, method, path)
        assert reply.status == 403
        assert words in reply.body["message"]
    watched = await as_jane(admin, "GET", PODS, watch="1")
    assert 'cannot watch resource "pods"' in watched.body["message"]
    for path in ("/healthz", "/version", "/api", "/apis", "/apis/apps/v1", "/openapi/v3"):
        assert (await as_jane(admin, "GET", path)).status == 200


async def test_bytes_that_are_no_text_are_refused_like_any_other(admin: Client) -> None:
    host, _, port = admin.url.removeprefix("http://").partition(":")

    async def send(path: bytes, header: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n" + header + b"\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        return answer.partition(b"\r\n")[0]

    assert b" 403 " in await send(b"/%ff", b"Authorization: Bearer jane")
    assert b" 403 " in await send(b"/api/v1/namespaces/%ff/pods/%ff", b"Authorization: Bearer jane")
    assert b" 400 " in await send(b"/api/v1/pods", b"Impersonate-User: \xff")


async def test_a_role_grants_its_verbs_on_its_resources_in_its_namespace(admin: Client) -> None:
    await grant(
        admin, "reader", [rule("get list", "pods pods/log"), rule("update", "*/scale", "apps")], user("jane")
    )
    assert (await as_jane(admin, "GET", PODS)).status == 200
    assert (await as_jane(admin, "GET", f"{PODS}/p")).status == 404
    assert (await as_jane(admin, "GET", f"{PODS}/p/log")).status == 404
    assert (await as_jane(admin, "GET", PODS, watch="true")).status == 403
    assert (await as_jane(admin, "POST", PODS, pod("p"))).status == 403
    assert (await as_jane(admin, "GET", f"{PODS}/p/status")).status == 403
    assert (await as_jane(admin, "GET", "/api/v1/pods")).status == 403
    assert (await as_jane(admin, "GET", "/api/v1/namespaces/default/pods")).status == 403
    scale = f"{APPS}/deployments/d/scale"
    assert (await as_jane(admin, "PUT", scale, {})).status == 404
    await admin.ok("DELETE", f"{RBAC}/namespaces/team/rolebindings/reader")
    assert (await as_jane(admin, "GET", PODS)).status == 403


async def test_a_change_of_a_role_or_binding_counts_at_once(admin: Client) -> None:
    await grant(admin, "reader", [rule("list", "pods")], {"kind": "Group", "name": "devs"}, namespace="")
    assert (await as_jane(admin, "GET", "/api/v1/pods")).status == 200
    assert (await as_jane(admin, "GET", PODS)).status == 200
    await admin.merge(f"{RBAC}/clusterroles/reader", {"rules": [rule("list", "nodes")]})
    assert (await as_jane(admin, "GET", PODS)).status == 403
    assert (await as_jane(admin, "GET", "/api/v1/nodes")).status == 200
    await admin.ok("DELETE", f"{RBAC}/clusterroles/reader")
    reply = await as_jane(admin, "GET", "/api/v1/nodes")
    assert reply.body["message"].endswith(
        'at the cluster scope: RBAC: clusterrole.rbac.authorization.k8s.io "reader" not found'
    )


async def test_names_limit_a_rule(admin: Client) -> None:
    named = rule("get list watch", "configmaps", resourceNames=["mine"])
    await grant(admin, "one", [named], user("jane"))
    maps = f"{TEAM}/configmaps"
    await admin.create(maps, config_map("mine"))
    assert (await as_jane(admin, "GET", f"{maps}/mine")).status == 200
    assert (await as_jane(admin, "GET", f"{maps}/other")).status == 403
    assert (await as_jane(admin, "GET", maps)).status == 403
    assert (await as_jane(admin, "GET", maps, fieldSelector="metadata.name=mine")).status == 200
    assert (await as_jane(admin, "GET", maps, fieldSelector="metadata.name=other")).status == 403
    assert (await as_jane(admin, "GET", maps, fieldSelector="metadata.name!=mine")).status == 403


async def test_urls_are_granted_by_cluster_roles(admin: Client) -> None:
    urls = {"verbs": ["get"], "nonResourceURLs": ["/logs/*"]}
    await grant(admin, "logs", [urls], user("jane"), namespace="")
    assert (await as_jane(admin, "GET", "/logs/a/b")).status == 404
    assert (await as_jane(admin, "GET", "/log")).status == 403


async def test_a_put_or_an_apply_that_would_create_needs_the_right_to_create(admin: Client) -> None:
    await grant(
        admin,
        "patcher",
        [rule("patch update get", "configmaps"), rule("update", "leases", "coordination.k8s.io")],
        user("jane"),
    )
    path = f"{TEAM}/configmaps/new"
    apply = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}, "data": {"a": "b"}}
    reply = await as_jane(admin, "PATCH", path, apply, content_type=APPLY, fieldManager="x")
    assert (reply.status, 'cannot create resource "configmaps"' in reply.body["message"]) == (403, True)
    lease = "/apis/coordination.k8s.io/v1/namespaces/team/leases/l"
    reply = await as_jane(admin, "PUT", lease, {"metadata": {"name": "l"}})
    assert (reply.status, 'cannot create resource "leases"' in reply.body["message"]) == (403, True)
    await admin.create(f"{TEAM}/configmaps", config_map("new"))
    reply = await as_jane(admin, "PATCH", path, apply, content_type=APPLY, fieldManager="x", force="true")
    assert reply.status == 200


async def test_role_edit_covers_one_namespace_and_no_system_objects(admin: Client) -> None:
    reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": "edit"}
    body = {"metadata": {"name": "jane"}, "subjects": [user("jane")], "roleRef": reference}
    await admin.create(f"{RBAC}/namespaces/team/rolebindings", body)
    await admin.create("/api/v1/nodes", node("n"))
    assert (await as_jane(admin, "POST", PODS, pod("p"))).status == 201
    assert (await as_jane(admin, "GET", TEAM)).status == 200
    assert (await as_jane(admin, "GET", f"{TEAM}/resourcequotas")).status == 200
    assert (await as_jane(admin, "GET", f"{PODS}/p/status")).status == 200
    for method, path, sent in (
        ("PATCH", f"{PODS}/p/status", {"status": {"phase": "Failed"}}),
        ("POST", f"{PODS}/p/binding", binding("p", "n")),
        ("POST", f"{TEAM}/bindings", binding("p", "n")),
        ("POST", f"{TEAM}/resourcequotas", {"metadata": {"name": "q"}}),
        ("DELETE", TEAM, None),
        ("POST", "/api/v1/namespaces", {"metadata": {"name": "x"}}),
        ("GET", "/api/v1/namespaces", None),
        ("GET", "/api/v1/namespaces/default", None),
        ("GET", "/api/v1/nodes", None),
        ("POST", f"{RBAC}/namespaces/team/rolebindings", body),
        ("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "x"}, "value": 1}),
    ):
        kind = {"content_type": MERGE} if method == "PATCH" else {}
        assert (await as_jane(admin, method, path, sent, **kind)).status == 403, (method, path)
    assert (await as_jane(admin, "POST", f"{PODS}/p/eviction", {"metadata": {"name": "p"}})).status == 201


async def test_aggregated_cluster_roles_combine_the_rules_of_their_parts(admin: Client) -> None:
    label = {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}
    extra = rule("create", "gangs", "example.com")
    edit = f"{RBAC}/clusterroles/edit"
    await admin.create(f"{RBAC}/clusterroles", {"metadata": {"name": "gangs", "labels": label}, "rules": [extra]})
    rules = (await _until_rules(admin, f"{RBAC}/clusterroles/admin", extra, present=True))["rules"]
    assert extra in rules
    await admin.ok("DELETE", f"{RBAC}/clusterroles/gangs")
    await _until_rules(admin, edit, extra, present=False)


async def _until_rules(client: Client, path: str, wanted: object, *, present: bool) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            role: dict[str, Any] = await client.get(path)
            if (wanted in role["rules"]) is present:
                return role
            await asyncio.sleep(0.005)


# --- escalation: rights that a user lacks cannot be granted


async def test_user_cannot_grant_rights_that_the_user_lacks(admin: Client) -> None:
    roles, bindings = f"{RBAC}/namespaces/team/roles", f"{RBAC}/namespaces/team/rolebindings"
    rights = [
        rule("create update patch get", "roles rolebindings", GROUP),
        rule("get list", "pods"),
    ]
    await grant(admin, "owner", rights, user("jane"))
    held = {"metadata": {"name": "held"}, "rules": [rule("get", "pods")]}
    assert (await as_jane(admin, "POST", roles, held)).status == 201
    more = {"metadata": {"name": "more"}, "rules": [rule("get delete", "pods"), rule("list", "secrets")]}
    reply = await as_jane(admin, "POST", roles, more)
    assert reply.status == 403
    assert reply.body["message"] == (
        'roles.rbac.authorization.k8s.io "more" is forbidden: user "jane" (groups=["devs" "system:authenticated"]) '
        "is attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}\n'
        '{APIGroups:[""], Resources:["secrets"], Verbs:["list"]}'
    )
    patch = {"rules": [rule("*", "*", "*")]}
    reply = await as_jane(admin, "PATCH", f"{roles}/held", patch, content_type=MERGE)
    assert reply.status == 403
    reply = await as_jane(admin, "PATCH", f"{roles}/held", {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE)
    assert reply.status == 200

    def bind(kind: str, role: str) -> dict[str, Any]:
        reference = {"apiGroup": GROUP, "kind": kind, "name": role}
        return {"metadata": {"generateName": "b-"}, "subjects": [user("bob")], "roleRef": reference}

    assert (await as_jane(admin, "POST", bindings, bind("Role", "held"))).status == 201
    reply = await as_jane(admin, "POST", bindings, bind("ClusterRole", "cluster-admin"))
    assert (reply.status, "not currently held" in reply.body["message"]) == (403, True)
    assert (await as_jane(admin, "POST", bindings, bind("Role", "none"))).status == 404

    await grant(admin, "binder", [rule("bind", "clusterroles", GROUP, resourceNames=["view"])], user("jane"))
    assert (await as_jane(admin, "POST", bindings, bind("ClusterRole", "view"))).status == 201
    assert (await as_jane(admin, "POST", bindings, bind("ClusterRole", "edit"))).status == 403
    await grant(admin, "escalator", [rule("escalate", "roles", GROUP)], user("jane"))
    assert (await as_jane(admin, "POST", roles, more)).status == 201


async def test_an_aggregation_needs_every_right(admin: Client) -> None:
    await grant(admin, "maker", [rule("create", "clusterroles", GROUP)], user("jane"), "")
    selectors = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    role = {"metadata": {"name": "all"}, "aggregationRule": selectors}
    reply = await as_jane(admin, "POST", f"{RBAC}/clusterroles", role)
    assert (reply.status, "must have cluster-admin privileges" in reply.body["message"]) == (403, True)


URL_RULE = {"verbs": ["get"], "nonResourceURLs": ["/x"]}
CLUSTER_ROLE = {"kind": "ClusterRole", "name": "x"}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("namespaces/team/roles", {"rules": [{"verbs": []}]}, "rules[0].verbs"),
        (
            "namespaces/team/roles",
            {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]},
            "rules[0].nonResourceURLs",
        ),
        ("namespaces/team/rolebindings", {"roleRef": {"kind": "Role", "name": ""}}, "roleRef.name"),
        ("clusterrolebindings", {"roleRef": {"kind": "Role", "name": "x"}}, "roleRef.kind"),
        ("clusterrolebindings", {"subjects": [{"kind": "ServiceAccount", "name": "x"}]}, "subjects[0].namespace"),
        ("clusterrolebindings", {"subjects": [{"kind": "Robot", "name": "x"}]}, "subjects[0].kind"),
    ],
)
async def test_roles_and_bindings_are_checked(admin: Client, path: str, body: dict[str, Any], field: str) -> None:
    shared = {"roleRef": CLUSTER_ROLE} if "bindings" in path else {}
    reply = await admin.call("POST", f"{RBAC}/{path}", {"metadata": {"name": "x"}, **shared, **body})
    assert reply.status == 422
    assert field in [name for name, _ in reply.causes]


async def test_the_role_of_a_binding_never_changes(admin: Client) -> None:
    await grant(admin, "reader", [rule("get", "pods")], user("jane"))
    path = f"{RBAC}/namespaces/team/rolebindings/reader"
    patch = {"roleRef": {"kind": "ClusterRole", "name": "admin"}}
    reply = await admin.call("PATCH", path, patch, content_type=MERGE)
    assert reply.causes == [("roleRef", "FieldValueInvalid")]


# --- impersonation


async def test_impersonation_requires_a_right_to_each_name(admin: Client) -> None:
    await grant(admin, "reader", [rule("list", "pods")], user("jane"))
    assert (await admin.call("GET", PODS, headers={"Impersonate-User": "jane"})).status == 200
    assert (await admin.call("GET", PODS, headers={"Impersonate-User": "bob"})).status == 403
    grouped = {"Impersonate-User": "bob", "Impersonate-Group": "system:masters"}
    assert (await admin.call("GET", PODS, headers=grouped)).status == 200
    assert (await admin.call("GET", PODS, headers={"Impersonate-Group": "x"})).status == 500

    reply = await admin.call("GET", PODS, headers={**JANE, "Impersonate-User": "bob"})
    assert reply.body["message"] == (
        'users "bob" is forbidden: User "jane" cannot impersonate resource "users" in API group "" '
        "at the cluster scope"
    )
    await grant(admin, "bob", [rule("impersonate", "users", resourceNames=["bob"])], user("jane"), namespace="")
    await grant(admin, "bobs", [rule("list", "pods")], user("bob"))
    assert (await admin.call("GET", PODS, headers={**JANE, "Impersonate-User": "bob"})).status == 200
    reply = await admin.call("GET", PODS, headers={**JANE, **grouped})
    assert (reply.status, 'groups "system:masters" is forbidden' in reply.body["message"]) == (403, True)
    account = {**JANE, "Impersonate-User": "system:serviceaccount:team:default"}
    assert (await admin.call("GET", PODS, headers=account)).status == 403
    await grant(admin, "robots", [rule("impersonate", "serviceaccounts")], user("jane"))
    who = await admin.ok("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, headers=account)
    assert who["status"]["userInfo"]["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:team",
        "system:authenticated",
    ]


async def test_audit_log_names_the_caller_and_the_impersonated_user(start: Starter, tmp_path: Path) -> None:
    _, client = await start(ServerOptions(insecure=True, audit_log=tmp_path / "audit"))
    await client.call("GET", PODS, headers={"Impersonate-User": "bob"})
    await client.call("GET", PODS)
    first, second = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert (first["user"], first["impersonatedUser"], first["code"]) == ("kubernetes-admin", "bob", 403)
    assert "impersonatedUser" not in second


# --- tokens of service accounts


async def test_token_is_valid_until_it_expires_or_its_account_is_deleted(admin: Client, clock: FakeClock) -> None:
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": "team"}
    await grant(admin, "robot", [rule("list", "pods")], subject)
    accounts = f"{TEAM}/serviceaccounts"
    await admin.create(accounts, {"metadata": {"name": "robot"}})
    request = {"spec": {"expirationSeconds": 600}}

    async def token() -> dict[str, str]:
        issued = await admin.ok("POST", f"{accounts}/robot/token", request)
        return {"Authorization": f"Bearer {issued['status']['token']}"}

    first = await token()
    assert (await admin.call("GET", PODS, headers=first)).status == 200
    assert (await admin.call("GET", "/api/v1/pods", headers=first)).status == 403
    clock.seconds += 599
    second = await token()
    assert (await admin.call("GET", PODS, headers=first)).status == 200
    clock.seconds += 1
    review = {"spec": {"token": first["Authorization"].removeprefix("Bearer ")}}
    reviews = "/apis/authentication.k8s.io/v1/tokenreviews"
    assert "authenticated" not in (await admin.create(reviews, review))["status"]
    review = {"spec": {"token": second["Authorization"].removeprefix("Bearer ")}}
    answer = await admin.create(reviews, review)
    assert answer["status"]["user"]["username"] == "system:serviceaccount:team:robot"
    await admin.ok("DELETE", f"{accounts}/robot")
    await admin.create(accounts, {"metadata": {"name": "robot"}})
    assert "authenticated" not in (await admin.create(reviews, review))["status"]


async def test_a_token_can_be_bound_to_a_pod(admin: Client) -> None:
    made = await admin.create(PODS, pod("p"))
    path = f"{TEAM}/serviceaccounts/default/token"
    reference = {"kind": "Pod", "name": "p", "uid": made["metadata"]["uid"]}
    issued = await admin.ok("POST", path, {"spec": {"boundObjectRef": reference}})
    review = {"spec": {"token": issued["status"]["token"]}}
    reviews = "/apis/authentication.k8s.io/v1/tokenreviews"
    known = (await admin.create(reviews, review))["status"]["user"]
    assert known["extra"]["authentication.kubernetes.io/pod-name"] == ["p"]
    await admin.ok("DELETE", f"{PODS}/p")
    assert "authenticated" not in (await admin.create(reviews, review))["status"]
    for wrong, status in (({"boundObjectRef": reference}, 404), ({"expirationSeconds": 5}, 422)):
        assert (await admin.call("POST", path, {"spec": wrong})).status == status


@pytest.mark.parametrize("change", [lambda token: token[:-2], lambda token: "x" + token, lambda token: "a.b.c"])
async def test_forged_token_is_refused(start: Starter, change: Any) -> None:
    server, _ = await start(ServerOptions(token="secret"))
    token = server.tenant_kubeconfig("team")["users"][0]["user"]["token"]
    assert server.tokens.user_of(token) is not None
    assert server.tokens.user_of(change(token)) is None


async def test_token_for_another_audience_is_refused(admin: Client) -> None:
    path = f"{TEAM}/serviceaccounts/default/token"
    issued = await admin.ok("POST", path, {"spec": {"audiences": ["vault"]}})
    review = {"spec": {"token": issued["status"]["token"]}}
    answer = await admin.create("/apis/authentication.k8s.io/v1/tokenreviews", review)
    assert "authenticated" not in answer["status"]


# --- tenants


async def test_tenant_edits_its_namespace_and_sees_no_other(start: Starter, clock: FakeClock) -> None:
    server, client = await start(ServerOptions(insecure=True, clock=clock))
    config = server.tenant_kubeconfig("team")
    assert config["contexts"][0]["context"]["namespace"] == "team"
    tenant = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
    assert (await client.call("POST", PODS, pod("p"), headers=tenant)).status == 201
    assert (await client.call("GET", "/api/v1/namespaces/default/pods", headers=tenant)).status == 403
    assert (await client.call("GET", "/api/v1/pods", headers=tenant)).status == 403
    again = server.tenant_kubeconfig("team")
    assert again["contexts"] == config["contexts"]


async def test_rights_and_tokens_outlive_a_restart(tmp_path: Path) -> None:
    first = ApiServer(ServerOptions(data=tmp_path / "data"))
    await first.start()
    token = first.tenant_kubeconfig("team")["users"][0]["user"]["token"]
    await first.stop()
    second = ApiServer(ServerOptions(data=tmp_path / "data"))
    await second.start()
    try:
        found = second.tokens.user_of(token)
        assert found is not None
        from phalanx_local.authorization import Attributes

        assert second.rbac.authorize(found, Attributes("create", "", "pods", "", "team")).allowed
        assert not second.rbac.authorize(found, Attributes("create", "", "pods", "", "default")).allowed
    finally:
        await second.stop()

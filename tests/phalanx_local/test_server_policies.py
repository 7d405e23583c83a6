"""ValidatingAdmissionPolicies: matches, variables of expressions, and actions on failure."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from phalanx_local.authentication.authenticator import User
from phalanx_local.server import ApiServer, ServerOptions
from tests.phalanx_local.client import CONFIG_MAPS, NODES, PODS, Client, Json, binding, config_map, node, pod
from tests.phalanx_local.conftest import Starter
from tests.phalanx_local.test_server_authorization import JANE, grant, rule, user

BASE = "/apis/admissionregistration.k8s.io/v1"
POLICIES, BINDINGS = f"{BASE}/validatingadmissionpolicies", f"{BASE}/validatingadmissionpolicybindings"
MERGE = "application/merge-patch+json"


@pytest_asyncio.fixture
async def admin(start: Starter) -> Client:
    """Return a server with a user `jane` who has all rights in `default`."""
    users = {"jane": User("jane", ("devs", "system:authenticated"))}
    _, client = await start(ServerOptions(insecure=True, users=users))
    await grant(client, "jane", [rule("*", "*", "*")], user("jane"), namespace="default")
    return client


def on(resources: str, operations: str = "CREATE UPDATE", group: str = "", **more: Any) -> Json:
    """matchConstraints for some resources."""
    rules = {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": operations.split(),
        "resources": resources.split(),
    }
    return {"resourceRules": [rules], **more}


async def demand(
    client: Client, *expressions: str | Json, matching: Json, bind: Json | None = None, **more: Any
) -> None:
    """A policy and its binding, in force."""
    validations = [item if isinstance(item, dict) else {"expression": item} for item in expressions]
    spec = {"matchConstraints": matching, "validations": validations, **more}
    await client.create(POLICIES, {"metadata": {"name": "p"}, "spec": spec})
    bound = {"policyName": "p", "validationActions": ["Deny"], **(bind or {})}
    await client.create(BINDINGS, {"metadata": {"name": "b"}, "spec": bound})


async def status(client: Client, method: str, path: str, body: Any = None, **more: Any) -> int:
    if method == "PATCH":
        more.setdefault("content_type", MERGE)
    return (await client.call(method, path, body, **more)).status


async def test_a_write_that_a_policy_does_not_allow_is_refused(admin: Client) -> None:
    await demand(admin, "object.metadata.name != 'bad'", matching=on("configmaps"))
    reply = await admin.call("POST", CONFIG_MAPS, config_map("bad"))
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.body["message"] == (
        "configmaps \"bad\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: "
        "failed expression: object.metadata.name != 'bad'"
    )
    assert await status(admin, "POST", CONFIG_MAPS, config_map("good")) == 201
    assert await status(admin, "POST", PODS, pod("bad")) == 201
    await admin.ok("DELETE", f"{BINDINGS}/b")
    assert await status(admin, "POST", CONFIG_MAPS, config_map("bad")) == 201


async def test_reserved_annotations_are_for_one_account_only(admin: Client) -> None:
    reserved = "phalanx.dev/gang-plan"
    kept = (
        f"variables.annotations[?'{reserved}'] == variables.before[?'{reserved}'] "
        "|| request.userInfo.username == 'system:serviceaccount:phalanx-system:phalanx-scheduler'"
    )
    variables = [
        {"name": "annotations", "expression": "object.metadata.?annotations.orValue({})"},
        {"name": "before", "expression": "oldObject == null ? {} : oldObject.metadata.?annotations.orValue({})"},
    ]
    message = {"expression": kept, "message": f"{reserved} is the scheduler's", "reason": "Forbidden"}
    await demand(admin, message, matching=on("pods pods/status"), variables=variables)
    await admin.create(NODES, node("n"))
    marked = {"metadata": {"annotations": {reserved: "x"}}}
    assert await status(admin, "POST", PODS, pod("a"), headers=JANE) == 201
    forged = pod("b") | {"metadata": {"name": "b", **marked["metadata"]}}
    reply = await admin.call("POST", PODS, forged, headers=JANE)
    assert (reply.status, reply.reason) == (403, "Forbidden")
    assert reply.body["message"].endswith(f"denied request: {reserved} is the scheduler's")
    assert await status(admin, "PATCH", f"{PODS}/a", marked, headers=JANE) == 403
    assert await status(admin, "PATCH", f"{PODS}/a/status", marked, headers=JANE) == 403
    scheduler = {
        "Impersonate-User": "system:serviceaccount:phalanx-system:phalanx-scheduler",
        "Impersonate-Group": "system:masters",
    }
    assert await status(admin, "PATCH", f"{PODS}/a", marked, headers=scheduler) == 200
    unrelated = {"metadata": {"labels": {"a": "b"}}}
    assert await status(admin, "PATCH", f"{PODS}/a", unrelated, headers=JANE) == 200


async def test_objects_created_by_controllers_for_a_tenant_are_validated_by_policies(
    admin: Client, caplog: pytest.LogCaptureFixture
) -> None:
    await demand(
        admin, "!has(object.metadata.annotations) || !('x' in object.metadata.annotations)", matching=on("pods")
    )
    template = {"metadata": {"labels": {"a": "b"}, "annotations": {"x": "y"}}, "spec": pod()["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    await admin.create("/apis/apps/v1/namespaces/default/replicasets", {"metadata": {"name": "r"}, "spec": spec})
    async with asyncio.timeout(60):
        while "ReplicaSetController" not in caplog.text:  # noqa: ASYNC110 - the log is the server's
            await asyncio.sleep(0.005)
    assert "denied request" in caplog.text
    assert await admin.names(PODS) == []


async def test_operations_and_subresources_are_distinguished(admin: Client) -> None:
    await admin.create(NODES, node("n"))
    for name in ("a", "b"):
        await admin.create(PODS, pod(name))
    await demand(admin, "object.target.name != 'n'", matching=on("pods/binding"))
    assert await status(admin, "POST", f"{PODS}/a/binding", binding("a", "n")) == 422
    await admin.ok("DELETE", f"{POLICIES}/p")
    await admin.ok("DELETE", f"{BINDINGS}/b")
    await demand(admin, "oldObject.metadata.name != 'a' && object == null", matching=on("pods", "DELETE"))
    assert await status(admin, "DELETE", f"{PODS}/a") == 422
    assert await status(admin, "DELETE", f"{PODS}/b") == 200
    assert await status(admin, "DELETE", PODS) == 422
    eviction = {"metadata": {"name": "a"}}
    assert await status(admin, "POST", f"{PODS}/a/eviction", eviction) == 201


async def test_message_expression_cannot_query_rights(admin: Client) -> None:
    """As on kube-apiserver: a messageExpression has no authorizer, nor has a variable that it reads."""
    right = "authorizer.group('').resource('configmaps').check('override').allowed()"
    message = {"expression": "variables.may", "messageExpression": "'not ' + string(variables.may)"}
    asked = {"expression": "variables.may", "messageExpression": "'no right on ' + variables.name"}
    variables = [{"name": "may", "expression": right}, {"name": "name", "expression": "object.metadata.name"}]
    await demand(admin, message, matching=on("configmaps"), variables=variables)
    reply = await admin.call("POST", CONFIG_MAPS, config_map("c"), headers=JANE)
    assert reply.body["message"].endswith("denied request: failed expression: variables.may")
    await admin.merge(f"{POLICIES}/p", {"spec": {"validations": [asked]}})
    reply = await admin.call("POST", CONFIG_MAPS, config_map("c"), headers=JANE)
    assert reply.body["message"].endswith("denied request: no right on c")
    direct = {"expression": "true", "messageExpression": f"string({right})"}
    spec = {"matchConstraints": on("configmaps"), "validations": [direct]}
    reply = await admin.call("POST", POLICIES, {"metadata": {"name": "q"}, "spec": spec})
    assert reply.status == 422
    assert "undeclared reference to 'authorizer'" in reply.body["message"]


async def test_scaling_is_a_request_of_its_own(admin: Client) -> None:
    sets = "/apis/apps/v1/namespaces/default/replicasets"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]}
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    await admin.create(sets, {"metadata": {"name": "r"}, "spec": spec})
    smaller = "object.spec.replicas <= 3 && oldObject.spec.replicas == 0"
    await demand(admin, smaller, matching=on("replicasets/scale", group="apps"))
    for replicas, code in ((5, 422), (2, 200)):
        assert await status(admin, "PATCH", f"{sets}/r/scale", {"spec": {"replicas": replicas}}) == code
    assert await status(admin, "PATCH", f"{sets}/r", {"spec": {"replicas": 5}}) == 200


async def test_expressions_ask_the_authorizer(admin: Client) -> None:
    allowed = (
        "authorizer.group('scheduling.volcano.sh').resource('queues').name(object.data.queue).check('use')"
        ".allowed() || authorizer.requestResource.check('override').allowed() "
        "|| authorizer.path('/override').check('get').allowed()"
    )
    message = {"expression": allowed, "messageExpression": "'no right to use queue ' + object.data.queue"}
    await demand(admin, message, matching=on("configmaps"))
    body = config_map("c", queue="gold")
    # All rights in a namespace include none on a queue, which has no namespace.
    await admin.merge(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/jane",
        {"rules": [rule("create", "configmaps")]},
    )
    reply = await admin.call("POST", CONFIG_MAPS, body, headers=JANE)
    assert reply.body["message"].endswith("denied request: no right to use queue gold")
    use = rule("use", "queues", "scheduling.volcano.sh", resourceNames=["gold"])
    await grant(admin, "gold", [use], user("jane"), namespace="")
    assert await status(admin, "POST", CONFIG_MAPS, body, headers=JANE) == 201
    assert await status(admin, "POST", CONFIG_MAPS, config_map("d", queue="tin"), headers=JANE) == 422


async def test_match_conditions_and_selectors_narrow_a_policy(admin: Client) -> None:
    await admin.create("/api/v1/namespaces", {"metadata": {"name": "team", "labels": {"tenant": "yes"}}})
    await demand(
        admin,
        "false",
        matching=on("configmaps", namespaceSelector={"matchLabels": {"tenant": "yes"}}),
        bind={"matchResources": {"objectSelector": {"matchLabels": {"checked": "yes"}}}},
        matchConditions=[{"name": "not-boss", "expression": "!('bosses' in request.userInfo.groups)"}],
    )
    checked = {"metadata": {"name": "c", "labels": {"checked": "yes"}}}
    team = "/api/v1/namespaces/team/configmaps"
    assert await status(admin, "POST", CONFIG_MAPS, checked) == 201
    assert await status(admin, "POST", team, config_map("d")) == 201
    assert await status(admin, "POST", team, checked) == 422
    boss = {"Impersonate-User": "x", "Impersonate-Group": "system:masters"}
    async with aiohttp.ClientSession() as session:
        headers = [*boss.items(), ("Impersonate-Group", "bosses")]
        async with session.post(admin.url + team, json=checked, headers=headers) as response:
            assert response.status == 201


async def test_parameters_come_from_the_object_that_the_binding_names(admin: Client) -> None:
    await demand(
        admin,
        "size(object.data) <= int(params.data.most)",
        matching=on(
            "configmaps", objectSelector={"matchExpressions": [{"key": "params", "operator": "DoesNotExist"}]}
        ),
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        bind={"paramRef": {"name": "limits", "namespace": "kube-public", "parameterNotFoundAction": "Deny"}},
    )
    reply = await admin.call("POST", CONFIG_MAPS, config_map("a", k="v"))
    assert "no params found" in reply.body["message"]
    limits = {"metadata": {"name": "limits", "labels": {"params": "yes"}}, "data": {"most": "1"}}
    await admin.create("/api/v1/namespaces/kube-public/configmaps", limits)
    assert await status(admin, "POST", CONFIG_MAPS, config_map("a", k="v")) == 201
    assert await status(admin, "POST", CONFIG_MAPS, config_map("b", k="v", l="w")) == 422


@pytest.mark.parametrize(("policy", "code"), [("Fail", 422), ("Ignore", 201)])
async def test_expression_that_fails_is_handled_by_the_failure_policy(
    admin: Client, policy: str, code: int
) -> None:
    await demand(admin, "object.data.missing == 'x'", matching=on("configmaps"), failurePolicy=policy)
    reply = await admin.call("POST", CONFIG_MAPS, config_map("a"))
    assert reply.status == code
    if code == 422:
        assert "expression 'object.data.missing == 'x'' resulted in error: no such key" in reply.body["message"]


async def test_a_binding_may_only_warn(admin: Client) -> None:
    bind = {"validationActions": ["Warn", "Audit"]}
    await demand(admin, {"expression": "false", "message": "never"}, matching=on("configmaps"), bind=bind)
    reply = await admin.call("POST", CONFIG_MAPS, config_map("a"))
    assert reply.status == 201
    assert "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': never" in reply.warnings[0]


async def test_expressions_that_do_not_compile_are_refused_at_once(admin: Client) -> None:
    spec = {"matchConstraints": on("pods"), "validations": [{"expression": "object.spec +"}, {"expression": "1"}]}
    reply = await admin.call("POST", POLICIES, {"metadata": {"name": "p"}, "spec": spec})
    assert reply.status == 422
    assert [field for field, _ in reply.causes] == [
        "spec.validations[0].expression",
        "spec.validations[1].expression",
    ]
    bound = {"policyName": "", "validationActions": ["Deny", "Warn"]}
    reply = await admin.call("POST", BINDINGS, {"metadata": {"name": "b"}, "spec": bound})
    assert [field for field, _ in reply.causes] == ["spec.policyName", "spec.validationActions"]


async def test_policies_hold_after_a_restart_and_keep_no_server_from_starting(tmp_path: Path) -> None:
    options = ServerOptions(data=tmp_path / "data", insecure=True)
    for code in (201, 422):
        server = ApiServer(options)
        await server.start()
        try:
            async with aiohttp.ClientSession() as session:
                client = Client(session, server.url)
                assert await status(client, "POST", CONFIG_MAPS, config_map(f"c{code}")) == code
                if code == 201:
                    everything = on("*", "*")
                    everything["resourceRules"][0]["apiGroups"] = ["*"]
                    await demand(client, "false", matching=everything)
        finally:
            await server.stop()

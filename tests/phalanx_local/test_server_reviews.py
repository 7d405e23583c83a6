"""Reviews tell the truth: SubjectAccessReview and its kin, TokenReview, SelfSubjectReview."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio

from phalanx_local.authentication.authenticator import User
from phalanx_local.server import ServerOptions
from tests.phalanx_local.client import Client, Json
from tests.phalanx_local.conftest import Starter
from tests.phalanx_local.test_server_authorization import JANE, grant, rule, user

ACCESS = "/apis/authorization.k8s.io/v1"
TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"


@pytest_asyncio.fixture
async def admin(start: Starter) -> Client:
    """Return a server on which jane may list pods in `team`, and every member of group `ops` may read /logs."""
    _, client = await start(ServerOptions(insecure=True, users={"jane": User("jane", ("devs",), "u1")}))
    await client.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    await grant(client, "reader", [rule("list", "pods")], user("jane"))
    url = {"verbs": ["get"], "nonResourceURLs": ["/logs"]}
    await grant(client, "ops", [url], {"kind": "Group", "name": "ops"}, namespace="")
    return client


async def ask(client: Client, spec: Json, kind: str = "subjectaccessreviews", **more: Any) -> Json:
    answer: Json = (await client.ok("POST", f"{ACCESS}/{kind}", {"spec": spec}, **more))["status"]
    return answer


def pods(verb: str, namespace: str = "team", **more: str) -> Json:
    return {"resourceAttributes": {"verb": verb, "resource": "pods", "namespace": namespace, **more}}


async def test_subject_access_review_agrees_with_the_authorizer(admin: Client) -> None:
    assert await ask(admin, {"user": "jane", **pods("list")}) == {
        "allowed": True,
        "reason": 'RBAC: allowed by RoleBinding "reader/team" of Role "reader" to User "jane"',
    }
    assert await ask(admin, {"user": "jane", **pods("watch")}) == {"allowed": False}
    assert await ask(admin, {"user": "jane", **pods("list", "default")}) == {"allowed": False}
    assert await ask(admin, {"user": "jane", **pods("list", subresource="status")}) == {"allowed": False}
    url = {"nonResourceAttributes": {"verb": "get", "path": "/logs"}}
    assert (await ask(admin, {"groups": ["ops"], **url}))["allowed"] is True
    assert (await ask(admin, {"user": "jane", **url}))["allowed"] is False
    assert (await ask(admin, {"user": "x", "groups": ["system:masters"], **pods("delete")}))["allowed"] is True


async def test_every_user_may_review_only_own_rights(admin: Client) -> None:
    users = {"jane": ("list", True), "bob": ("list", False)}
    for name, (verb, allowed) in users.items():
        headers = {"Impersonate-User": name}
        answer = await ask(admin, pods(verb), "selfsubjectaccessreviews", headers=headers)
        assert answer["allowed"] is allowed
        reply = await admin.call("POST", f"{ACCESS}/subjectaccessreviews", {"spec": {}}, headers=headers)
        assert reply.status == 403
        assert (await admin.call("POST", TOKENS, {"spec": {"token": "x"}}, headers=headers)).status == 403


async def test_a_local_review_is_about_its_namespace(admin: Client) -> None:
    path = f"{ACCESS}/namespaces/team/localsubjectaccessreviews"
    body = {"spec": {"user": "jane", **pods("list")}}
    assert (await admin.create(path, body))["status"]["allowed"] is True
    reply = await admin.call("POST", path, {"spec": {"user": "jane", **pods("list", "default")}})
    assert reply.causes == [("spec.resourceAttributes.namespace", "FieldValueInvalid")]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"user": "jane"}, "spec.resourceAttributes"),
        ({"user": "jane", **pods("get"), "nonResourceAttributes": {"path": "/"}}, "spec.nonResourceAttributes"),
        (pods("get"), "spec.user"),
    ],
)
async def test_a_question_that_is_none_is_refused(admin: Client, spec: Json, field: str) -> None:
    reply = await admin.call("POST", f"{ACCESS}/subjectaccessreviews", {"spec": spec})
    assert (reply.status, field in [name for name, _ in reply.causes]) == (422, True)


async def test_the_rules_of_a_namespace_are_listed(admin: Client) -> None:
    jane = {"headers": {"Impersonate-User": "jane", "Impersonate-Group": "system:authenticated"}}
    answer = await ask(admin, {"namespace": "team"}, "selfsubjectrulesreviews", **jane)
    assert {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]} in answer["resourceRules"]
    assert any("/healthz" in item["nonResourceURLs"] for item in answer["nonResourceRules"])
    assert answer["incomplete"] is False
    answer = await ask(admin, {"namespace": "default"}, "selfsubjectrulesreviews", **jane)
    assert not any(item["resources"] == ["pods"] for item in answer["resourceRules"])
    answer = await ask(admin, {"namespace": "team"}, "selfsubjectrulesreviews")
    assert {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]} in answer["resourceRules"]


async def test_token_review_names_the_owner_of_a_token(admin: Client) -> None:
    answer = (await admin.create(TOKENS, {"spec": {"token": "jane"}}))["status"]
    assert (answer["authenticated"], answer["user"]) == (
        True,
        {"username": "jane", "uid": "u1", "groups": ["devs"]},
    )
    answer = (await admin.create(TOKENS, {"spec": {"token": "nobody"}}))["status"]
    assert "authenticated" not in answer
    assert answer["error"]
    answer = (await admin.create(TOKENS, {"spec": {"token": "jane", "audiences": ["vault"]}}))["status"]
    assert "authenticated" not in answer
    assert (await admin.call("POST", TOKENS, {"spec": {}})).status == 400


async def test_self_subject_review_names_the_caller(admin: Client) -> None:
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    await grant(
        admin, "who", [rule("create", "selfsubjectreviews", "authentication.k8s.io")], user("jane"), namespace=""
    )
    who = await admin.ok("POST", path, {}, headers=JANE)
    assert who["status"]["userInfo"] == {"username": "jane", "uid": "u1", "groups": ["devs"]}

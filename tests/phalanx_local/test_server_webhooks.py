"""Admission webhooks: matched writes, their order, and the handling of any answer."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from phalanx_local.authentication.certificates import Authority
from phalanx_local.server import ApiServer, ServerOptions, free_port
from tests.clocks import skip_time
from tests.phalanx_local.client import CONFIG_MAPS, PODS, Client, Json, config_map, pod
from tests.phalanx_local.conftest import Starter

BASE = "/apis/admissionregistration.k8s.io/v1"
MUTATING, VALIDATING = f"{BASE}/mutatingwebhookconfigurations", f"{BASE}/validatingwebhookconfigurations"

Answer = Callable[[Json], Json | Awaitable[Json]]


class FakeWebhook:
    """A webhook over HTTPS:

    `answers` by path return the response to a review; `asked` stores the requests by path.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, Json]] = []
        self.port = free_port()
        self.authority = Authority()

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        review = await request.json()
        path = request.path.strip("/")
        assert request.query["timeout"].endswith("s")
        assert review["kind"] == "AdmissionReview"
        self.asked.append((path, review["request"]))
        answer = self.answers[path](review["request"])
        response = answer if isinstance(answer, dict) else await answer
        if "raw" in response:
            return web.Response(**response["raw"])
        response.setdefault("uid", review["request"]["uid"])
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        return web.json_response(body)

    def entry(self, path: str, *rules: Json, **more: Any) -> Json:
        bundle = base64.b64encode(self.authority.certificate).decode()
        return {
            "name": f"{path}.example.com",
            "clientConfig": {"url": f"https://127.0.0.1:{self.port}/{path}", "caBundle": bundle},
            "rules": list(rules) or [rule("configmaps")],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
            **more,
        }


def rule(resources: str, operations: str = "CREATE", group: str = "") -> Json:
    return {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": operations.split(),
        "resources": resources.split(),
    }


def allow(_: Json) -> Json:
    return {"allowed": True}


def deny(message: str = "no", **status: Any) -> Answer:
    return lambda _: {"allowed": False, "status": {"message": message, **status}}


def patch(*operations: Json) -> Answer:
    encoded = base64.b64encode(json.dumps(operations).encode()).decode()
    return lambda _: {"allowed": True, "patchType": "JSONPatch", "patch": encoded}


def add(path: str, value: Any) -> Json:
    return {"op": "add", "path": path, "value": value}


def append(letter: str) -> Answer:
    """Puts a letter at the end of `data.text`."""

    def answer(request: Json) -> Json:
        data = request["object"].get("data") or {}
        operation = add("/data", {**data, "text": data.get("text", "") + letter})
        found: Json = patch(operation)(request)  # type: ignore[assignment]
        return found

    return answer


@pytest_asyncio.fixture
async def hook() -> AsyncIterator[FakeWebhook]:
    made = FakeWebhook()
    app = web.Application()
    app.router.add_post("/{path}", made.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(
        runner, "127.0.0.1", made.port, ssl_context=made.authority.server_context("127.0.0.1")
    ).start()
    yield made
    await runner.cleanup()


async def register(client: Client, kind: str, name: str, *entries: Json) -> None:
    await client.create(kind, {"metadata": {"name": name}, "webhooks": list(entries)})


async def created(client: Client, data: Json | None = None, **meta: Any) -> Any:
    return await client.call("POST", CONFIG_MAPS, {"metadata": {"name": "c", **meta}, "data": data or {}})


# --- validating


async def test_a_webhook_s_word_is_final(client: Client, hook: FakeWebhook) -> None:
    await register(client, VALIDATING, "v", hook.entry("v"))
    hook.answers["v"] = deny("data is too plain", code=422, reason="Invalid")
    reply = await created(client, {"a": "b"})
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.body["message"] == 'admission webhook "v.example.com" denied the request: data is too plain'
    hook.answers["v"] = allow
    reply = await created(client, {"a": "b"})
    assert reply.status == 201
    request = hook.asked[-1][1]
    assert request["object"]["data"] == {"a": "b"}
    assert request["object"]["kind"] == "ConfigMap"
    assert request["operation"] == "CREATE"
    assert request["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    assert (request["namespace"], request["name"], request["dryRun"]) == ("default", "c", False)
    assert request["oldObject"] is None
    assert request["userInfo"]["username"]


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        ({}, 400, "denied the request without explanation"),
        ({"code": 200, "status": "Success"}, 400, "denied the request without explanation"),
        ({"reason": "Forbidden", "code": 403}, 403, "denied the request: Forbidden"),
    ],
)
async def test_a_denial_is_never_a_success(
    client: Client, hook: FakeWebhook, status: Json, code: int, message: str
) -> None:
    await register(client, VALIDATING, "v", hook.entry("v"))
    hook.answers["v"] = lambda _: {"allowed": False, "status": status}
    reply = await created(client)
    assert reply.status == code
    assert reply.body["message"].endswith(message)


async def test_updates_show_both_states_and_deletions_the_last(client: Client, hook: FakeWebhook) -> None:
    await created(client, {"a": "1"})
    await register(client, VALIDATING, "v", hook.entry("v", rule("configmaps", "UPDATE DELETE")))
    hook.answers["v"] = allow
    merge = "application/merge-patch+json"
    await client.call("PATCH", f"{CONFIG_MAPS}/c", {"data": {"a": "2"}}, content_type=merge)
    update = hook.asked[-1][1]
    assert (update["oldObject"]["data"], update["object"]["data"]) == ({"a": "1"}, {"a": "2"})
    hook.answers["v"] = deny("keep it")
    reply = await client.call("DELETE", f"{CONFIG_MAPS}/c")
    assert reply.status == 400
    assert hook.asked[-1][1]["object"] is None
    assert hook.asked[-1][1]["oldObject"]["data"] == {"a": "2"}
    assert (await client.call("DELETE", CONFIG_MAPS)).status == 400
    assert (await client.call("GET", f"{CONFIG_MAPS}/c")).status == 200


async def test_many_are_deleted_together_and_each_is_asked_about_once(client: Client, hook: FakeWebhook) -> None:
    for name in ("a", "b", "c"):
        await client.create(CONFIG_MAPS, {"metadata": {"name": name, "labels": {"gone": "soon"}}})
    await register(client, VALIDATING, "v", hook.entry("v", rule("configmaps", "DELETE")))
    hook.answers["v"] = allow
    reply = await client.call("DELETE", f"{CONFIG_MAPS}?labelSelector=gone")
    assert [item["metadata"]["name"] for item in reply.body["items"]] == ["a", "b", "c"]
    assert sorted(request["name"] for _, request in hook.asked) == ["a", "b", "c"]


async def test_webhook_is_called_only_for_matching_rules_selectors_and_conditions(
    client: Client, hook: FakeWebhook
) -> None:
    chosen = {"matchLabels": {"watched": "yes"}}
    condition = {"name": "not-small", "expression": "object.data.size() > 0"}
    await register(
        client,
        VALIDATING,
        "v",
        hook.entry("object", objectSelector=chosen),
        hook.entry("condition", matchConditions=[condition]),
        hook.entry("elsewhere", namespaceSelector={"matchLabels": {"team": "other"}}),
        hook.entry("pods", rule("pods")),
        hook.entry("update", rule("configmaps", "UPDATE")),
        hook.entry("all", {**rule("*"), "apiGroups": ["*"], "apiVersions": ["*"]}),
    )
    hook.answers = dict.fromkeys(("object", "condition", "elsewhere", "pods", "update", "all"), allow)
    await created(client)
    assert sorted(hook.paths) == ["all"]
    hook.asked.clear()
    await created(client, {"a": "b"}, name="d", labels={"watched": "yes"})
    assert sorted(hook.paths) == ["all", "condition", "object"]


async def test_a_condition_that_cannot_be_judged_follows_the_failure_policy(
    client: Client, hook: FakeWebhook
) -> None:
    broken = [{"name": "broken", "expression": "object.nowhere == 1"}]
    await register(client, VALIDATING, "v", hook.entry("v", matchConditions=broken, failurePolicy="Ignore"))
    assert (await created(client)).status == 201
    await register(client, VALIDATING, "w", hook.entry("w", matchConditions=broken))
    reply = await created(client, name="d")
    assert reply.status == 403
    assert 'match condition "broken"' in reply.body["message"]
    assert hook.asked == []


async def test_warnings_reach_the_client(client: Client, hook: FakeWebhook) -> None:
    await register(client, VALIDATING, "v", hook.entry("v"))
    hook.answers["v"] = lambda _: {"allowed": True, "warnings": ["think again"]}
    assert (await created(client)).warnings == ['299 - "think again"']


async def test_dry_runs_are_asked_where_that_does_no_harm(client: Client, hook: FakeWebhook) -> None:
    await register(client, VALIDATING, "v", hook.entry("v", sideEffects="NoneOnDryRun"))
    hook.answers["v"] = allow
    reply = await client.call("POST", f"{CONFIG_MAPS}?dryRun=All", config_map("c"))
    assert reply.status == 201
    assert hook.asked[0][1]["dryRun"] is True
    assert (await client.call("GET", f"{CONFIG_MAPS}/c")).status == 404


# --- mutating


async def test_changes_of_mutating_webhooks_are_stored_and_sent_to_validating_ones(
    client: Client, hook: FakeWebhook
) -> None:
    await register(client, VALIDATING, "v", hook.entry("v"))
    await register(client, MUTATING, "b", hook.entry("b1"), hook.entry("b2"))
    await register(client, MUTATING, "a", hook.entry("a"))
    hook.answers = {"v": allow, "a": append("a"), "b1": append("b"), "b2": append("c")}
    reply = await created(client)
    assert reply.body["data"] == {"text": "abc"}
    assert hook.paths == ["a", "b1", "b2", "v"]
    assert hook.asked[-1][1]["object"]["data"] == {"text": "abc"}
    assert (await client.call("GET", f"{CONFIG_MAPS}/c")).body["data"] == {"text": "abc"}


async def test_webhook_with_reinvocation_is_called_once_more_after_later_changes(
    client: Client, hook: FakeWebhook
) -> None:
    await register(
        client,
        MUTATING,
        "m",
        hook.entry("first", reinvocationPolicy="IfNeeded"),
        hook.entry("second"),
        hook.entry("last", reinvocationPolicy="IfNeeded"),
    )
    hook.answers = {"first": append("1"), "second": append("2"), "last": append("3")}
    reply = await created(client)
    # The first one changed the object again, so the last one was not the last any more.
    assert reply.body["data"] == {"text": "12313"}
    assert hook.paths == ["first", "second", "last", "first", "last"]


async def test_fields_set_by_webhooks_are_defaulted_and_validated(client: Client, hook: FakeWebhook) -> None:
    await register(client, MUTATING, "m", hook.entry("m", rule("pods")))
    hook.answers["m"] = patch(add("/spec/containers/-", {"name": "side", "image": "sidecar"}))
    reply = await client.call("POST", PODS, pod("p"))
    assert [item["name"] for item in reply.body["spec"]["containers"]][-1] == "side"
    assert reply.body["spec"]["containers"][-1]["imagePullPolicy"] == "Always"
    hook.answers["m"] = patch(add("/spec/containers/-", {"name": "NOT A NAME", "image": "x"}))
    reply = await client.call("POST", PODS, pod("q"))
    assert (reply.status, reply.reason) == (422, "Invalid")


async def test_a_generated_name_asks_each_webhook_once(client: Client, hook: FakeWebhook) -> None:
    await register(client, MUTATING, "m", hook.entry("m"))
    await register(client, VALIDATING, "v", hook.entry("v"))
    hook.answers = {"m": append("x"), "v": allow}
    body = {"metadata": {"generateName": "c-"}}
    reply = await client.call("POST", CONFIG_MAPS, body)
    assert reply.status == 201
    assert hook.paths == ["m", "v"]
    assert "name" not in hook.asked[0][1]["object"]["metadata"]


async def test_a_webhook_cannot_move_an_object_elsewhere(client: Client, hook: FakeWebhook) -> None:
    await register(client, MUTATING, "m", hook.entry("m", rule("configmaps", "CREATE UPDATE")))
    for operation, status in (
        (add("/metadata/namespace", "kube-system"), 400),
        (add("/kind", "Secret"), 400),
        (add("/data/a/b", "deep"), 500),
        ({"op": "remove", "path": "/data/gone"}, 500),
        ({"op": "test", "path": "/kind", "value": "Pod"}, 500),
        ({"op": "replace", "path": "", "value": []}, 500),
        ({"op": "invent"}, 500),
        ("odd", 500),
    ):
        hook.answers["m"] = patch(operation)  # type: ignore[arg-type]
        assert (await created(client)).status == status, operation
    hook.answers["m"] = allow
    assert (await created(client)).status == 201
    hook.answers["m"] = patch(add("/metadata/uid", "stolen"), add("/metadata/creationTimestamp", None))
    reply = await client.call("PUT", f"{CONFIG_MAPS}/c", config_map("c"))
    stored = (await client.call("GET", f"{CONFIG_MAPS}/c")).body["metadata"]
    assert stored["uid"] != "stolen"
    assert stored["creationTimestamp"]
    assert reply.status in (200, 409)


# --- webhooks that do not answer, or lie


LIES: dict[str, Answer] = {
    "no JSON": lambda _: {"raw": {"text": "<html>"}},
    "an error": lambda _: {"raw": {"status": 500, "text": "oh dear"}},
    "a redirect": lambda _: {"raw": {"status": 302, "headers": {"Location": "https://127.0.0.1:1/"}}},
    "another kind": lambda _: {"raw": {"text": json.dumps({"apiVersion": "v1", "kind": "Pod"})}},
    "no response": lambda _: {
        "raw": {"text": json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"})}
    },
    "another uid": lambda _: {"uid": "other", "allowed": True},
    "an endless answer": lambda _: {"raw": {"body": b"x" * (17 * 1024 * 1024)}},
    "a deep answer": lambda _: {"raw": {"text": "[" * 100_000}},
    "a patch of no type": lambda _: {"allowed": True, "patch": "W10="},
    "a patch of another type": lambda _: {"allowed": True, "patch": "W10=", "patchType": "MergePatch"},
    "a patch that is none": lambda _: {"allowed": True, "patch": "!", "patchType": "JSONPatch"},
}


@pytest.mark.parametrize("lie", LIES)
async def test_an_answer_that_cannot_be_used_is_no_answer(client: Client, hook: FakeWebhook, lie: str) -> None:
    hook.answers["m"] = LIES[lie]
    await register(client, MUTATING, "m", hook.entry("m"))
    reply = await created(client)
    assert (reply.status, reply.reason) == (500, "InternalError")
    assert 'failed calling webhook "m.example.com": ' in reply.body["message"]
    await client.call("DELETE", f"{MUTATING}/m")
    await register(client, MUTATING, "n", hook.entry("m", failurePolicy="Ignore"))
    assert (await created(client)).status == 201


async def test_webhook_that_hangs_delays_no_other_request(client: Client, hook: FakeWebhook) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def hang(_: Json) -> Json:
        begun.set()
        await release.wait()
        return {"allowed": True}

    hook.answers["m"] = hang
    await register(client, VALIDATING, "v", hook.entry("m", timeoutSeconds=20))
    waiting = asyncio.create_task(created(client))
    await begun.wait()
    # Not covered, so not held up.
    assert (await client.call("POST", PODS, pod("p"))).status == 201
    assert not waiting.done()
    skip_time(20)
    reply = await waiting
    release.set()
    assert reply.status == 500
    assert reply.body["message"].endswith("context deadline exceeded")


async def test_unreachable_webhook_and_missing_service_have_clear_messages(
    client: Client, hook: FakeWebhook
) -> None:
    absent = hook.entry("v")
    absent["clientConfig"]["url"] = f"https://127.0.0.1:{free_port()}/v"
    await register(client, VALIDATING, "a", absent)
    reply = await created(client)
    assert reply.status == 500
    assert "failed to call webhook: Post" in reply.body["message"]
    await client.call("DELETE", f"{VALIDATING}/a")
    service = {"name": "hooks", "namespace": "tools", "path": "/v"}
    await register(client, VALIDATING, "s", hook.entry("v", clientConfig={"service": service}))
    reply = await created(client)
    assert (
        "service tools/hooks cannot be reached: this cluster gives Services no addresses" in reply.body["message"]
    )


async def test_a_webhook_is_known_by_its_authority(client: Client, hook: FakeWebhook) -> None:
    entry = hook.entry("v")
    entry["clientConfig"]["caBundle"] = base64.b64encode(Authority().certificate).decode()
    await register(client, VALIDATING, "v", entry)
    hook.answers["v"] = allow
    reply = await created(client)
    assert reply.status == 500
    assert "certificate verify failed" in reply.body["message"]
    assert hook.asked == []


async def test_the_state_may_change_while_webhooks_think(client: Client, hook: FakeWebhook) -> None:
    await created(client, {"a": "1"})
    await register(client, VALIDATING, "v", hook.entry("v", rule("configmaps", "UPDATE")))
    merge = "application/merge-patch+json"
    raced = False

    async def race(request: Json) -> Json:
        nonlocal raced
        if not raced:
            raced = True
            await client.call("PATCH", f"{CONFIG_MAPS}/c", {"data": {"b": "other"}}, content_type=merge)
        return {"allowed": True}

    hook.answers["v"] = race
    reply = await client.call("PATCH", f"{CONFIG_MAPS}/c", {"data": {"a": "2"}}, content_type=merge)
    assert reply.status == 200
    # The stored object is the one that the webhook saw last, with both changes.
    assert reply.body["data"] == hook.asked[-1][1]["object"]["data"] == {"a": "2", "b": "other"}


async def test_configurations_themselves_pass_no_webhook(client: Client, hook: FakeWebhook) -> None:
    everything = {**rule("*", "*"), "apiGroups": ["*"], "apiVersions": ["*"]}
    await register(client, VALIDATING, "v", hook.entry("v", everything, namespaceSelector={}))
    hook.answers["v"] = deny()
    assert (await created(client)).status == 400
    assert (await client.call("DELETE", f"{VALIDATING}/v")).status == 200
    assert (await created(client)).status == 201


# --- configurations


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "short"}, "webhooks[0].name"),
        ({"admissionReviewVersions": []}, "webhooks[0].admissionReviewVersions"),
        ({"admissionReviewVersions": ["v9"]}, "webhooks[0].admissionReviewVersions"),
        ({"sideEffects": "Some"}, "webhooks[0].sideEffects"),
        ({"failurePolicy": "Shrug"}, "webhooks[0].failurePolicy"),
        ({"timeoutSeconds": 31}, "webhooks[0].timeoutSeconds"),
        ({"clientConfig": {}}, "webhooks[0].clientConfig"),
        ({"clientConfig": {"url": "http://127.0.0.1/"}}, "webhooks[0].clientConfig.url"),
        ({"clientConfig": {"url": "https://u@h/"}}, "webhooks[0].clientConfig.url"),
        ({"clientConfig": {"url": "https://h/?a=b"}}, "webhooks[0].clientConfig.url"),
        ({"clientConfig": {"url": "https://h/", "caBundle": "bm9uZQ=="}}, "webhooks[0].clientConfig.caBundle"),
        ({"matchConditions": [{"name": "a", "expression": "1 +"}]}, "webhooks[0].matchConditions[0].expression"),
    ],
)
async def test_a_webhook_that_could_never_be_called_is_refused(
    client: Client, hook: FakeWebhook, change: Json, field: str
) -> None:
    body = {"metadata": {"name": "v"}, "webhooks": [hook.entry("v", **{"name": "v.example.com", **change})]}
    if "name" in change:
        body["webhooks"][0]["name"] = change["name"]  # type: ignore[index]
    reply = await client.call("POST", VALIDATING, body)
    assert reply.status == 422
    assert field in [name for name, _ in reply.causes]


async def test_defaults_equal_those_of_kubernetes(client: Client, hook: FakeWebhook) -> None:
    entry = hook.entry("m")
    del entry["namespaceSelector"]
    await register(client, MUTATING, "m", entry)
    stored = (await client.call("GET", f"{MUTATING}/m")).body["webhooks"][0]
    assert (stored["failurePolicy"], stored["matchPolicy"], stored["timeoutSeconds"]) == ("Fail", "Equivalent", 10)
    assert (stored["reinvocationPolicy"], stored["rules"][0]["scope"]) == ("Never", "*")
    assert (stored["namespaceSelector"], stored["objectSelector"]) == ({}, {})


async def test_configurations_survive_a_restart(start: Starter, hook: FakeWebhook, tmp_path: Any) -> None:
    options = ServerOptions(insecure=True, data=tmp_path / "data")
    server, client = await start(options)
    await register(client, VALIDATING, "v", hook.entry("v"))
    await server.stop()
    _, client = await start(options)
    hook.answers["v"] = deny()
    assert (await created(client)).status == 400


async def test_objects_of_the_servers_controllers_pass_webhooks(
    server: ApiServer, client: Client, hook: FakeWebhook
) -> None:
    await register(client, MUTATING, "m", hook.entry("m", rule("pods")))
    await register(client, VALIDATING, "v", hook.entry("v", rule("pods")))
    hook.answers = {"m": patch(add("/metadata/labels/seen", "yes")), "v": allow}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": pod("x")["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "a"}}, "template": template}
    await client.create("/apis/apps/v1/namespaces/default/replicasets", {"metadata": {"name": "r"}, "spec": spec})
    async with asyncio.timeout(60), client.watch(PODS) as stream:
        for _ in range(2):
            await stream.next()
    found = (await client.call("GET", PODS)).body["items"]
    assert [item["metadata"]["labels"]["seen"] for item in found] == ["yes", "yes"]
    assert hook.asked[0][1]["userInfo"]["username"] == "system:kube-controller-manager"

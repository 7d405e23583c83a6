"""Requests of an API group that an APIService serves are forwarded to its server, in the name of the user."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from phalanx_local.aggregation.front_proxy import CLIENT_NAME, CONFIG_MAP
from phalanx_local.authentication.authenticator import User
from phalanx_local.authentication.certificates import Authority, load_pair
from phalanx_local.options import ServerOptions
from phalanx_local.server import ApiServer

pytestmark = pytest.mark.e2e

GROUP, VERSION = "tests.example.org", "v1"
ROOT = f"/apis/{GROUP}/{VERSION}"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
ADA = User("ada", ("team", "system:authenticated"), "42", {"example.org/Role": ("a", "b")})
RESOURCES = [{"name": "things", "singularName": "thing", "namespaced": True, "kind": "Thing", "verbs": ["get"]}]


class Extension:
    """Extension API server with a certificate for `service`, which records the requests that it gets."""

    def __init__(self, server: ApiServer) -> None:
        self.authority = Authority(name="extension-ca")
        self.requests: list[tuple[str, str, dict[str, list[str]], bytes]] = []
        self.status = 200
        self.port = 0
        self._context = self.authority.server_context("things.tools.svc")
        self._context.load_verify_locations(cadata=server.front_proxy.authority.certificate.decode())
        self._context.verify_mode = ssl.CERT_REQUIRED

    async def answer(self, request: web.Request) -> web.Response:
        headers: dict[str, list[str]] = {}
        for name, value in request.headers.items():
            headers.setdefault(name, []).append(value)
        self.requests.append((request.method, request.raw_path, headers, await request.read()))
        if request.path == ROOT:
            return web.json_response({"kind": "APIResourceList", "resources": RESOURCES}, status=self.status)
        return web.json_response({"kind": "Thing"}, status=self.status, headers={"Retry-After": "3"})

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", self.port, ssl_context=self._context).start()
            self.port = runner.addresses[0][1]
            yield
        finally:
            await runner.cleanup()

    def last(self) -> tuple[str, str, dict[str, list[str]], bytes]:
        """Return the last request other than those of availability checks."""
        return [entry for entry in self.requests if entry[1] != ROOT][-1]


class Cluster:
    """API server with the client of a user who has all rights in its API group only."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.extension = Extension(server)

    async def ask(
        self, method: str, path: str, body: Any = None, token: str | None = None, **headers: str
    ) -> tuple[int, bytes]:
        assert self.server.authority is not None
        context = ssl.create_default_context(cadata=self.server.authority.certificate.decode())
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        sent["Authorization"] = f"Bearer {token or self.server.token}"
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, f"{self.server.url}{path}", json=body, headers=sent, ssl=context) as answer,
        ):
            return answer.status, await answer.read()

    async def json(self, path: str, **more: Any) -> Any:
        status, body = await self.ask("GET", path, **more)
        assert status == 200, body
        return json.loads(body)

    async def register(self, **spec: Any) -> None:
        """Create the APIService, and the Service with the address of the extension."""
        for path, body in (
            ("/api/v1/namespaces", {"metadata": {"name": "tools"}}),
            (
                "/api/v1/namespaces/tools/services",
                {"metadata": {"name": "things"}, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}},
            ),
            (API_SERVICES, self.api_service(**spec)),
        ):
            status, answer = await self.ask("POST", path, body)
            assert status == 201, answer

    def api_service(self, **spec: Any) -> dict[str, Any]:
        bundle = base64.b64encode(self.extension.authority.certificate).decode()
        service = {"namespace": "tools", "name": "things", "port": self.extension.port}
        common = {"group": GROUP, "version": VERSION, "groupPriorityMinimum": 100, "versionPriority": 10}
        return {
            "metadata": {"name": f"{VERSION}.{GROUP}"},
            "spec": {**common, "service": service, "caBundle": bundle, **spec},
        }

    async def condition(self) -> dict[str, str]:
        found = await self.json(f"{API_SERVICES}/{VERSION}.{GROUP}")
        conditions = (found.get("status") or {}).get("conditions") or [{}]
        return dict(conditions[0])

    async def until_available(self, status: str = "True") -> None:
        async def holds() -> bool:
            return (await self.condition()).get("status") == status

        await until(holds)


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.02)


@asynccontextmanager
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr("phalanx_local.aggregation.aggregator.CHECK_SECONDS", 0.02)
    server = ApiServer(ServerOptions(users={"ada-token": ADA}))
    await server.start()
    try:
        made = Cluster(server)
        rules = [{"apiGroups": [GROUP], "resources": ["*"], "verbs": ["*"]}]
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        await made.ask("POST", f"{rbac}/clusterroles", {"metadata": {"name": "things"}, "rules": rules})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "things"}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ada"}
        binding = {"metadata": {"name": "things"}, "roleRef": reference, "subjects": [subject]}
        await made.ask("POST", f"{rbac}/clusterrolebindings", binding)
        yield made
    finally:
        await server.stop()


async def test_request_is_forwarded_in_the_name_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(monkeypatch) as made, made.extension.serving():
        await made.register()
        await made.until_available()
        path = f"{ROOT}/namespaces/ns/things/a%2Fb?x=1&y=%20"
        status, body = await made.ask("POST", path, {"a": 1}, token="ada-token")
        assert (status, json.loads(body)) == (200, {"kind": "Thing"})
        method, raw_path, headers, sent = made.extension.last()
        assert (method, raw_path, json.loads(sent)) == ("POST", path, {"a": 1})
        assert headers["X-Remote-User"] == ["ada"]
        assert headers["X-Remote-Group"] == ["team", "system:authenticated"]
        assert headers["X-Remote-Uid"] == ["42"]
        assert headers["X-Remote-Extra-example.org%2FRole"] == ["a", "b"]
        assert "Authorization" not in headers


async def test_headers_of_the_client_about_a_user_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(monkeypatch) as made, made.extension.serving():
        await made.register()
        await made.until_available()
        forged = {"x_remote_USER": "root", "X_Remote_Group": "system:masters", "X_Remote_Extra_a": "b"}
        await made.ask(
            "GET", f"{ROOT}/namespaces/ns/things/a", token="ada-token", Connection="x-remote-user", **forged
        )
        _, _, headers, _ = made.extension.last()
        text = json.dumps(headers)
        assert headers["X-Remote-User"] == ["ada"]
        assert "root" not in text
        assert "system:masters" not in text


async def test_impersonated_user_is_named_and_the_headers_end_here(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(monkeypatch) as made, made.extension.serving():
        await made.register()
        await made.until_available()
        await made.ask("GET", f"{ROOT}/namespaces/ns/things/a", Impersonate_User="ada")
        _, _, headers, _ = made.extension.last()
        assert headers["X-Remote-User"] == ["ada"]
        assert not any(name.lower().startswith("impersonate") for name in headers)


async def test_user_without_the_right_is_refused_before_the_request_is_forwarded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster(monkeypatch) as made, made.extension.serving():
        await made.register()
        await made.until_available()
        status, body = await made.ask("GET", f"{ROOT}/namespaces/ns/things/a", Impersonate_User="grace")
        assert status == 403
        assert b'cannot get resource \\"things\\"' in body
        assert all(path == ROOT for _, path, _, _ in made.extension.requests)


async def test_discovery_lists_the_group_and_its_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(monkeypatch) as made, made.extension.serving():
        await made.register()
        await made.until_available()
        groups = await made.json("/apis")
        assert GROUP in [group["name"] for group in groups["groups"]]
        assert (await made.json(f"/apis/{GROUP}"))["preferredVersion"]["version"] == VERSION
        assert (await made.json(ROOT))["resources"] == RESOURCES
        accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        (item,) = [
            entry
            for entry in (await made.json("/apis", Accept=accept))["items"]
            if entry["metadata"]["name"] == GROUP
        ]
        (version,) = item["versions"]
        assert (version["freshness"], version["resources"][0]["resource"]) == ("Current", "things")
        status, _ = await made.ask("DELETE", f"{API_SERVICES}/{VERSION}.{GROUP}")
        assert status == 200
        assert GROUP not in [group["name"] for group in (await made.json("/apis"))["groups"]]
        assert (await made.ask("GET", ROOT))[0] == 404


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"caBundle": base64.b64encode(Authority().certificate).decode()}, "certificate verify failed"),
        ({"service": {"namespace": "tools", "name": "other"}}, 'service "other" not found'),
        ({"caBundle": "x"}, "unable to load root certificates"),
    ],
)
async def test_server_that_cannot_be_reached_or_verified_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, spec: dict[str, Any], words: str
) -> None:
    async with cluster(monkeypatch) as made, made.extension.serving():
        await made.register(**spec)
        await made.until_available("False")
        condition = await made.condition()
        assert condition["reason"] == "FailedDiscoveryCheck"
        assert words in condition["message"]
        assert (await made.ask("GET", f"{ROOT}/namespaces/ns/things/a"))[0] == 503
        assert all(path == ROOT for _, path, _, _ in made.extension.requests)


async def test_namespace_is_not_deleted_while_a_server_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(monkeypatch) as made:
        async with made.extension.serving():
            await made.register()
            await made.until_available()
        await made.until_available("False")
        await made.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
        await made.ask("DELETE", "/api/v1/namespaces/team")

        async def condition() -> Any:
            status, body = await made.ask("GET", "/api/v1/namespaces/team")
            conditions = json.loads(body).get("status", {}).get("conditions", []) if status == 200 else []
            return [item for item in conditions if item["type"] == "NamespaceDeletionDiscoveryFailure"]

        await until(condition)
        (found,) = await condition()
        assert (found["status"], found["reason"]) == ("True", "DiscoveryFailed")
        assert f"{GROUP}/{VERSION}: stale GroupVersion discovery" in found["message"]

        async def is_gone() -> bool:
            return (await made.ask("GET", "/api/v1/namespaces/team"))[0] == 404

        assert not await is_gone()
        await made.ask("DELETE", f"{API_SERVICES}/{VERSION}.{GROUP}")
        await until(is_gone)


async def test_configuration_of_the_front_proxy_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(monkeypatch) as made:
        found = await made.json(f"/api/v1/namespaces/kube-system/configmaps/{CONFIG_MAP}")
        assert json.loads(found["data"]["requestheader-allowed-names"]) == [CLIENT_NAME]
        authority = found["data"]["requestheader-client-ca-file"]
        assert authority == made.server.front_proxy.authority.certificate.decode()
        assert made.server.authority is not None
        assert authority != made.server.authority.certificate.decode()
        # The front proxy is no user of the API server.
        pair = made.server.front_proxy.authority.client_pair(CLIENT_NAME)
        context = ssl.create_default_context(cadata=made.server.authority.certificate.decode())
        load_pair(context, pair)
        async with aiohttp.ClientSession() as session:
            with pytest.raises((aiohttp.ClientError, ConnectionError)):
                async with session.get(f"{made.server.url}/api", ssl=context):
                    pass

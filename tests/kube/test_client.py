"""The client sends each request once, and describes the answer clearly."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.auth.credentials import ClientCertificate, StaticCredentials, TokenFileCredentials
from phalanx.kube.auth.exec_plugin import ExecCredentials, ExecPlugin
from phalanx.kube.auth.tls import TlsSettings
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost, Fenced, Unreachable
from phalanx.kube.http.connections import aiohttp_transport
from phalanx.kube.paths import Resource

from .certificates import Authority
from .conftest import FakeTime
from .stub_server import Hangup, Json, Recorded, StubServer, Text, Watch, bookmark, page, refusal, thing

PODS = Resource("", "v1", "pods", "Pod")
POD = PODS.path("ns", "a")
OK = Json({"kind": "Status", "status": "Success"})


@pytest.fixture(params=["own connections", "aiohttp"], autouse=True)
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything here holds for both transports."""
    if request.param == "aiohttp":
        monkeypatch.setattr("phalanx.kube.http.connections.default_transport", aiohttp_transport)


async def test_overloaded_server_reports_throttling_and_an_eviction_budget_does_not(
    server: StubServer, client: KubeClient
) -> None:
    told: list[float | None] = []
    client.throttled = told.append
    eviction = f"{POD}/eviction"
    server.on("GET", POD, refusal(429, "TooManyRequests", retry_after="3"), refusal(404, "NotFound"))
    server.on("POST", eviction, refusal(429, "TooManyRequests", retry_after="10"))
    for _ in range(2):
        with pytest.raises(ApiError):
            await client.get(POD)
    with pytest.raises(ApiError):  # a disruption budget forbids it: the server is well
        await client.create(eviction, {})
    assert told == [3.0]


class TestVerbs:
    async def test_get(self, server: StubServer, client: KubeClient) -> None:
        server.on("GET", POD, Json(thing("a", 1)))
        assert await client.get(POD, {"pretty": False, "limit": 5, "left": None}) == thing("a", 1)
        request = server.requests[0]
        assert request.query == {"pretty": "false", "limit": "5"}
        assert request.headers["User-Agent"] == "phalanx"
        assert request.headers["Accept"] == "application/json"
        assert request.headers["Accept-Encoding"] == "gzip"
        assert "Authorization" not in request.headers

    async def test_create_and_replace(self, server: StubServer, client: KubeClient) -> None:
        server.on("POST", PODS.path("ns"), Json(thing("a", 1), 201))
        server.on("PUT", POD, Json(thing("a", 2)))
        assert await client.create(PODS.path("ns"), {"a": "ü"}) == thing("a", 1)
        assert await client.replace(POD, {"b": 1}) == thing("a", 2)
        created, replaced = server.requests
        assert (created.json, replaced.json) == ({"a": "ü"}, {"b": 1})
        assert created.headers["Content-Type"] == "application/json"

    @pytest.mark.parametrize("kind", [PatchType.JSON, PatchType.MERGE, PatchType.STRATEGIC])
    async def test_patch(self, server: StubServer, client: KubeClient, kind: PatchType) -> None:
        server.on("PATCH", POD, Json(thing("a", 2)))
        assert await client.patch(POD, [{"op": "test"}], kind) == thing("a", 2)
        assert server.requests[0].headers["Content-Type"] == kind.value
        assert server.requests[0].json == [{"op": "test"}]
        assert server.requests[0].query == {}

    async def test_apply(self, server: StubServer, client: KubeClient) -> None:
        server.on("PATCH", POD, Json(thing("a", 2)))
        await client.patch(POD, {}, PatchType.APPLY, field_manager="phalanx", force=True)
        assert server.requests[0].query == {"fieldManager": "phalanx", "force": "true"}
        with pytest.raises(ValueError, match="needs a field_manager"):
            await client.patch(POD, {}, PatchType.APPLY)

    async def test_delete(self, server: StubServer, client: KubeClient) -> None:
        server.on("DELETE", POD, OK)
        await client.delete(POD, uid="u", grace_seconds=0, propagation="Background")
        assert server.requests[0].json == {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": "u"},
            "gracePeriodSeconds": 0,
            "propagationPolicy": "Background",
        }

    async def test_answer_that_is_not_read_must_be_json(self, server: StubServer, client: KubeClient) -> None:
        server.on("PATCH", POD, OK, Text("<html>", 200))
        assert await client.patch(POD, {}, PatchType.MERGE, read=False) is None
        with pytest.raises(ConnectionLost, match="the answer cannot be read"):
            await client.patch(POD, {}, PatchType.MERGE, read=False)
        server.on("POST", POD, OK, Text("<html>", 200))
        assert await client.create(POD, {}, read=False) is None
        with pytest.raises(ConnectionLost, match="the answer cannot be read"):
            await client.create(POD, {}, read=False)

    async def test_list_all_merges_the_pages(self, server: StubServer, client: KubeClient) -> None:
        server.on("GET", "/api/v1/pods", page(7, 1, token="t"), page(7, 2, token="u"), page(7, 3))
        merged = await client.list_all("/api/v1/pods", {"labelSelector": "a=b"}, limit=1)
        assert merged["items"] == [1, 2, 3]
        assert merged["metadata"] == {"resourceVersion": "7"}
        assert [r.query.get("continue") for r in server.requests] == [None, "t", "u"]
        assert {r.query["labelSelector"] for r in server.requests} == {"a=b"}

    async def test_list_all_starts_again_when_the_token_expires(
        self, server: StubServer, client: KubeClient
    ) -> None:
        server.on("GET", "/api/v1/pods", page(7, 1, token="t"), refusal(410, "Expired"), page(9, 2))
        assert (await client.list_all("/api/v1/pods"))["items"] == [2]

    async def test_a_path_must_be_one_word(self, client: KubeClient) -> None:
        for path in ("/a b", "/a\r\nX: y", "no-slash", "/ü"):
            with pytest.raises(ValueError, match="not an escaped path"):
                await client.get(path)

    async def test_a_server_may_live_below_a_path(self, server: StubServer) -> None:
        server.on("GET", "/k8s/c-1/api/v1/pods", page(1))
        async with KubeClient(ClusterConfig(server.url + "/k8s/c-1")) as client:
            assert (await client.get("/api/v1/pods"))["items"] == []

    async def test_impersonation_is_in_every_request(self, server: StubServer) -> None:
        server.on("GET", POD, OK)
        config = ClusterConfig(server.url, headers=(("Impersonate-User", "jo"), ("Impersonate-Group", "g")))
        async with KubeClient(config) as client:
            await client.get(POD)
        assert server.requests[0].headers["Impersonate-User"] == "jo"


class TestErrors:
    async def test_a_status_is_read(self, server: StubServer, client: KubeClient) -> None:
        server.on("POST", POD, refusal(409, "AlreadyExists", "pods a exists", name="a", kind="pods"))
        with pytest.raises(ApiError) as caught:
            await client.create(POD, {})
        error = caught.value
        assert (error.status, error.reason, error.message) == (409, "AlreadyExists", "pods a exists")
        assert error.details == {"name": "a", "kind": "pods"}
        assert error.retry_after is None
        assert str(error) == "409 AlreadyExists: pods a exists (POST /api/v1/namespaces/ns/pods/a)"

    async def test_retry_after(self, server: StubServer, client: KubeClient) -> None:
        for reply, seconds in [
            (refusal(429, "TooManyRequests", retry_after="3"), 3.0),
            (refusal(504, "Timeout", retryAfterSeconds=2), 2.0),
            (refusal(503, "ServiceUnavailable", retry_after="Thu, 01 Jan 1970 00:00:00 GMT"), 0.0),
            (refusal(503, "ServiceUnavailable", retry_after="soon"), None),
        ]:
            server.on("GET", POD, reply)
            with pytest.raises(ApiError) as caught:
                await client.get(POD)
            assert caught.value.retry_after == seconds

    async def test_something_else_than_an_api_server(self, server: StubServer, client: KubeClient) -> None:
        server.on("GET", POD, Text("<html>Bad gateway</html>", 502))
        with pytest.raises(ApiError, match="502 BadGateway: <html>Bad gateway</html>") as caught:
            await client.get(POD)
        assert not caught.value.from_api_server
        server.on("GET", POD, Json({"kind": "Status"}, 302, {"Location": "/elsewhere"}))
        with pytest.raises(ApiError, match="302"):
            await client.get(POD)

    async def test_unreachable_server_and_lost_answer_are_different_errors(self, server: StubServer) -> None:
        async with KubeClient(ClusterConfig("http://127.0.0.1:1")) as client:
            with pytest.raises(Unreachable, match="POST /x"):
                await client.create("/x", {})
        server.on("POST", "/x", Hangup())
        async with KubeClient(ClusterConfig(server.url)) as client:
            with pytest.raises(ConnectionLost, match="POST /x") as caught:
                await client.create("/x", {})
            assert not isinstance(caught.value, Unreachable)

    async def test_no_answer_in_time(self, server: StubServer, client: KubeClient) -> None:
        server.on("POST", "/x", Watch())
        with pytest.raises(ConnectionLost, match="POST /x: no answer in time"):
            await client.request("POST", "/x", body=b"{}", timeout=0.05)


class TestDeadConnections:
    """A kept-alive connection that the server closed: only idempotent requests are repeated."""

    @pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
    async def test_repeated(self, server: StubServer, client: KubeClient, method: str) -> None:
        server.on(method, POD, Hangup(), OK)
        match method:
            case "GET":
                await client.get(POD)
            case "PUT":
                await client.replace(POD, {})
            case "DELETE":
                await client.delete(POD, uid="u")
        assert len(server.requests) == 2

    @pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
    async def test_not_repeated(self, server: StubServer, client: KubeClient, method: str) -> None:
        server.on("GET", POD, OK)
        await client.get(POD)  # now there is a connection to be reused
        server.on(method, POD, Hangup(), OK)
        send = {
            "POST": client.create(POD, {}),
            "PATCH": client.patch(POD, {}, PatchType.MERGE),
            "DELETE": client.delete(POD),
        }
        for other in send.keys() - {method}:
            send[other].close()
        with pytest.raises(ConnectionLost):
            await send[method]
        assert len(server.requests) == 2

    async def test_connections_are_reused(self, server: StubServer, client: KubeClient) -> None:
        server.on("GET", POD, OK)
        for _ in range(3):
            await client.get(POD)
        assert len({request.peer for request in server.requests}) == 1

    async def test_open_connections_never_exceed_the_limit(self, server: StubServer) -> None:
        server.on("GET", POD, OK)
        async with KubeClient(ClusterConfig(server.url), max_connections=2) as client:
            await asyncio.gather(*(client.get(POD) for _ in range(10)))
        assert len({request.peer for request in server.requests}) == 2

    async def test_streams_do_not_use_up_the_connections_for_requests(self, server: StubServer) -> None:
        server.on("GET", POD, OK)
        server.on("GET", "/w", Watch((bookmark(1),)), watch=True)
        async with KubeClient(ClusterConfig(server.url), max_connections=1) as client:
            streams = [client.stream("/w", {"watch": True}, read_timeout=5) for _ in range(3)]
            for stream in streams:
                assert b"BOOKMARK" in await anext(stream)
            await client.get(POD)
            for stream in streams:
                await stream.aclose()


class TestStreams:
    async def read(self, client: KubeClient, **options: Any) -> list[bytes]:
        return [line async for line in client.stream("/w", {"watch": True}, **{"read_timeout": 5, **options})]

    async def test_lines_are_whole_however_they_are_cut(self, server: StubServer, client: KubeClient) -> None:
        long = json.dumps("x" * 300_000).encode()
        server.on(
            "GET", "/w", Watch((b'{"a', b'":1}\n{"b":2}\n{', b'"c":3}\n', b"\n", long, b"\n"), "clean"), watch=True
        )
        assert await self.read(client) == [b'{"a":1}', b'{"b":2}', b'{"c":3}', long]

    async def test_an_end_inside_a_line_is_a_loss(self, server: StubServer, client: KubeClient) -> None:
        server.on("GET", "/w", Watch((b'{"a":1}\n{"b"',), "clean"), watch=True)
        with pytest.raises(ConnectionLost, match="ended inside a line"):
            await self.read(client)

    async def test_silence_is_a_loss(self, server: StubServer, client: KubeClient) -> None:
        server.on("GET", "/w", Watch((b'{"a":1}\n',), "hang"), watch=True)
        with pytest.raises(ConnectionLost, match="no answer in time"):
            await self.read(client, read_timeout=0.05)

    async def test_a_refusal_is_an_error(self, server: StubServer, client: KubeClient) -> None:
        server.on("GET", "/w", refusal(429, "TooManyRequests", retry_after="9"), watch=True)
        with pytest.raises(ApiError, match="429 TooManyRequests") as caught:
            await self.read(client)
        assert caught.value.retry_after == 9


def only(token: str) -> Any:
    """A reply that lets one token in."""

    def reply(request: Recorded) -> Json:
        good = request.headers.get("Authorization") == f"Bearer {token}"
        return OK if good else refusal(401, "Unauthorized")

    return reply


class TestCredentials:
    @pytest.fixture
    async def rotating(self, server: StubServer, tmp_path: Path, fake_time: FakeTime) -> AsyncIterator[KubeClient]:
        (tmp_path / "token").write_text("one")
        config = ClusterConfig(
            server.url,
            credentials=lambda: TokenFileCredentials(str(tmp_path / "token"), clock=fake_time.clock),
        )
        async with KubeClient(config) as client:
            yield client

    async def test_a_rotated_token_is_picked_up_at_the_first_401(
        self, server: StubServer, rotating: KubeClient, tmp_path: Path
    ) -> None:
        server.on("POST", POD, only("one"))
        await rotating.create(POD, {})
        (tmp_path / "token").write_text("two")
        server.on("POST", POD, only("two"))
        await rotating.create(POD, {})
        # A 401 means that nothing happened, so even a POST may be sent again.
        assert [r.headers["Authorization"] for r in server.requests] == ["Bearer one", "Bearer one", "Bearer two"]

    async def test_a_rotated_token_is_picked_up_by_a_stream(
        self, server: StubServer, rotating: KubeClient, tmp_path: Path
    ) -> None:
        def reply(request: Recorded) -> Json | Watch:
            if request.headers["Authorization"] == "Bearer two":
                return Watch((b"{}\n",), "clean")
            return refusal(401, "Unauthorized")

        server.on("GET", "/w", reply, watch=True)
        with pytest.raises(ApiError, match="401"):
            await anext(rotating.stream("/w", {"watch": True}, read_timeout=5))
        (tmp_path / "token").write_text("two")
        lines = [line async for line in rotating.stream("/w", {"watch": True}, read_timeout=5)]
        assert lines == [b"{}"]

    async def test_a_static_token_that_is_refused_is_not_tried_twice(self, server: StubServer) -> None:
        server.on("GET", POD, only("other"))
        config = ClusterConfig(server.url, credentials=lambda: StaticCredentials.token("mine"))
        async with KubeClient(config) as client:
            with pytest.raises(ApiError, match="401 Unauthorized"):
                await client.get(POD)
        assert len(server.requests) == 1

    async def test_an_exec_plugin_runs_again_once_after_a_401(self, server: StubServer, tmp_path: Path) -> None:
        script = tmp_path / "login.py"
        script.write_text(
            "import json, pathlib\n"
            "runs = pathlib.Path(__file__).with_suffix('.runs')\n"
            "with runs.open('a') as f: f.write('x')\n"
            "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',\n"
            "                  'status': {'token': f't{len(runs.read_text())}'}}))\n"
        )
        plugin = ExecPlugin(sys.executable, "client.authentication.k8s.io/v1", "user", (str(script),))
        server.on("GET", POD, only("t2"))
        async with KubeClient(ClusterConfig(server.url, credentials=lambda: ExecCredentials(plugin))) as client:
            assert await asyncio.gather(*(client.get(POD) for _ in range(4))) == [OK.body] * 4
            assert script.with_suffix(".runs").read_text() == "xx"
            server.on("GET", POD, only("nobody"))
            with pytest.raises(ApiError, match="401"):
                await client.get(POD)
            assert script.with_suffix(".runs").read_text() == "xxx"

    async def test_a_plugin_that_has_nothing_new_to_say_is_not_a_reason_to_ask_again(
        self, server: StubServer, tmp_path: Path
    ) -> None:
        script = tmp_path / "login.py"
        script.write_text(
            'print(\'{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",\'\n'
            '      \'"status": {"token": "always"}}\')\n'
        )
        plugin = ExecPlugin(sys.executable, "client.authentication.k8s.io/v1", "user", (str(script),))
        server.on("GET", POD, only("another"))
        async with KubeClient(ClusterConfig(server.url, credentials=lambda: ExecCredentials(plugin))) as client:
            with pytest.raises(ApiError, match="401"):
                await client.get(POD)
        assert len(server.requests) == 1


class TestTls:
    async def ask(self, url: str, tls: TlsSettings, **options: Any) -> Any:
        async with KubeClient(ClusterConfig(url, tls=tls, **options)) as client:
            return await client.get(POD)

    @pytest.fixture
    def authority(self) -> Authority:
        return Authority()

    async def test_the_servers_certificate_is_checked(self, tmp_path: Path, authority: Authority) -> None:
        async with StubServer(authority.server_context(tmp_path, "127.0.0.1")) as server:
            server.on("GET", POD, OK)
            assert await self.ask(server.url, TlsSettings(authority=authority.pem)) == OK.body
            ca = tmp_path / "ca.pem"
            ca.write_bytes(authority.pem)
            assert await self.ask(server.url, TlsSettings(authority_file=str(ca))) == OK.body
            assert await self.ask(server.url, TlsSettings(insecure=True)) == OK.body

    async def test_unknown_certificate_issuer_is_named_in_the_error(
        self, tmp_path: Path, authority: Authority
    ) -> None:
        stranger, file = Authority("stranger").pem, tmp_path / "stranger.pem"
        file.write_bytes(stranger)
        trusted = {
            "the certificate authority of kubeconfig k: cluster 'c'": TlsSettings(
                authority=stranger, origin="kubeconfig k: cluster 'c'"
            ),
            f"the certificate authority in {file}": TlsSettings(authority_file=str(file)),
            "any certificate authority of this system, and k names none": TlsSettings(origin="k"),
        }
        async with StubServer(authority.server_context(tmp_path, "127.0.0.1")) as server:
            place = server.url.removeprefix("https://")
            for words, tls in trusted.items():
                told = re.escape(f"GET {POD}: the certificate of {place} is not signed by {words} (")
                with pytest.raises(Unreachable, match=told):
                    await self.ask(server.url, tls)

    async def test_an_authority_need_not_be_a_root(self, tmp_path: Path, authority: Authority) -> None:
        middle = Authority("middle", parent=authority)
        async with StubServer(middle.server_context(tmp_path, "127.0.0.1")) as server:
            server.on("GET", POD, OK)
            assert await self.ask(server.url, TlsSettings(authority=middle.pem)) == OK.body

    async def test_tls_server_name_replaces_the_host(self, tmp_path: Path, authority: Authority) -> None:
        async with StubServer(authority.server_context(tmp_path, "inner.example")) as server:
            server.on("GET", POD, OK)
            with pytest.raises(Unreachable, match="is not accepted: IP address mismatch"):
                await self.ask(server.url, TlsSettings(authority=authority.pem))
            named = TlsSettings(authority=authority.pem, server_name="inner.example")
            assert await self.ask(server.url, named) == OK.body

    @pytest.mark.parametrize("form", ["inline", "files"])
    async def test_client_certificates(self, tmp_path: Path, authority: Authority, form: str) -> None:
        pair = authority.issue("jo")
        if form == "inline":
            mine = TlsSettings(authority=authority.pem, certificate=ClientCertificate(pair.certificate, pair.key))
        else:
            (tmp_path / "crt").write_bytes(pair.certificate)
            (tmp_path / "key").write_bytes(pair.key)
            mine = TlsSettings(
                authority=authority.pem, certificate_file=str(tmp_path / "crt"), key_file=str(tmp_path / "key")
            )
        async with StubServer(authority.server_context(tmp_path, "127.0.0.1", clients=True)) as server:
            server.on("GET", POD, OK)
            assert await self.ask(server.url, mine) == OK.body
            with pytest.raises(ConnectionLost):
                await self.ask(server.url, dataclasses.replace(mine, certificate=None, certificate_file=None))
            assert server.requests[0].certificate == "jo"

    def test_inline_keys_leave_no_file_behind(
        self, tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(scratch))
        pair = authority.issue("jo")
        TlsSettings(certificate=ClientCertificate(pair.certificate, pair.key)).context()
        with pytest.raises(ConfigError, match="cannot load the client certificate or key"):
            TlsSettings(certificate=ClientCertificate(pair.certificate, b"no key")).context()
        assert list(scratch.iterdir()) == []

    async def test_a_plugins_new_certificate_means_new_connections(
        self, tmp_path: Path, authority: Authority
    ) -> None:
        pairs = {name: authority.issue(name) for name in ("first", "second")}
        for name, pair in pairs.items():
            answer = {
                "apiVersion": "client.authentication.k8s.io/v1",
                "kind": "ExecCredential",
                "status": {
                    "clientCertificateData": pair.certificate.decode(),
                    "clientKeyData": pair.key.decode(),
                    "expirationTimestamp": "2026-01-01T00:00:00Z" if name == "first" else "2027-01-01T00:00:00Z",
                },
            }
            (tmp_path / name).write_text(json.dumps(answer))
        (tmp_path / "login").write_text(f"print(open({str(tmp_path / 'now')!r}).read())")
        plugin = ExecPlugin(sys.executable, "client.authentication.k8s.io/v1", "user", (str(tmp_path / "login"),))
        now = 1_767_225_599.0  # a second before 2026
        (tmp_path / "now").write_text((tmp_path / "first").read_text())
        async with StubServer(authority.server_context(tmp_path, "127.0.0.1", clients=True)) as server:
            server.on("GET", POD, OK)
            server.on("GET", "/w", Watch((b"{}\n", b"{}\n"), "hang"), watch=True)
            config = ClusterConfig(
                server.url,
                tls=TlsSettings(authority=authority.pem),
                credentials=lambda: ExecCredentials(plugin, wall_clock=lambda: now),
            )
            async with KubeClient(config) as client:
                watch = client.stream("/w", {"watch": True}, read_timeout=5)
                await anext(watch)
                await client.get(POD)
                (tmp_path / "now").write_text((tmp_path / "second").read_text())
                now += 1
                await client.get(POD)
                assert await anext(watch) == b"{}"  # the old connection serves its stream to the end
                await watch.aclose()
            assert [r.certificate for r in server.seen("GET", POD)] == ["first", "second"]

    async def test_a_replaced_authority_file_is_read_within_a_minute(
        self, tmp_path: Path, authority: Authority, fake_time: FakeTime
    ) -> None:
        ca = tmp_path / "ca.pem"
        ca.write_bytes(Authority("old").pem)
        async with StubServer(authority.server_context(tmp_path, "127.0.0.1")) as server:
            server.on("GET", POD, OK)
            config = ClusterConfig(server.url, tls=TlsSettings(authority_file=str(ca)))
            async with KubeClient(config, clock=fake_time.clock) as client:
                with pytest.raises(Unreachable):
                    await client.get(POD)
                ca.write_bytes(b"half of a new")
                fake_time.now += 61
                with pytest.raises(Unreachable):
                    await client.get(POD)  # an unreadable certificate does not replace the working one
                ca.write_bytes(authority.pem)
                fake_time.now += 61
                assert await client.get(POD) == OK.body


async def test_a_proxy_is_asked_for_everything() -> None:
    """A plain HTTP proxy gets the whole URL; the target does not exist, so only the proxy can answer."""
    async with StubServer() as proxy:
        proxy.on("GET", "http://api.invalid/api/v1/pods", page(1))
        proxy.on("GET", "http://api.invalid/w", Watch((b"{}\n",), "clean"), watch=True)
        async with KubeClient(ClusterConfig("http://api.invalid", proxy_url=proxy.url)) as client:
            assert (await client.get("/api/v1/pods"))["items"] == []
            assert [line async for line in client.stream("/w", {"watch": True}, read_timeout=5)] == [b"{}"]


class TestFence:
    """A client without the fence's permission sends nothing, however far a request was prepared."""

    async def test_writes_are_not_sent_and_reads_are(self, server: StubServer, client: KubeClient) -> None:
        server.on("GET", POD, Json(thing("a", 1)))
        fenced = client.fenced(lambda: False)
        for write in (
            fenced.create(PODS.path("ns"), {}),
            fenced.replace(POD, {}),
            fenced.patch(POD, {}, PatchType.MERGE),
            fenced.delete(POD),
        ):
            with pytest.raises(Fenced):
                await write
        assert await fenced.get(POD) == thing("a", 1)
        assert [request.method for request in server.requests] == ["GET"]

    @pytest.mark.parametrize("transport", ["own connections"], indirect=True)
    async def test_fence_is_checked_after_the_wait_for_a_connection(self, server: StubServer) -> None:
        """The only connection is busy when the lease runs out."""
        leads = [True]

        def late(_: Recorded) -> Json:
            leads.clear()
            return Json(thing("a", 1))

        server.on("GET", POD, late)
        async with KubeClient(ClusterConfig(server.url), max_connections=1) as client:
            reading = asyncio.create_task(client.get(POD))
            await asyncio.sleep(0)
            with pytest.raises(Fenced):
                await client.fenced(lambda: bool(leads)).create(PODS.path("ns"), {})
            await reading
        assert [request.method for request in server.requests] == ["GET"]

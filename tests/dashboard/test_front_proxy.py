"""The aggregated API believes the headers about a user from the front proxy of the API server alone."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from multidict import CIMultiDict

from phalanx.dashboard.access import Viewer, ViewerAccessError
from phalanx.dashboard.aggregated.front_proxy import FrontProxy, FrontProxyError, ProxyTrust, read_front_proxy
from phalanx_local.authentication.certificates import Authority, KeyPair, load_pair

ADA = {"X-Remote-User": "ada"}
NAME = "front-proxy-client"
YEAR = 365 * 86_400


def config(*authorities: Authority, **changed: object) -> dict[str, str]:
    """Return the data of the ConfigMap that trusts these authorities."""
    lists = {
        "requestheader-allowed-names": [NAME],
        "requestheader-username-headers": ["X-Remote-User"],
        "requestheader-uid-headers": ["X-Remote-Uid"],
        "requestheader-group-headers": ["X-Remote-Group"],
        "requestheader-extra-headers-prefix": ["X-Remote-Extra-"],
    } | {f"requestheader-{key.replace('_', '-')}": value for key, value in changed.items()}
    bundle = b"".join(authority.certificate for authority in authorities).decode()
    return {key: json.dumps(value) for key, value in lists.items()} | {"requestheader-client-ca-file": bundle}


PROXY_CA = Authority(name="front-proxy-ca")
PROXY = read_front_proxy(config(PROXY_CA))


class Served:
    """HTTPS server that answers with the name of the user, behind a trust with a clock that can be set."""

    def __init__(self) -> None:
        self.offset = 0.0
        self.trust = ProxyTrust.new(lambda: time.time() + self.offset)
        self.url = ""
        self._serving = Authority()
        pair = self._serving.server_pair("127.0.0.1")
        self._chain = pair.certificate + pair.key

    def use(self, proxy: FrontProxy) -> None:
        self.trust.use(proxy, self._chain)

    def session(self, pair: KeyPair | None) -> aiohttp.ClientSession:
        """Return a session whose connections present a certificate, and are reused."""
        context = ssl.create_default_context(cadata=self._serving.certificate.decode())
        if pair is not None:
            load_pair(context, pair)
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context))

    async def ask(self, pair: KeyPair | None, headers: dict[str, str] = ADA) -> str:
        """Return the answer over a new connection, "refused" where the connection is refused."""
        async with self.session(pair) as session:
            return await self.text(session, headers)

    async def text(self, session: aiohttp.ClientSession, headers: dict[str, str] = ADA) -> str:
        try:
            async with session.get(self.url, headers=headers) as answer:
                return await answer.text()
        except (aiohttp.ClientError, ConnectionError):
            return "refused"


@asynccontextmanager
async def served(proxy: FrontProxy = PROXY) -> AsyncIterator[Served]:
    server = Served()
    server.use(proxy)

    async def answer(request: web.Request) -> web.Response:
        try:
            return web.Response(text=server.trust.request_viewer(request).name)
        except ViewerAccessError as error:
            return web.Response(text=f"{error.status}")

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server.trust).start()
        server.url = f"https://127.0.0.1:{runner.addresses[0][1]}/"
        yield server
    finally:
        await runner.cleanup()


async def test_front_proxy_names_the_user() -> None:
    async with served() as server:
        assert await server.ask(PROXY_CA.client_pair(NAME)) == "ada"


async def test_headers_of_other_clients_name_nobody() -> None:
    async with served() as server:
        assert await server.ask(None) == "401"
        assert await server.ask(PROXY_CA.client_pair("metrics-server")) == "401"
        assert await server.ask(PROXY_CA.client_pair("other", (NAME,))) == "401"
        assert await server.ask(PROXY_CA.client_pair(NAME), {}) == "401"
        # The authority of the users' certificates is another one, whatever the name.
        assert await server.ask(Authority().client_pair(NAME)) == "refused"
        assert await server.ask(Authority(name="front-proxy-ca").client_pair(NAME)) == "refused"
        # A server's certificate is none of a client.
        assert await server.ask(PROXY_CA.server_pair("127.0.0.1")) == "refused"


async def test_any_name_of_the_authority_is_the_front_proxy_without_allowed_names() -> None:
    async with served(read_front_proxy(config(PROXY_CA, allowed_names=[]))) as server:
        assert await server.ask(PROXY_CA.client_pair("apiserver")) == "ada"
        assert await server.ask(Authority().client_pair("apiserver")) == "refused"


async def test_rotated_authority_is_trusted_and_the_replaced_one_refused_at_once() -> None:
    new = Authority(name="front-proxy-ca-2")
    async with served() as server, server.session(PROXY_CA.client_pair(NAME)) as session:
        assert await server.text(session) == "ada"
        # Both are listed while the API servers get their new certificates.
        server.use(read_front_proxy(config(PROXY_CA, new)))
        assert await server.ask(PROXY_CA.client_pair(NAME)) == "ada"
        assert await server.ask(new.client_pair(NAME)) == "ada"
        server.use(read_front_proxy(config(new)))
        assert await server.ask(PROXY_CA.client_pair(NAME)) == "refused"
        assert await server.ask(new.client_pair(NAME)) == "ada"
        # So is a connection that was open before.
        assert await server.text(session) in ("401", "refused")


async def test_changed_names_apply_to_open_connections() -> None:
    async with served() as server, server.session(PROXY_CA.client_pair(NAME)) as session:
        assert await server.text(session) == "ada"
        server.use(read_front_proxy(config(PROXY_CA, allowed_names=["other"])))
        assert await server.text(session) == "401"


async def test_expired_certificates_and_authorities_are_refused() -> None:
    async with served() as server, server.session(PROXY_CA.client_pair(NAME)) as session:
        assert await server.text(session) == "ada"
        server.offset = 11.0 * YEAR
        assert await server.text(session) == "401"
        server.use(PROXY)
        assert await server.ask(PROXY_CA.client_pair(NAME)) == "refused"


async def test_session_of_a_connection_is_not_resumed() -> None:
    async with served() as server:
        context = ssl.create_default_context(cadata=server._serving.certificate.decode())
        load_pair(context, PROXY_CA.client_pair(NAME))
        port = int(server.url.rpartition(":")[2].strip("/"))
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context.maximum_version = version
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            connection = writer.get_extra_info("ssl_object")
            await asyncio.sleep(0)
            assert connection.session is None or not connection.session.has_ticket
            writer.close()


def viewer(*headers: tuple[str, str], proxy: FrontProxy = PROXY) -> Viewer:
    return proxy.viewer(CIMultiDict(headers))


def test_groups_uid_and_extra_values_are_read() -> None:
    found = viewer(
        ("x-remote-USER", "ada"),
        ("X-Remote-Group", "team"),
        ("X-Remote-Group", ""),
        ("x-remote-group", "system:authenticated"),
        ("X-Remote-Uid", "42"),
        ("X-Remote-Extra-Example.org%2fRole", "a"),
        ("X-Remote-Extra-example.org%2Frole", "b"),
    )
    assert found == Viewer("ada", ("team", "system:authenticated"), "42", (("example.org/role", ("a", "b")),))
    assert not found.trusted


def test_group_of_authenticated_users_is_added_except_for_anonymous_ones() -> None:
    assert viewer(("X-Remote-User", "ada")).groups == ("system:authenticated",)
    assert viewer(("X-Remote-User", "system:anonymous")).groups == ()
    anonymous = viewer(("X-Remote-User", "x"), ("X-Remote-Group", "system:unauthenticated"))
    assert anonymous.groups == ("system:unauthenticated",)


def test_other_configured_header_names_count_and_the_usual_ones_do_not() -> None:
    proxy = read_front_proxy(config(PROXY_CA, username_headers=["X-A", "X-B"], group_headers=["X-Team"]))
    found = viewer(("X-Remote-Group", "system:masters"), ("X-B", "ada"), ("X-Team", "t"), proxy=proxy)
    assert (found.name, found.groups) == ("ada", ("t", "system:authenticated"))
    with pytest.raises(ViewerAccessError):
        viewer(("X-Remote-User", "ada"), proxy=proxy)


@pytest.mark.parametrize(
    "headers", [[("X-Remote-User", "")], [("X-Remote-User", "a\udcff")], [("X-Remote-Group", "\x01"), *ADA.items()]]
)
def test_unusable_headers_are_refused(headers: Iterable[tuple[str, str]]) -> None:
    with pytest.raises(ViewerAccessError) as refused:
        viewer(*headers)
    assert refused.value.status == 401


@pytest.mark.parametrize(
    "changed",
    [
        {"requestheader-client-ca-file": ""},
        {"requestheader-client-ca-file": "PEM"},
        {"requestheader-allowed-names": "front-proxy-client"},
        {"requestheader-allowed-names": '{"a": 1}'},
        {"requestheader-username-headers": "[]"},
        {"requestheader-username-headers": '[" "]'},
        {"requestheader-group-headers": "[1]"},
    ],
)
def test_unusable_configuration_is_refused(changed: dict[str, str]) -> None:
    with pytest.raises(FrontProxyError):
        read_front_proxy(config(PROXY_CA) | changed)


def test_authority_of_users_is_refused_unless_the_front_proxy_has_a_name() -> None:
    shared = {"client-ca-file": Authority().certificate.decode() + PROXY_CA.certificate.decode()}
    with pytest.raises(FrontProxyError, match="each user could act as another"):
        read_front_proxy(config(PROXY_CA, allowed_names=[]) | shared)
    assert read_front_proxy(config(PROXY_CA) | shared).names == (NAME,)
    own = {"client-ca-file": Authority().certificate.decode()}
    assert read_front_proxy(config(PROXY_CA, allowed_names=[]) | own).names == ()


def test_key_of_the_certificate_is_in_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    Served().use(PROXY)
    assert list(tmp_path.iterdir()) == []

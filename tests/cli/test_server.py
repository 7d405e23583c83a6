"""The user's token is sent to the page's server only over TLS or on this machine, and never to a second address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import click
import pytest
from aiohttp import web

from phalanx.cli.connection import ClientOptions
from phalanx.cli.invocation import Invocation
from phalanx.cli.server.address import ServerAddress, checked_url, server_address
from phalanx.cli.server.aggregated import AggregatedServer
from phalanx.cli.server.choice import find_server
from phalanx.cli.server.list_settings import list_settings
from phalanx.cli.server.requests import AddressedServer, Server, ServerUnavailable
from phalanx.cli.server.rights import by_rights
from phalanx.dialects.options import DialectOptions
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.auth.credentials import StaticCredentials
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError
from phalanx.reports.published_policy import ListSettings


class Published(KubeClient):
    """Client of a cluster at `server` whose ConfigMap has these data (None: no ConfigMap)."""

    def __init__(
        self,
        server: str = "https://127.0.0.1:6443",
        data: Any = None,
        headers: tuple[tuple[str, str], ...] = (),
        aggregated: int = 404,
        authenticated: bool = True,
    ) -> None:
        def token() -> StaticCredentials:
            return StaticCredentials.token("secret-token", "test") if authenticated else StaticCredentials()

        super().__init__(ClusterConfig(server, credentials=token, headers=headers))
        self._data = data
        self._aggregated = aggregated

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        if path.startswith("/apis/"):
            if self._aggregated != 200:
                raise ApiError(self._aggregated, "", "service unavailable")
            return b"{}"
        if self._data is None:
            raise ApiError(404, "NotFound", "no such ConfigMap")
        import msgspec

        return msgspec.json.encode({"data": self._data})


@pytest.mark.parametrize(
    "url",
    [
        "http://phalanx.example",
        "http://10.0.0.1:8080",
        "http://localhost.example",
        "http://127.0.0.1.example:80",
        "http://0.0.0.0:80",
        "ftp://127.0.0.1",
        "https://",
        "//phalanx.example",
        "https://user:word@phalanx.example",
        "https://127.0.0.1@phalanx.example",
        "https://phalanx.example?x=1",
        "https://phalanx.example#x",
        "https://phalanx.example:70000",
        "https://phal anx.example",
        "https://phalanx.example\r\nHost: x",
        "http://[::1",
        "",
    ],
)
def test_url_that_would_expose_a_token_is_refused(url: str) -> None:
    with pytest.raises(click.UsageError):
        checked_url(url, "--server")


@pytest.mark.parametrize(
    "url", ["https://phalanx.example", "http://127.0.0.1:80", "http://[::1]:80", "http://localhost"]
)
def test_url_with_tls_or_of_this_machine_is_accepted(url: str) -> None:
    assert checked_url(f"{url}/", "--server") == url


def find(client: KubeClient, **options: str) -> ServerAddress | None:
    return asyncio.run(server_address(client, ClientOptions(**options)))  # type: ignore[arg-type]


def test_address_is_found_in_the_option_before_the_config_map() -> None:
    published = Published(data={"url": "https://phalanx.example", "ca.crt": "PEM"})
    assert find(published) == ServerAddress("https://phalanx.example", "ConfigMap kube-public/phalanx", b"PEM")
    assert find(published, server="https://other") == ServerAddress("https://other", "--server")
    assert find(Published()) is None


class WithPage(Published):
    """Client of an administrator whose kubeconfig names a page's server."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.config = replace(self.config, page_url=url, source="kubeconfig F")

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        return b'{"items": []}'


def answer_of(client: KubeClient, **options: Any) -> str:
    """Return which way a question of an administrator is answered."""

    async def read(client: KubeClient) -> str:
        return "own rights"

    async def ask(server: Server) -> str:
        return (await server.get("session", dict))["by"]  # type: ignore[no-any-return]

    own_first = options.pop("own_first", False)
    invocation = Invocation(client=ClientOptions(), **options)

    async def run() -> str:
        return await by_rights(invocation, read, ask, own_first=own_first)(client)

    return asyncio.run(run())


async def _page(request: web.Request) -> web.Response:
    assert request.headers["Authorization"] == "Bearer secret-token"
    return web.json_response({"by": "server"})


def test_server_of_the_kubeconfig_is_asked_before_the_own_rights() -> None:
    async def run() -> str:
        async with serving(_page) as url:
            return await asyncio.to_thread(answer_of, WithPage(url))

    assert asyncio.run(run()) == "server"


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://phalanx.example", "x", ""])
def test_kubeconfig_without_a_usable_server_means_own_rights(url: str) -> None:
    assert answer_of(WithPage(url)) == "own rights"


@pytest.mark.parametrize(
    "options",
    [{"config": "policy.yaml"}, {"scheduler_names": ("x",)}, {"lease_namespace": "other"}, {"own_first": True}],
)
def test_question_about_a_named_scheduler_is_answered_with_own_rights(options: dict[str, Any]) -> None:
    async def run() -> str:
        async with serving(_page) as url:
            return await asyncio.to_thread(partial(answer_of, **options), WithPage(url))

    assert asyncio.run(run()) == "own rights"


def test_published_address_of_this_machine_counts_only_for_a_cluster_on_it() -> None:
    data = {"url": "http://127.0.0.1:8080"}
    assert find(Published(data=data)) is not None
    with pytest.raises(click.ClickException, match="your token was not sent"):
        find(Published("https://cluster.example", data))


@pytest.mark.parametrize("data", [{}, {"url": "http://phalanx.example"}, {"url": "x"}, {"ca.crt": "PEM"}])
def test_published_address_that_would_expose_a_token_is_refused(data: dict[str, str]) -> None:
    with pytest.raises(click.ClickException, match="ConfigMap kube-public/phalanx"):
        find(Published(data=data))


@asynccontextmanager
async def serving(handler: Any) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def ask(url: str, client: KubeClient | None = None) -> Any:
    return await AddressedServer(client or Published(), ServerAddress(url, "--server")).get("session", dict)


def test_redirect_is_not_followed_and_the_token_stays_here() -> None:
    seen: list[str] = []

    async def foreign(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        return web.json_response({})

    async def run() -> None:
        async with serving(foreign) as target:

            async def redirect(request: web.Request) -> web.Response:
                raise web.HTTPTemporaryRedirect(f"{target}{request.path}")

            async with serving(redirect) as url:
                with pytest.raises(click.ClickException, match="redirects are not followed"):
                    await ask(url)

    asyncio.run(run())
    assert seen == []


@pytest.mark.parametrize(
    ("status", "body", "error", "words"),
    [
        (403, '{"error": "no right"}', click.ClickException, "no right"),
        (429, '{"error": "wait"}', click.ClickException, "wait"),
        (503, '{"error": "not ready"}', ServerUnavailable, "cannot answer now: not ready"),
        (502, "<html>", ServerUnavailable, "cannot answer now"),
        (200, "<html>", click.ClickException, "unexpected answer"),
    ],
)
def test_failure_of_the_server_is_one_line(status: int, body: str, error: type[Exception], words: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, text=body)

    async def run() -> None:
        async with serving(answer) as url:
            with pytest.raises(error, match=words) as caught:
                await ask(url)
            text = (
                caught.value.format_message()
                if isinstance(caught.value, click.ClickException)
                else str(caught.value)
            )
            assert "secret-token" not in text

    asyncio.run(run())


def test_user_who_acts_as_another_is_refused_instead_of_answered_as_himself() -> None:
    client = Published(headers=(("Impersonate-User", "admin"),))
    with pytest.raises(click.ClickException, match="--as"):
        asyncio.run(ask("http://127.0.0.1:1", client))


def test_user_without_a_token_has_no_server() -> None:
    client = Published(authenticated=False)
    with pytest.raises(ServerUnavailable, match="the kubeconfig has no token"):
        asyncio.run(ask("http://127.0.0.1:1", client))


@pytest.mark.parametrize(
    ("client", "server"),
    [
        # A token is sent to the published address first.
        (Published(data={"url": "https://phalanx.example"}, aggregated=200), AddressedServer),
        (Published(aggregated=200), AggregatedServer),
        (Published(), type(None)),
        # Without a token, or with one of another user than the one to act as, nothing is sent there.
        (Published(data={"url": "https://phalanx.example"}, aggregated=200, authenticated=False), AggregatedServer),
        (Published(data={"url": "https://phalanx.example"}, authenticated=False), AddressedServer),
        (Published(authenticated=False), type(None)),
        (Published(aggregated=403, authenticated=False), type(None)),
        (Published(aggregated=503, authenticated=False), AggregatedServer),
        (Published(aggregated=200, headers=(("Impersonate-User", "ada"),)), AggregatedServer),
    ],
)
def test_way_to_the_server_follows_token_and_published_address(client: KubeClient, server: type) -> None:
    assert type(asyncio.run(find_server(client, ClientOptions()))) is server


def test_named_server_is_asked_whatever_the_cluster_serves() -> None:
    client = Published(aggregated=200, authenticated=False)
    found = asyncio.run(find_server(client, ClientOptions(server="https://other")))
    assert isinstance(found, AddressedServer)


def test_aggregated_api_that_is_down_is_one_line_with_the_command_to_look() -> None:
    client = Published(aggregated=503)
    with pytest.raises(ServerUnavailable, match=r"cannot answer now: .*kubectl describe apiservice v1alpha1"):
        asyncio.run(AggregatedServer(client).get("commands/order", dict, {"own": "ours"}))


class WithoutPolicy:
    """Arguments of a list command whose user cannot read the scheduler's policy."""

    client = ClientOptions()
    scheduler_names = ()

    async def list_settings(self, client: KubeClient) -> ListSettings:
        return ListSettings(DialectOptions(), ("phalanx",), readable=False)


def settings_of_tenant(answer: web.Response, url: str = "") -> tuple[ListSettings, str]:
    async def handler(request: web.Request) -> web.Response:
        return answer

    async def work() -> tuple[ListSettings, str]:
        async with serving(handler) as served:
            return await list_settings(WithoutPolicy(), Published(data={"url": url or served}))  # type: ignore[arg-type]

    return asyncio.run(work())


def test_list_of_a_tenant_uses_scheduler_names_and_user_label_of_the_server() -> None:
    names = ["phalanx", "default-scheduler"]
    answer = web.json_response({"scheduler_names": names, "user_label": "example.com/user", "user_annotation": ""})
    settings, warning = settings_of_tenant(answer)
    assert settings.scheduler_names == tuple(names)
    assert settings.dialects.user_label == "example.com/user"
    assert warning == ""


@pytest.mark.parametrize("url", ["", "http://foreign.example"])
def test_list_of_a_tenant_whose_server_fails_states_the_assumed_scheduler_name(url: str) -> None:
    settings, warning = settings_of_tenant(web.Response(status=503), url)
    assert settings.scheduler_names == ("phalanx",)
    assert warning.startswith("not read: the scheduler's policy; ")
    assert warning.endswith("assuming schedulerName phalanx, users are unknown; fix: use --scheduler-name")

"""Requests to the server of the page, at its address with the user's own token."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.auth.credentials import StaticCredentials
from phalanx.kube.auth.tls import TlsSettings
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.http.proxy import environment_proxy

if TYPE_CHECKING:
    from phalanx.cli.server.address import ServerAddress

T = TypeVar("T")

_IMPERSONATION = "impersonate"
# Limit of an answer, so that a foreign server cannot fill the memory.
_LONGEST_ANSWER = 256 << 20
#: Seconds for a what-if question, which takes longer than a request to an API server.
WHAT_IF_SECONDS = 150.0
_NO_TOKEN = (
    "use a user with a token (kubectl create token NAME), or ask your administrator for the aggregated API "
    "(phalanx install --aggregated-api)"
)


class ServerUnavailable(Exception):  # noqa: N818 - an event, as ConnectionLost
    """Server that cannot be reached or cannot answer now; the text says why in one line."""


class NoTokenError(click.ClickException):
    """Error for a kubeconfig without a token, such as one with a client certificate."""


class Server(ABC):
    """Server of the page, which answers the questions of commands with the rights of the user."""

    async def get(self, path: str, answer: type[T], params: Mapping[str, str] | None = None) -> T:
        """Return the answer to a question. Raises ServerUnavailable, and click.ClickException for a refusal."""
        return await self.ask("GET", path, answer, params or {})

    async def post(self, path: str, answer: type[T], question: object, params: Mapping[str, str]) -> T:
        """Return the answer to a question with a body. Raises like `get`."""
        return await self.ask("POST", path, answer, params, msgspec.json.encode(question))

    @abstractmethod
    async def ask(
        self, method: str, path: str, answer: type[T], params: Mapping[str, str], body: bytes | None = None
    ) -> T:
        """Send a question and return the decoded answer. Raises like `get`."""


class AddressedServer(Server):
    """Server of the page at one address, authenticated by the token of the user's kubeconfig."""

    def __init__(self, client: KubeClient, address: ServerAddress) -> None:
        self._client = client
        self._address = address

    async def ask(
        self, method: str, path: str, answer: type[T], params: Mapping[str, str], body: bytes | None = None
    ) -> T:
        url, origin = self._address.url, self._address.origin
        try:
            token = await own_token(self._client)
        except NoTokenError as error:
            raise ServerUnavailable(error.format_message()) from error
        tls = TlsSettings(self._address.authority, self._address.authority_file, origin=f"{origin} ({url})")
        config = ClusterConfig(
            url,
            tls=tls,
            credentials=lambda: StaticCredentials.token(token, origin),
            proxy_url=environment_proxy(url, os.environ),
            answer_limit=_LONGEST_ANSWER,
        )
        try:
            async with KubeClient(config) as server:
                shortest = WHAT_IF_SECONDS if method == "POST" else 0.0
                server.request_timeout = max(self._client.request_timeout, shortest)
                content = await server.request(method, f"/api/v1/{path}", params=params, body=body)
            return msgspec.json.decode(content, type=answer)
        except ApiError as error:
            raise _failure(error, url, origin) from error
        except ConnectionLost as error:
            raise ServerUnavailable(f"the server at {url} cannot be reached: {error}") from error
        except msgspec.DecodeError as error:
            raise click.ClickException(
                f"unexpected answer at {url}; check that it is `phalanx dashboard` of this version: {error}"
            ) from error


async def own_token(client: KubeClient, fix: str = _NO_TOKEN) -> str:
    """Return the bearer token of the kubeconfig. Raises click.ClickException if there is none, or if the user acts
    as another one: a token alone would be answered with the rights of its own user."""
    if any(name.lower().startswith(_IMPERSONATION) for name, _ in client.config.headers):
        raise click.ClickException("--as works with the rights to read the whole cluster only; omit it")
    identity = await client.identity()
    kind, _, token = (identity.authorization or "").partition(" ")
    if kind.lower() != "bearer" or not token:
        raise NoTokenError(f"the kubeconfig has no token; {fix}")
    return token


def error_text(answer: str) -> str:
    """Return the text of an error response {"error": "..."}, or the response itself."""
    try:
        return msgspec.json.decode(answer, type=dict[str, str])["error"]
    except (msgspec.DecodeError, KeyError):
        return answer


def _failure(error: ApiError, url: str, origin: str) -> Exception:
    text = error_text(error.message)
    if 300 <= error.status < 400:
        return click.ClickException(
            f"{origin}: {url} redirects to another address; redirects are not followed, so that your token stays "
            "here. Fix: use the final URL"
        )
    if error.status in (502, 503, 504):
        return ServerUnavailable(f"the server at {url} cannot answer now: {text}")
    return click.ClickException(text if error.status in (400, 403, 404, 429) else f"{url}: {text}")

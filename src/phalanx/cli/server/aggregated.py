"""Questions on the path of the API server, for users whose kubeconfig has no token that could be sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

import click
import msgspec

from phalanx.cli.server.requests import WHAT_IF_SECONDS, Server, ServerUnavailable, error_text
from phalanx.kube.errors import ApiError
from phalanx.reports.aggregated_names import API_SERVICE, EVERYWHERE, GROUP, GROUP_VERSION, RESOURCE

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient

T = TypeVar("T")


class _Answer(msgspec.Struct):
    answer: msgspec.Raw


class AggregatedServer(Server):
    """Server of the page behind the API server, which authenticates the user: no credentials leave it."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def ask(
        self, method: str, path: str, answer: type[T], params: Mapping[str, str], body: bytes | None = None
    ) -> T:
        command, further = path.removeprefix("commands/"), dict(params)
        own = further.pop("own", "") or self._client.namespace
        namespace = further.pop("namespace", "")
        if not namespace:
            further[EVERYWHERE] = "true"
        place = f"/apis/{GROUP_VERSION}/namespaces/{quote(namespace or own, safe='')}/{RESOURCE}/{command}"
        seconds = max(self._client.request_timeout, WHAT_IF_SECONDS if method == "POST" else 0.0)
        try:
            content = await self._client.request(method, place, params=further, body=body, timeout=seconds)
            found = msgspec.json.decode(content, type=_Answer)
            return msgspec.json.decode(found.answer, type=answer)
        except ApiError as error:
            raise _failure(error) from error
        except msgspec.DecodeError as error:
            raise click.ClickException(
                f"unexpected answer of the API group {GROUP}; check that its server is `phalanx dashboard` of this "
                f"version: {error}"
            ) from error


async def is_served(client: KubeClient) -> bool:
    """Return whether the cluster has the aggregated API; its server can be down nevertheless."""
    try:
        await client.get(f"/apis/{GROUP_VERSION}")
    except ApiError as error:
        if error.status in (403, 404):
            return False
        if error.status in (502, 503, 504):
            return True
        raise
    return True


def _failure(error: ApiError) -> Exception:
    text = error_text(error.message).strip()
    if error.status in (502, 503, 504):
        return ServerUnavailable(
            f"the server of APIService {API_SERVICE} cannot answer now: {text}; administrators: kubectl describe "
            f"apiservice {API_SERVICE}"
        )
    return click.ClickException(text)

"""Gang list that the scheduler process serves: one small answer instead of lists of all objects."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click
import msgspec

from phalanx.model.text.decoding import quoted

if TYPE_CHECKING:
    from phalanx.daemon.gang_entries import ListedGangs
    from phalanx.kube.client import KubeClient

_PATH = "/v1/gangs"


async def read_scheduler(
    client: KubeClient, url: str, authority: str | None, token: str, namespace: str, queue: str
) -> ListedGangs:
    """Return the gangs from the scheduler at `url` (its --metrics-address).

    The request is authorized by `token`, by default the token of the kubeconfig. `authority` is a file with CA
    certificates (None: the system's). Raises click.ClickException.
    """
    from phalanx.daemon.gang_entries import ListedGangs
    from phalanx.kube.auth.config import ClusterConfig
    from phalanx.kube.auth.credentials import StaticCredentials
    from phalanx.kube.auth.tls import TlsSettings
    from phalanx.kube.client import KubeClient
    from phalanx.kube.errors import ApiError, ConnectionLost

    server = _checked(url)
    bearer_token = token or await _own_token(client)
    config = ClusterConfig(
        server,
        tls=TlsSettings(authority_file=authority, origin=f"--scheduler {server}"),
        credentials=lambda: StaticCredentials.token(bearer_token, "--scheduler"),
    )
    try:
        async with KubeClient(config) as scheduler:
            scheduler.request_timeout = client.request_timeout
            body = await scheduler.request("GET", _PATH, params={"namespace": namespace, "queue": queue})
        return msgspec.json.decode(body, type=ListedGangs)
    except ApiError as error:
        raise click.ClickException(
            f"request rejected by the scheduler at {server}: {_error_text(error.message)}"
        ) from error
    except ConnectionLost as error:
        raise click.ClickException(f"cannot reach the scheduler at {server}: {error}") from error
    except msgspec.DecodeError as error:
        raise click.ClickException(
            f"unexpected answer at {server}; check that it is a Phalanx scheduler of this version: {error}"
        ) from error


def _checked(url: str) -> str:
    """Return the scheduler's URL without trailing slash. Raises click.UsageError if a token would be sent without
    TLS."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        raise click.UsageError(f"invalid --scheduler {quoted(url)}; write a URL such as https://localhost:10259")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise click.UsageError(f"--scheduler {quoted(url)} would send your token unencrypted; use https")
    return url.rstrip("/")


def _error_text(answer: str) -> str:
    """Return the text of the scheduler's error response {"error": "..."}, or the response itself."""
    try:
        return msgspec.json.decode(answer, type=dict[str, str])["error"]
    except (msgspec.DecodeError, KeyError):
        return answer


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _own_token(client: KubeClient) -> str:
    identity = await client.config.credentials().current()
    kind, _, token = (identity.authorization or "").partition(" ")
    if kind.lower() != "bearer" or not token:
        raise click.ClickException(
            "the kubeconfig has no token for the scheduler; set PHALANX_SCHEDULER_TOKEN (kubectl create token NAME)"
        )
    return token

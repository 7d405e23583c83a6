"""The gangs as the scheduler's own process tells them: one small answer instead of lists of everything."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click
import msgspec

if TYPE_CHECKING:
    from phalanx.daemon.gang_entries import ListedGangs
    from phalanx.kube.client import KubeClient

_PATH = "/v1/gangs"


async def read_scheduler(
    client: KubeClient, url: str, authority: str | None, token: str, namespace: str, queue: str
) -> ListedGangs:
    """From the scheduler at `url` (its --metrics-address), as whom the API server knows by the token: by default
    that of the kubeconfig. `authority` is a file with the certificates to trust, None for the system's. Raises
    click.ClickException."""
    from phalanx.daemon.gang_entries import ListedGangs
    from phalanx.kube.auth.config import ClusterConfig
    from phalanx.kube.auth.credentials import StaticCredentials
    from phalanx.kube.auth.tls import TlsSettings
    from phalanx.kube.client import KubeClient
    from phalanx.kube.errors import ApiError, ConnectionLost

    server = _checked(url)
    word = token or await _own_token(client)
    config = ClusterConfig(
        server,
        tls=TlsSettings(authority_file=authority, origin=f"--scheduler {server}"),
        credentials=lambda: StaticCredentials.token(word, "--scheduler"),
    )
    try:
        async with KubeClient(config) as scheduler:
            scheduler.request_timeout = client.request_timeout
            body = await scheduler.request("GET", _PATH, params={"namespace": namespace, "queue": queue})
        return msgspec.json.decode(body, type=ListedGangs)
    except ApiError as error:
        raise click.ClickException(f"the scheduler at {server} refused: {_why(error.message)}") from error
    except ConnectionLost as error:
        raise click.ClickException(f"no connection to the scheduler at {server}: {error}") from error
    except msgspec.DecodeError as error:
        raise click.ClickException(f"what answers at {server} is no scheduler of this version: {error}") from error


def _checked(url: str) -> str:
    """A token is sent there: without TLS to this machine only. Raises click.UsageError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        raise click.UsageError(f"--scheduler {url!r}: expected a URL such as https://localhost:10259")
    if parts.scheme == "http" and not _is_here(parts.hostname):
        raise click.UsageError(f"--scheduler {url!r}: your token would be sent unencrypted; use https")
    return url.rstrip("/")


def _why(answer: str) -> str:
    """The scheduler answers {"error": "..."}."""
    try:
        return msgspec.json.decode(answer, type=dict[str, str])["error"]
    except (msgspec.DecodeError, KeyError):
        return answer


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _own_token(client: KubeClient) -> str:
    identity = await client.config.credentials().current()
    kind, _, token = (identity.authorization or "").partition(" ")
    if kind.lower() != "bearer" or not token:
        raise click.ClickException(
            "the kubeconfig has no token that could be shown to the scheduler; "
            "set PHALANX_SCHEDULER_TOKEN (kubectl create token NAME)"
        )
    return token

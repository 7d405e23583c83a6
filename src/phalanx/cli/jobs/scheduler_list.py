"""Gang list that the scheduler process serves: one small answer instead of lists of all objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from phalanx.cli.server.address import checked_url
from phalanx.cli.server.requests import error_text, own_token

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

    server = checked_url(url, "--scheduler")
    bearer_token = token or await own_token(client, "set PHALANX_SCHEDULER_TOKEN (kubectl create token NAME)")
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
            f"request rejected by the scheduler at {server}: {error_text(error.message)}"
        ) from error
    except ConnectionLost as error:
        raise click.ClickException(f"cannot reach the scheduler at {server}: {error}") from error
    except msgspec.DecodeError as error:
        raise click.ClickException(
            f"unexpected answer at {server}; check that it is a Phalanx scheduler of this version: {error}"
        ) from error

"""Wait of a service, at its start, until the API server answers."""

from __future__ import annotations

import asyncio
import logging

from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.retry import Backoff

log = logging.getLogger(__name__)


async def until_reachable(client: KubeClient) -> None:
    """Wait until the API server answers. Log each reason once per client."""
    server, backoff = client.config.server, Backoff(base=0.5, cap=5.0)
    while True:
        try:
            await client.get("/version")
            break
        except ApiError as error:
            if error.status in (403, 404) and error.from_api_server:
                break
            reason = f"{error.status} {error.reason}"
        except ConnectionLost as error:
            reason = str(error)
        if client.contact.awaited(reason):
            log.warning("waiting for the API server at %s: %s", server, reason)
        await asyncio.sleep(backoff.next())
    if client.contact.awaited(""):
        log.info("the API server at %s answers", server)

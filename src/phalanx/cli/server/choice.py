"""Choice of the way to the server of the page: at its address with a token, or behind the API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from phalanx.cli.server.address import server_address
from phalanx.cli.server.requests import AddressedServer, Server, own_token

if TYPE_CHECKING:
    from phalanx.cli.connection import ClientOptions
    from phalanx.kube.client import KubeClient


async def find_server(client: KubeClient, options: ClientOptions) -> Server | None:
    """Return the server that answers the user; None for none. Raises click.ClickException if a token must not be
    sent to the address.

    The address counts first for a user with a token. The aggregated API needs none: it is for client certificates,
    for impersonation, and for clusters without a published address.
    """
    from phalanx.cli.server.aggregated import AggregatedServer, is_served

    sends_token = bool(options.server) or await _can_send_token(client)
    if not sends_token and await is_served(client):
        return AggregatedServer(client)
    address = await server_address(client, options)
    if address is not None:
        return AddressedServer(client, address)
    return AggregatedServer(client) if sends_token and await is_served(client) else None


async def _can_send_token(client: KubeClient) -> bool:
    try:
        await own_token(client)
    except click.ClickException:
        return False
    return True

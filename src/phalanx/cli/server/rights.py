"""Choice between a dry run with the user's own rights and a question to the server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from phalanx.cli.server.address import NAME, NAMESPACE, own_address
from phalanx.kube.core_resources import NODES, PODS
from phalanx.kube.errors import ApiError

if TYPE_CHECKING:
    from phalanx.cli.invocation import Invocation
    from phalanx.cli.server.requests import Server
    from phalanx.kube.client import KubeClient

T = TypeVar("T")
Read = Callable[["KubeClient"], Awaitable[T]]
Ask = Callable[["Server"], Awaitable[T]]
Fallback = Callable[["KubeClient", str], Awaitable[T]]
"""Function that answers without a server; the text is the line that says why there is none."""


def by_rights(
    invocation: Invocation,
    read: Read[T],
    ask: Ask[T],
    fallback: Fallback[T] | None = None,
    *,
    own_first: bool = False,
) -> Read[T]:
    """Return a function that calls `read` if the user can list all nodes and pods, else `ask` with the server.

    With --server the server is asked first. So is the server of the kubeconfig, unless with `own_first` or with an
    option that names a scheduler or a policy; where it does not answer, the user's rights decide. Where no server
    can be asked, `fallback` answers, else the function raises click.ClickException.
    """
    options = invocation.client

    async def answer(client: KubeClient) -> T:
        from phalanx.cli.server.choice import find_server
        from phalanx.cli.server.requests import AddressedServer, ServerUnavailable

        if not (own_first or options.server or invocation.names_scheduler):
            with contextlib.suppress(ServerUnavailable, click.ClickException):
                if (address := own_address(client)) is not None:
                    return await ask(AddressedServer(client, address))
        refusal = "" if options.server else await _refusal(client)
        if refusal is None:
            return await read(client)
        server = await find_server(client, options)
        if server is None:
            line = (
                f"{refusal}; no server answers for you: ConfigMap {NAMESPACE}/{NAME} is missing or not readable, "
                "and the cluster has no aggregated API of Phalanx"
            )
            if fallback is not None:
                return await fallback(client, line)
            raise no_server(line)
        try:
            return await ask(server)
        except ServerUnavailable as error:
            if fallback is not None:
                return await fallback(client, str(error))
            raise click.ClickException(str(error)) from error

    return answer


def no_server(line: str) -> click.ClickException:
    """Return the error of a command that needs a server; `line` says why there is none."""
    fix = (
        "ask your administrator to publish the address of `phalanx dashboard` (for client certificates: its "
        "aggregated API), or use --server URL"
    )
    return click.ClickException(f"{line}. Fix: {fix}")


async def _refusal(client: KubeClient) -> str | None:
    """Return why the user cannot read the whole cluster; None if the user can. Raises ApiError, ConnectionLost."""
    results = await asyncio.gather(
        *(client.get(resource.path(), {"limit": 1}) for resource in (NODES, PODS)), return_exceptions=True
    )
    for result in results:
        if isinstance(result, ApiError) and result.status == 403:
            return result.message
        if isinstance(result, BaseException):
            raise result
    return None

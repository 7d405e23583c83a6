"""Source of `phalanx history` and `phalanx report`: the accounting database, or the page's server."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from phalanx.cli.connection import connection_option, kubeconfig_option
from phalanx.cli.server.options import server_options

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from phalanx.cli.arguments import Dress
    from phalanx.cli.invocation import Invocation
    from phalanx.cli.server.requests import Server
    from phalanx.kube.client import KubeClient

T = TypeVar("T")
Ask = Callable[["Server", str], Awaitable[T]]
"""Function that asks a server; the text is the namespace of the kubeconfig."""


def _database_option(more: str) -> Dress:
    return click.option(
        "--database",
        envvar="PHALANX_ACCOUNTING_DATABASE",
        metavar="FILE|URL",
        help="Accounting database: a file, or postgresql://USER@HOST/NAME. Default: $PHALANX_ACCOUNTING_DATABASE, "
        f"or the file of the cluster of `phalanx up`, or a file in ~/.local/state/phalanx{more}.",
    )


database_option = _database_option("")
#: Options of commands that `read_usage` answers. (--user is the owner of a run.)
usage_options: tuple[Dress, ...] = (
    _database_option("; without these files a server answers"),
    kubeconfig_option,
    connection_option("--context", metavar="NAME", help="Context of the kubeconfig."),
    server_options,
)


def read_usage(invocation: Invocation, database: str | None, read: Callable[[Connection], T], ask: Ask[T]) -> T:
    """Return the answer of `read` about the database, or of `ask` about a server.

    The order is: the named database, the server of --server, the server of the kubeconfig, the database file of
    this cluster or user, the published server. Raises click.ClickException.
    """
    from phalanx.accounting.location import default_location

    if database:
        with connected(database) as connection:
            return read(connection)
    file = default_location(kubeconfig=invocation.client.kubeconfig, context=invocation.client.context)
    if (answer := _answer_of_a_server(invocation, file, ask)) is not None:
        return answer
    with connected(file) as connection:
        return read(connection)


@contextmanager
def connected(database: str | None) -> Iterator[Connection]:
    """Open the accounting database for reading. A failure ends the command with one error line."""
    if not all(map(importlib.util.find_spec, ("sqlalchemy", "alembic"))):
        command = click.get_current_context().info_name
        raise click.ClickException(
            f"`phalanx {command}` needs a database: pip install 'phalanx-scheduler[history]'"
        )
    from phalanx.accounting.database import Database, DatabaseError
    from phalanx.accounting.location import default_location

    try:
        accounts = Database(database or default_location())
        try:
            with accounts.reading() as connection:
                yield connection
        finally:
            accounts.close()
    except DatabaseError as error:
        raise click.ClickException(str(error)) from error


def _answer_of_a_server(invocation: Invocation, file: str, ask: Ask[T]) -> T | None:
    """Return the answer of a server; None if the database `file` is to be read, or if there is no server."""
    from phalanx.cli.server.address import own_address
    from phalanx.cli.server.choice import find_server
    from phalanx.cli.server.requests import AddressedServer, ServerUnavailable
    from phalanx.kube.auth.config import load_config
    from phalanx.kube.errors import ConfigError

    options, recorded = invocation.client, Path(file).exists()

    async def work(client: KubeClient) -> T | None:
        if not options.server:
            with contextlib.suppress(ServerUnavailable, click.ClickException):
                if (own := own_address(client)) is not None:
                    return await ask(AddressedServer(client, own), client.namespace)
            if recorded:
                return None
        server = await find_server(client, options)
        try:
            return None if server is None else await ask(server, client.namespace)
        except ServerUnavailable as error:
            raise click.ClickException(str(error)) from error

    try:
        load_config(options.kubeconfig, options.context)
    except ConfigError:
        # Without a cluster there is the database alone.
        if options.kubeconfig or options.server:
            raise click.ClickException(f"cannot ask {options.server or 'a server'}: no usable kubeconfig") from None
        return None
    return invocation.run(work)

"""`phalanx dashboard`: the page, in a process of its own."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from phalanx.cli.connection import kubeconfig_option, scheduler_options
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.cli.services.logs import LogArguments

if TYPE_CHECKING:
    import asyncio

    from phalanx.accounting.database import Database
    from phalanx.dashboard.server import ServeOptions
    from phalanx.dashboard.watch import WatchOptions
    from phalanx.kube.client import KubeClient


log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class DashboardArguments(LogArguments):
    """Arguments of `phalanx dashboard`."""

    login_name: str
    listen: str
    hosts: tuple[str, ...]
    certificate: str
    key: str
    audiences: tuple[str, ...]
    writes: bool
    open_browser: bool
    address_file: Path | None
    database: str | None

    def serve_options(self) -> ServeOptions:
        """Return how the page is served. Raises click.UsageError."""
        from phalanx.dashboard.server import ServeOptions

        host, _, port = self.listen.rpartition(":")
        if not port.isascii() or not port.isdecimal() or int(port) > 65_535:
            raise click.UsageError(f"--listen: {self.listen!r} is not HOST:PORT, such as 127.0.0.1:8080")
        if bool(self.certificate) != bool(self.key):
            raise click.UsageError("--certificate and --key belong together")
        host = host.strip("[]") or "127.0.0.1"
        if self.login_name == "address" and host not in ("127.0.0.1", "::1", "localhost"):
            raise click.UsageError(
                f"--login address is for this machine alone, and {host} is reached from others: "
                "use --login token, or leave out --listen"
            )
        if self.login_name == "token" and self.open_browser:
            raise click.UsageError("--open goes with --login address")
        return ServeOptions(host, int(port), self.hosts, self.certificate, self.key, writes=self.writes)


@click.command()
@click.option(
    "--login",
    "login_name",
    type=click.Choice(["address", "token"]),
    default="address",
    show_default=True,
    help="address: whoever opens the printed address sees what your kubeconfig may read. token: people log in "
    "with bearer tokens of the API server and see what they have rights to.",
)
@click.option(
    "--listen",
    default="127.0.0.1:0",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to serve; port 0 picks a free one.",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A further name under which the page is reached; may be repeated. * allows any.",
)
@click.option("--certificate", default="", metavar="FILE", help="Serve over TLS with this certificate.")
@click.option("--key", default="", metavar="FILE", help="Its key.")
@click.option(
    "--audience",
    "audiences",
    multiple=True,
    metavar="NAME",
    help="With --login token: whom tokens must be made for; may be repeated. By default the API server itself.",
)
@click.option(
    "--writes",
    is_flag=True,
    help="Let viewers hold, release and cancel gangs from the page, each by his own rights. With --login token the "
    "account of this process needs the right `impersonate`.",
)
@click.option("--open", "open_browser", is_flag=True, help="Open the page in a browser.")
@click.option(
    "--address-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep the address that is good now in this file (readable for you alone).",
)
@click.option(
    "--database",
    envvar="PHALANX_ACCOUNTING_DATABASE",
    metavar="FILE|URL",
    help="Where `phalanx accounting run` keeps its accounts, for shares over weeks; it is only read.",
)
@scheduler_options("are shown")
@kubeconfig_option
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@pass_invocation(DashboardArguments)
def dashboard(invocation: Invocation, arguments: DashboardArguments) -> None:
    """Serve a page that shows queues, gangs and nodes, and says why and until when gangs wait.

    It watches the cluster once and rehearses the scheduler over it, so it is current without a scheduler too.
    Nothing is changed, all that it does is read, unless it is started with --writes.

    \b
    phalanx dashboard --open
    phalanx dashboard --login token --listen 0.0.0.0:8443 --certificate tls.crt --key tls.key
    """
    from phalanx.dashboard.watch import WatchOptions

    options = arguments.serve_options()
    invocation.refuse_empty_names()
    arguments.set_up_logging()
    watching = WatchOptions(invocation.scheduler_names, invocation.config, invocation.lease_namespace)
    accounts = _accounts(arguments.database)

    async def work(client: KubeClient) -> None:
        await _serve(client, watching, options, arguments, accounts)

    try:
        invocation.run(work)
    finally:
        if accounts is not None:
            accounts.close()


def _accounts(location: str | None) -> Database | None:
    """Raises click.ClickException."""
    if not location:
        return None
    try:
        from phalanx.accounting.database import Database, DatabaseError
    except ImportError as error:
        raise click.ClickException(
            "--database needs the extra: pip install 'phalanx-scheduler[history]'"
        ) from error
    try:
        return Database(location)
    except DatabaseError as error:
        raise click.ClickException(f"--database: {error}") from error


async def _serve(
    client: KubeClient,
    watching: WatchOptions,
    options: ServeOptions,
    arguments: DashboardArguments,
    accounts: Database | None,
) -> None:
    import asyncio
    import webbrowser

    import msgspec

    from phalanx.dashboard.access import AddressLogin, Login, TokenLogin
    from phalanx.dashboard.rehearsal.process import RehearsalEnded
    from phalanx.dashboard.server import ServeError, dashboard
    from phalanx.kube.process import StoppableWork, run_until_signal
    from phalanx.scheduling.framework.errors import PolicyError

    tickets = AddressLogin("you") if arguments.login_name == "address" else None
    login: Login = tickets or TokenLogin(client, arguments.audiences)
    url = ""

    def tell(ticket: str) -> None:
        address = f"{url}/#login={ticket}" if ticket else url
        # (Who reads the line may look into the file at once.)
        if arguments.address_file is not None:
            _keep(arguments.address_file, address)
        click.echo(f"phalanx dashboard: {address}")

    async def work(stopping: asyncio.Event) -> None:
        nonlocal url, options
        while not stopping.is_set():
            async with dashboard(client, watching, options, login, accounts) as (served, following):
                if not url:
                    url = served.url
                    # Whoever has the page open finds it where it was.
                    options = msgspec.structs.replace(options, port=int(url.rpartition(":")[2]))
                    tell(tickets.ticket if tickets is not None else "")
                    if tickets is not None:
                        tickets.renewed = tell
                    if arguments.open_browser and tickets is not None:
                        await asyncio.to_thread(webbrowser.open, f"{url}/#login={tickets.ticket}")
                stopped, outdated = asyncio.create_task(stopping.wait()), asyncio.create_task(served.outdated())
                await asyncio.wait([stopped, following, outdated], return_when=asyncio.FIRST_COMPLETED)
                stopped.cancel()
                outdated.cancel()
                if following.done():
                    following.result()
            if not stopping.is_set():
                log.info("the scheduler goes by another policy now, so the page is served anew")

    try:
        await run_until_signal(StoppableWork(work))
    except BaseExceptionGroup as group:
        errors, rest = group.split((RehearsalEnded, PolicyError, OSError))
        if rest is not None or errors is None:
            raise
        raise click.ClickException(str(errors.exceptions[0])) from group
    except (ServeError, PolicyError, RehearsalEnded) as error:
        raise click.ClickException(str(error)) from error


def _keep(file: Path, address: str) -> None:
    """Whole or not at all, and for nobody else to read."""
    import os
    import tempfile

    number, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    with os.fdopen(number, "w", encoding="utf-8") as stream:
        stream.write(f"{address}\n")
    os.replace(name, file)

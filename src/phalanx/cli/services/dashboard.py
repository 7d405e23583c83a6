"""Command `phalanx dashboard`: the dashboard server as a separate process."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from phalanx.cli.connection import connection_options, scheduler_options
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.cli.services.logs import LogArguments
from phalanx.model.text.decoding import quoted

if TYPE_CHECKING:
    import asyncio

    from phalanx.accounting.database import Database
    from phalanx.dashboard.aggregated.server import AggregatedOptions
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
    aggregated_api: str
    aggregated_service: str
    open_browser: bool
    address_file: Path | None
    database: str | None

    def serve_options(self) -> ServeOptions:
        """Return the dashboard server's options. Raises click.UsageError for invalid ones."""
        from phalanx.dashboard.server import ServeOptions

        host, port = _host_and_port(self.listen, "--listen", "127.0.0.1:8080")
        if bool(self.certificate) != bool(self.key):
            raise click.UsageError("--certificate and --key are required together")
        if self.login_name == "address" and host not in ("127.0.0.1", "::1", "localhost"):
            raise click.UsageError(
                f"--login address works on local addresses only, and {host} is not local: "
                "use --login token, or omit --listen"
            )
        if self.login_name == "token" and self.open_browser:
            raise click.UsageError("--open works with --login address only")
        return ServeOptions(
            host,
            port,
            self.hosts,
            self.certificate,
            self.key,
            writes=self.writes,
            aggregated=self._aggregated_options(),
        )

    def _aggregated_options(self) -> AggregatedOptions | None:
        """Return the options of the aggregated API; None without it. Raises click.UsageError."""
        from phalanx.dashboard.aggregated.server import AggregatedOptions

        if not self.aggregated_api:
            return None
        if self.login_name != "token":
            raise click.UsageError("--aggregated-api needs --login token, which reviews the rights of each user")
        host, port = _host_and_port(self.aggregated_api, "--aggregated-api", "0.0.0.0:8444")
        if not port:
            raise click.UsageError("--aggregated-api needs a fixed port, which the Service names")
        namespace, slash, service = self.aggregated_service.partition("/")
        if not slash or not namespace or not service or "/" in service:
            raise click.UsageError(
                f"invalid --aggregated-service {quoted(self.aggregated_service)}; write NAMESPACE/NAME"
            )
        return AggregatedOptions(host, port, namespace, service)


def _host_and_port(address: str, flag: str, example: str) -> tuple[str, int]:
    """Return the parts of HOST:PORT. Raises click.UsageError."""
    host, _, port = address.rpartition(":")
    if not port.isascii() or not port.isdecimal() or int(port) > 65_535:
        raise click.UsageError(f"invalid {flag} {quoted(address)}; write HOST:PORT, such as {example}")
    return host.strip("[]") or "127.0.0.1", int(port)


@click.command()
@click.option(
    "--login",
    "login_name",
    type=click.Choice(["address", "token"]),
    default="address",
    show_default=True,
    help="address: a browser with the printed address sees what your kubeconfig allows. token: viewers log in with "
    "bearer tokens of the API server and see what their rights allow.",
)
@click.option(
    "--listen",
    default="127.0.0.1:0",
    show_default=True,
    metavar="HOST:PORT",
    help="Listen address; port 0 picks a free port.",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Additional host name of the page; repeatable. * allows any name.",
)
@click.option("--certificate", default="", metavar="FILE", help="TLS certificate of the server (PEM).")
@click.option("--key", default="", metavar="FILE", help="Private key of the certificate (PEM).")
@click.option(
    "--audience",
    "audiences",
    multiple=True,
    metavar="NAME",
    help="Audience that tokens must have (with --login token); repeatable. Default: the API server's audience.",
)
@click.option(
    "--writes",
    is_flag=True,
    help="Let viewers hold, release and cancel gangs from the page, each with their own rights. With --login token "
    "the account of this process needs the right `impersonate`.",
)
@click.option(
    "--aggregated-api",
    default="",
    metavar="HOST:PORT",
    help="Also serve the API group visibility.phalanx.dev on this address, to which the API server forwards the "
    "commands of users with client certificates (with --login token). Off by default: see `phalanx install "
    "--aggregated-api`.",
)
@click.option(
    "--aggregated-service",
    default="phalanx-system/phalanx-visibility",
    show_default=True,
    metavar="NS/NAME",
    help="Service of --aggregated-api, which its certificate names.",
)
@click.option("--open", "open_browser", is_flag=True, help="Open the page in a browser.")
@click.option(
    "--address-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File with the current address, updated after each login (readable only by you).",
)
@click.option(
    "--database",
    envvar="PHALANX_ACCOUNTING_DATABASE",
    metavar="FILE|URL",
    help="Database of `phalanx accounting run`, for shares over weeks (read-only).",
)
@scheduler_options("are shown")
@connection_options
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@pass_invocation(DashboardArguments)
def dashboard(invocation: Invocation, arguments: DashboardArguments) -> None:
    """Serve a web page with queues, gangs and nodes, and with reason and expected start of waiting gangs.

    The server watches the cluster and runs the scheduler in dry-run mode, so it is current even if no scheduler
    runs. It changes nothing, except orders of viewers with --writes.

    \b
    phalanx dashboard --open
    phalanx dashboard --login token --listen 0.0.0.0:8443 --certificate tls.crt --key tls.key
    phalanx dashboard --login token --aggregated-api 0.0.0.0:8444
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
    """Open the accounting database. Raises click.ClickException."""
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

    own = (await client.config.credentials().current()).authorization or ""
    own_token = own.removeprefix("Bearer ") if own.startswith("Bearer ") else ""
    tickets = AddressLogin("you", own_token=own_token) if arguments.login_name == "address" else None
    login: Login = tickets or TokenLogin(client, arguments.audiences)
    url = ""

    def announce_address(ticket: str) -> None:
        address = f"{url}/#login={ticket}" if ticket else url
        # The file is written first: a reader of the printed line can open it at once.
        if arguments.address_file is not None:
            _write_atomically(arguments.address_file, address)
        click.echo(f"phalanx dashboard: {address}")

    async def work(stopping: asyncio.Event) -> None:
        nonlocal url, options
        while not stopping.is_set():
            async with dashboard(client, watching, options, login, accounts) as (served, following):
                if not url:
                    url = served.url
                    # A page that is open in a browser reconnects to the same port.
                    options = msgspec.structs.replace(options, port=int(url.rpartition(":")[2]))
                    announce_address(tickets.ticket if tickets is not None else "")
                    if tickets is not None:
                        tickets.renewed = announce_address
                    if arguments.open_browser and tickets is not None:
                        await asyncio.to_thread(webbrowser.open, f"{url}/#login={tickets.ticket}")
                stopped, outdated = asyncio.create_task(stopping.wait()), asyncio.create_task(served.outdated())
                await asyncio.wait([stopped, following, outdated], return_when=asyncio.FIRST_COMPLETED)
                stopped.cancel()
                outdated.cancel()
                if following.done():
                    following.result()
            if not stopping.is_set():
                log.info("restarting the dashboard server: the scheduler has a new policy")

    try:
        await run_until_signal(StoppableWork(work))
    except BaseExceptionGroup as group:
        errors, other_errors = group.split((RehearsalEnded, PolicyError, OSError))
        if other_errors is not None or errors is None:
            raise
        raise click.ClickException(str(errors.exceptions[0])) from group
    except (ServeError, PolicyError, RehearsalEnded) as error:
        raise click.ClickException(str(error)) from error


def _write_atomically(file: Path, address: str) -> None:
    """Write a text to the file atomically, readable only by its owner."""
    import os
    import tempfile

    number, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    with os.fdopen(number, "w", encoding="utf-8") as stream:
        stream.write(f"{address}\n")
    os.replace(name, file)

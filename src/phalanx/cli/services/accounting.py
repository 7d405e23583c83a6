"""Command `phalanx accounting`: record the usage of gangs in a database, and remove old or personal records."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import click

from phalanx.cli.accounts.recorded_usage import database_option
from phalanx.cli.arguments import pass_arguments
from phalanx.cli.connection import (
    connection_options,
    lease_namespace_option,
    policy_file_option,
    scheduler_names_option,
)
from phalanx.cli.explanation.moments import age
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.cli.services.logs import LogArguments, log_options
from phalanx.cli.services.options import health_address_option
from phalanx.model.text.decoding import quoted

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from phalanx.accounting.retention import Removed
    from phalanx.kube.client import KubeClient

T = TypeVar("T")


@click.group()
def accounting() -> None:
    """Record the usage of gangs in a database.

    \b
    phalanx accounting run
    phalanx accounting prune --older-than 90d
    phalanx accounting erase ada
    """


@dataclass(frozen=True, kw_only=True)
class AccountingRunArguments(LogArguments):
    """Arguments of `phalanx accounting run`; `keep` is an age in seconds."""

    database: str | None
    keep: int | None
    notifications: str | None
    metrics_address: str


@accounting.command()
@connection_options
@database_option
@click.option(
    "--keep",
    callback=age,
    metavar="AGE",
    help="Remove runs that ended longer ago than this, and older daily sums, once a day: 90d, 52w, ... "
    "Default: keep all.",
)
@click.option(
    "--notifications",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Send webhooks and mail about starts, ends, failures, evictions and broken promises of runs, to the "
    "targets in this file.",
)
@health_address_option
@pass_invocation(
    AccountingRunArguments,
    scheduler_names_option("are recorded"),
    lease_namespace_option,
    policy_file_option,
    log_options,
)
def run(invocation: Invocation, arguments: AccountingRunArguments) -> None:
    """Record the usage of gangs until SIGTERM or Ctrl-C.

    The process only reads the cluster. It creates or upgrades the database tables. After downtime it
    reconstructs the missed period from timestamps; the rest is marked as an estimate. It prints one line on
    stdout once all current gangs are recorded.

    \b
    phalanx accounting run
    phalanx accounting run --database postgresql://phalanx@db/accounts
    """
    from phalanx.accounting.database import Database, DatabaseError
    from phalanx.accounting.location import default_location
    from phalanx.accounting.service import AccountingOptions, AccountingService
    from phalanx.cli.services.service_run import run_announced
    from phalanx.daemon.policy_file import dialect_options, read_policy
    from phalanx.notifications.settings import SettingsError, read_settings
    from phalanx.scheduling.framework.errors import PolicyError

    arguments.set_up_logging()
    try:
        options = AccountingOptions(
            invocation.scheduler_names,
            invocation.lease_namespace,
            dialect_options(read_policy(invocation.config)),
            arguments.keep,
            read_settings(arguments.notifications) if arguments.notifications else None,
        )
        accounts = Database(arguments.database or default_location())
    except (PolicyError, DatabaseError, SettingsError) as error:
        raise click.ClickException(str(error)) from error

    async def work(client: KubeClient) -> None:
        service = AccountingService(client, accounts, options)
        await run_announced(
            service,
            lambda: f"phalanx accounting ready: {accounts.name}",
            address=arguments.metrics_address,
            part="accounting",
        )

    try:
        invocation.run(work)
    except DatabaseError as error:
        raise click.ClickException(str(error)) from error
    finally:
        accounts.close()


@dataclass(frozen=True, kw_only=True)
class PruneArguments:
    """Arguments of `phalanx accounting prune`; ages are in seconds."""

    database: str | None
    older_than: int
    usage_older_than: int | None


@accounting.command()
@database_option
@click.option(
    "--older-than",
    callback=age,
    required=True,
    metavar="AGE",
    help="Remove runs that ended longer ago than this: 90d, 52w, ...",
)
@click.option(
    "--usage-older-than",
    callback=age,
    metavar="AGE",
    help="Remove daily sums that are older than this. Default: the value of --older-than.",
)
@pass_arguments(PruneArguments)
def prune(arguments: PruneArguments) -> None:
    """Remove records that are older than an age.

    Running gangs are kept. Reports of whole days need only the daily sums; reports of parts of days need the runs.

    \b
    phalanx accounting prune --older-than 90d
    phalanx accounting prune --older-than 90d --usage-older-than 520w
    """
    from phalanx.accounting.retention import prune as prune_accounts

    now = int(time.time())
    runs = now - arguments.older_than
    usage = runs if arguments.usage_older_than is None else now - arguments.usage_older_than
    removed = _changed(arguments.database, lambda connection: prune_accounts(connection, runs, usage, now))
    click.echo(f"Removed: {removed.runs} runs with {removed.pods} pods, {removed.days} daily sums")


@dataclass(frozen=True, kw_only=True)
class EraseArguments:
    """Arguments of `phalanx accounting erase`."""

    database: str | None
    user: str
    deletes: bool
    yes: bool


@accounting.command(short_help="Remove a user's name or runs from the accounts.")
@database_option
@click.argument("user")
@click.option("--delete", "deletes", is_flag=True, help="Delete the user's runs instead of replacing the name.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@pass_arguments(EraseArguments)
def erase(arguments: EraseArguments) -> None:
    """Replace the name of a user in the accounts by a pseudonym, or delete the user's runs.

    A pseudonym keeps the usage of queues. The names of the user's runs and pods are removed too, because they
    often contain the user's name. With --delete, reports of the past show less usage. Running gangs are not
    changed: repeat the command after they have ended.

    \b
    phalanx accounting erase alice
    phalanx accounting erase alice --delete --yes
    """
    from phalanx.accounting.retention import delete_user, pseudonymise

    now, user = int(time.time()), arguments.user
    if not arguments.yes:
        click.confirm(
            f"{'Delete all runs' if arguments.deletes else 'Replace the name'} of user {quoted(user)}?", abort=True
        )
    if arguments.deletes:
        removed = _changed(arguments.database, lambda connection: delete_user(connection, user, now))
        click.echo(_erased(removed, "deleted"))
    else:
        pseudonym, removed = _changed(arguments.database, lambda connection: pseudonymise(connection, user, now))
        click.echo(_erased(removed, f"now belong to {pseudonym}"))


@dataclass(frozen=True, kw_only=True)
class RightsArguments:
    """Arguments of `phalanx accounting rights`."""

    namespace: str


@accounting.command(short_help="Print a service account with the rights of `phalanx accounting run`.")
@click.option("--namespace", default="phalanx-system", show_default=True, help="Namespace of the service account.")
@pass_arguments(RightsArguments)
def rights(arguments: RightsArguments) -> None:
    """Print a service account with the minimal rights of `phalanx accounting run`.

    \b
    phalanx accounting rights | kubectl apply -f -
    """
    import yaml

    from phalanx.cli.installation.accounting_manifests import accounting_access

    text = yaml.safe_dump_all(
        accounting_access("phalanx-accounting", arguments.namespace), sort_keys=False, explicit_start=True
    )
    click.echo(text, nl=False)


def _erased(removed: Removed, action: str) -> str:
    text = f"{removed.runs} runs and {removed.pods} pods {action}"
    return (
        f"{text}; {removed.under_way} runs still run: repeat the command after they have ended"
        if removed.under_way
        else text
    )


def _changed(database: str | None, change: Callable[[Connection], T]) -> T:
    from phalanx.accounting.database import Database, DatabaseError
    from phalanx.accounting.location import default_location

    try:
        accounts = Database(database or default_location())
        try:
            with accounts.reading():
                pass  # raises DatabaseError for a missing or outdated database
            with accounts.writing() as connection:
                return change(connection)
        finally:
            accounts.close()
    except DatabaseError as error:
        raise click.ClickException(str(error)) from error

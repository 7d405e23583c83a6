"""`phalanx accounting`: the process that writes the accounts, and what is taken out of them again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import click

from phalanx.cli.accounts.history import database_option
from phalanx.cli.arguments import pass_arguments
from phalanx.cli.connection import fixed_scheduler_names_option, kubeconfig_option, policy_file_option
from phalanx.cli.explanation.moments import age
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.cli.services.logs import LogArguments, log_options

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from phalanx.accounting.retention import Removed
    from phalanx.kube.client import KubeClient

T = TypeVar("T")


@click.group()
def accounting() -> None:
    """Keep what gangs have used, after their objects are gone.

    \b
    phalanx accounting run
    phalanx accounting prune --older-than 90d
    phalanx accounting erase ada
    """


@dataclass(frozen=True, kw_only=True)
class AccountingRunArguments(LogArguments):
    """Arguments of `phalanx accounting run`."""

    database: str | None


@accounting.command()
@kubeconfig_option
@database_option
@pass_invocation(
    AccountingRunArguments, fixed_scheduler_names_option("are written down"), policy_file_option, log_options
)
def run(invocation: Invocation, arguments: AccountingRunArguments) -> None:
    """Write down what gangs use until SIGTERM or Ctrl-C.

    It only reads from the cluster, and makes the tables or brings them up to date. What happened while it was down
    it takes from the objects' timestamps; what they do not tell is marked as an estimate. Prints one line on stdout
    once everything that is there is in the accounts.
    """
    from phalanx.accounting.database import Database, DatabaseError, default_location
    from phalanx.accounting.service import AccountingOptions, AccountingService
    from phalanx.cli.services.service_run import run_announced
    from phalanx.daemon.policy_file import dialect_options, read_policy
    from phalanx.scheduling.framework.errors import PolicyError

    arguments.set_up_logging()
    try:
        options = AccountingOptions(invocation.scheduler_names, dialect_options(read_policy(invocation.config)))
        accounts = Database(arguments.database or default_location())
    except (PolicyError, DatabaseError) as error:
        raise click.ClickException(str(error)) from error

    async def work(client: KubeClient) -> None:
        service = AccountingService(client, accounts, options)
        await run_announced(service, lambda: f"phalanx accounting ready: {accounts.name}")

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
    "--older-than", callback=age, required=True, metavar="AGE", help="Runs that ended before: 90d, 52w, ..."
)
@click.option(
    "--usage-older-than",
    callback=age,
    metavar="AGE",
    help="The sums that reports are made of are kept for longer; by default as long as the runs.",
)
@pass_arguments(PruneArguments)
def prune(arguments: PruneArguments) -> None:
    """Remove what is older than an age.

    Runs that are under way stay. Reports of whole days need the sums only; of parts of days they need the runs.
    """
    from phalanx.accounting.retention import prune as prune_accounts

    now = int(time.time())
    runs = now - arguments.older_than
    usage = runs if arguments.usage_older_than is None else now - arguments.usage_older_than
    removed = _changed(arguments.database, lambda connection: prune_accounts(connection, runs, usage, now))
    click.echo(f"{removed.runs} runs with {removed.pods} pods and {removed.days} sums of a day removed")


@dataclass(frozen=True, kw_only=True)
class EraseArguments:
    """Arguments of `phalanx accounting erase`."""

    database: str | None
    user: str
    deletes: bool
    yes: bool


@accounting.command(short_help="Take a user out of the accounts.")
@database_option
@click.argument("user")
@click.option("--delete", "deletes", is_flag=True, help="Remove the runs, instead of the name.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_arguments(EraseArguments)
def erase(arguments: EraseArguments) -> None:
    """Take a user out of the accounts: by a pseudonym, or with all that they ran.

    A pseudonym leaves what queues used as it was; the names of the user's runs and pods go as well, as they often
    tell whose they are. With --delete reports of the past show less. Runs that are under way stay as they are:
    erase again when they have ended.
    """
    from phalanx.accounting.retention import delete_user, pseudonymise

    now, user = int(time.time()), arguments.user
    if not arguments.yes:
        click.confirm(f"{'Delete all runs' if arguments.deletes else 'Erase the name'} of {user!r}?", abort=True)
    if arguments.deletes:
        removed = _changed(arguments.database, lambda connection: delete_user(connection, user, now))
        click.echo(_erased(removed, "removed"))
    else:
        pseudonym, removed = _changed(arguments.database, lambda connection: pseudonymise(connection, user, now))
        click.echo(_erased(removed, f"now {pseudonym}'s"))


@dataclass(frozen=True, kw_only=True)
class RightsArguments:
    """Arguments of `phalanx accounting rights`."""

    namespace: str


@accounting.command(short_help="Print an account with the rights that run uses.")
@click.option("--namespace", default="phalanx-system", show_default=True, help="Of its service account.")
@pass_arguments(RightsArguments)
def rights(arguments: RightsArguments) -> None:
    """Print a service account with the rights that `phalanx accounting run` uses, and no other.

    \b
    phalanx accounting rights | kubectl apply -f -
    """
    import yaml

    from phalanx.cli.installation.accounting_manifests import accounting_access

    text = yaml.safe_dump_all(
        accounting_access("phalanx-accounting", arguments.namespace), sort_keys=False, explicit_start=True
    )
    click.echo(text, nl=False)


def _erased(removed: Removed, what: str) -> str:
    text = f"{removed.runs} runs and {removed.pods} pods {what}"
    return (
        f"{text}; {removed.under_way} runs are under way: erase again when they have ended"
        if removed.under_way
        else text
    )


def _changed(database: str | None, change: Callable[[Connection], T]) -> T:
    from phalanx.accounting.database import Database, DatabaseError, default_location

    try:
        accounts = Database(database or default_location())
        try:
            with accounts.reading():
                pass  # says what is wrong with it
            with accounts.writing() as connection:
                return change(connection)
        finally:
            accounts.close()
    except DatabaseError as error:
        raise click.ClickException(str(error)) from error

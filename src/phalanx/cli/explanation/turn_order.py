"""Command `phalanx order`: the scheduling order and the sort keys."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from phalanx.cli.connection import scheduler_options
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.cli.listing.options import NamespacedListArguments, list_options, queues_option
from phalanx.cli.server.options import server_options
from phalanx.cli.server.rights import by_rights

if TYPE_CHECKING:
    from phalanx.cli.listing.table import Column
    from phalanx.cli.server.requests import Server
    from phalanx.kube.client import KubeClient
    from phalanx.reports.turn_entries import OrderReport, TurnEntry


@dataclass(frozen=True, kw_only=True)
class TurnOrderArguments(NamespacedListArguments):
    """Arguments of `phalanx order`, which lists all namespaces unless one namespace is named."""

    queues: tuple[str, ...]

    @property
    def scope(self) -> str | None:
        return None if self.all_namespaces else self.namespace or None

    @property
    def selected_queues(self) -> tuple[str, ...]:
        return self.queues


@click.command("order", short_help="Show the scheduling order and the sort keys.")
@queues_option
@pass_invocation(TurnOrderArguments, list_options(selector=False), server_options, scheduler_options("are listed"))
def order(invocation: Invocation, arguments: TurnOrderArguments) -> None:
    """Show waiting gangs and single pods in scheduling order, with the sort keys.

    The order comes from a dry run of the scheduler over the live cluster. Gangs that it would place now come
    first (STATE Starting with -o wide). POS counts all gangs, also with a filter. KEYS are the values of the
    policy's plugins, compared from left to right; smaller values come first. BEHIND-BY is the first key that
    differs from the previous gang: queue:PLUGIN for a comparison of queues, age or name if all keys are equal,
    repair for gangs that come first because only a part of them is bound.

    \b
    phalanx order
    phalanx order -q research -o wide
    """
    from phalanx.cli.listing.listing import Found, Listing, show

    lease_namespace = invocation.lease_namespace

    async def report(client: KubeClient) -> OrderReport:
        from phalanx.daemon.policy_file import dialect_options
        from phalanx.reports.read_promises import read_promises
        from phalanx.reports.snapshot import read_cluster
        from phalanx.reports.stored_usage import read_usage
        from phalanx.reports.turn_order import turn_order

        policy, names = await invocation.read_policy(client)
        snapshot = await read_cluster(client, names, dialect_options(policy), lease_namespace)
        await read_usage(client, snapshot, policy, lease_namespace, names)
        promises = await read_promises(client, lease_namespace, names)
        return turn_order(snapshot, policy, time.time(), promises)

    async def read(client: KubeClient) -> Found[TurnEntry]:
        own = client.namespace

        async def ask(server: Server) -> OrderReport:
            from phalanx.reports.turn_entries import OrderReport

            question = {"namespace": arguments.scope or "", "own": own}
            return await server.get("commands/order", OrderReport, question)

        answer = await by_rights(invocation, report, ask)(client)
        namespace, queues = arguments.scope, arguments.queues
        shown = [
            entry
            for entry in answer.entries
            if namespace in (None, entry.namespace) and (not queues or entry.queue in queues)
        ]
        return Found(shown, answer.warnings)

    listing: Listing[TurnEntry] = Listing(
        columns=_columns(),
        key=lambda entry: (entry.kind, entry.namespace, entry.name),
        name=lambda entry: entry.target,
        namespace=lambda entry: entry.namespace,
    )
    show(invocation, listing, read, arguments)


def _columns() -> tuple[Column[TurnEntry], ...]:
    from phalanx.cli.listing.ages import span
    from phalanx.cli.listing.table import Column

    def reason(entry: TurnEntry, now: float) -> str:
        return f"{entry.reason}: {entry.message}" if entry.message else entry.reason

    def keys(entry: TurnEntry, now: float) -> str:
        return " ".join(f"{name}={value}" for name, value in entry.keys.items())

    return (
        Column("POS", lambda entry, now: str(entry.position), order=lambda entry: entry.position),
        Column("GANG", lambda entry, now: entry.name),
        Column("QUEUE", lambda entry, now: entry.queue),
        Column(
            "QUEUE-SHARE", lambda entry, now: f"{entry.queue_share:.1f}%", order=lambda entry: entry.queue_share
        ),
        Column("PRIORITY", lambda entry, now: str(entry.priority), order=lambda entry: entry.priority),
        Column(
            "WAIT",
            lambda entry, now: span(now - entry.created) if entry.created else "",
            order=lambda entry: -entry.created,
        ),
        Column("KIND", lambda entry, now: entry.kind, wide=True),
        Column("MEMBERS", lambda entry, now: str(entry.members), wide=True, order=lambda entry: entry.members),
        Column("STATE", lambda entry, now: entry.state, wide=True),
        Column("FORECAST", lambda entry, now: entry.forecast.words, wide=True),
        Column("RESERVED", lambda entry, now: "yes" if entry.reserved else "", wide=True),
        Column("KEYS", keys),
        Column("BEHIND-BY", lambda entry, now: entry.behind),
        Column("REASON", reason, wide=True),
    )

"""Command `phalanx reservations`: promised starts and advance reservations."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from phalanx.cli.connection import lease_namespace_option, scheduler_names_option
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.cli.listing.options import ListArguments, list_options

if TYPE_CHECKING:
    from phalanx.cli.listing.table import Column
    from phalanx.kube.client import KubeClient
    from phalanx.reports.reservation_list import ReservationEntry

_KINDS = ("promise", "reservation", "koordinator")


@dataclass(frozen=True, kw_only=True)
class ReservationsArguments(ListArguments):
    """Arguments of `phalanx reservations`."""

    kinds: tuple[str, ...]


@click.command("reservations", short_help="List promised starts and advance reservations.")
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(_KINDS), help="Only entries of this kind; repeatable."
)
@pass_invocation(
    ReservationsArguments,
    list_options(namespaced=False, selector=False),
    scheduler_names_option("have promised starts"),
    lease_namespace_option,
)
def reservations(invocation: Invocation, arguments: ReservationsArguments) -> None:
    """List promised starts and advance reservations, sorted by start.

    A promise is a start that the scheduler guarantees to a waiting gang (action reserve of the policy).
    Promises are listed only if you can read the ConfigMap phalanx-reservations in --lease-namespace. A
    reservation was created in advance for certain pods. END is the end of the reserved room; it is empty if
    unknown.

    \b
    phalanx reservations
    phalanx reservations --kind promise -o wide
    """
    from phalanx.cli.listing.listing import Found, Listing, show
    from phalanx.reports.reservation_list import read_reservations

    async def read(client: KubeClient) -> Found[ReservationEntry]:
        names = (await invocation.list_settings(client)).scheduler_names
        entries, warnings = await read_reservations(client, invocation.lease_namespace, time.time(), names)
        kinds = arguments.kinds
        return Found([room for room in entries if not kinds or room.kind in kinds], warnings)

    listing: Listing[ReservationEntry] = Listing(
        columns=_columns(),
        key=lambda room: (room.kind, room.name),
        name=lambda room: f"{room.kind}/{room.name}",
    )
    show(invocation, listing, read, arguments)


def _columns() -> tuple[Column[ReservationEntry], ...]:
    from phalanx.cli.listing.ages import relative
    from phalanx.cli.listing.node_names import compress
    from phalanx.cli.listing.table import Column

    def nodes(room: ReservationEntry, full: bool) -> str:
        reason = f"{room.reason}: {room.message}" if full and room.message else room.reason
        return " ".join(filter(None, (compress(room.nodes), f"({reason})" if reason else "")))

    return (
        Column("NAME", lambda room, now: room.name),
        Column("KIND", lambda room, now: room.kind),
        Column("PHASE", lambda room, now: room.phase),
        Column("START", lambda room, now: relative(room.start, now), order=lambda room: room.start),
        Column("END", lambda room, now: relative(room.end, now), order=lambda room: room.end),
        Column("QUEUE", lambda room, now: room.queue),
        Column("PODS", lambda room, now: str(room.pods), order=lambda room: room.pods),
        Column("NODES", lambda room, now: str(len(room.nodes)), order=lambda room: len(room.nodes)),
        Column("NODELIST(REASON)", lambda room, now: nodes(room, False), narrow=True),
        Column("NODELIST(REASON)", lambda room, now: nodes(room, True), wide=True),
    )

"""One attempt in one domain after the other, the smallest first, until it succeeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.transaction import Transaction
from phalanx.scheduling.diagnosis.domain_shortage import no_domain, spot_of
from phalanx.scheduling.diagnosis.shortage import Spot
from phalanx.scheduling.placement.topology_domains import Area, Domain, DomainDemand
from phalanx.scheduling.queue.demands import GangDemand, MemberDemand
from phalanx.scheduling.refusals.no_room import Shortage
from phalanx.scheduling.refusals.refusal import Refusal
from phalanx.scheduling.session.session import Session

F = TypeVar("F", bound=Refusal)


class Together(msgspec.Struct, frozen=True):
    """At least `total` members of several gangs, of which some may be left out."""

    total: int
    members: tuple[MemberDemand, ...]
    roles: tuple[tuple[str, int], ...] = ()


def together(demands: Sequence[GangDemand], least: int) -> Together:
    """What the smallest `least` of the gangs ask for, out of all that they offer."""
    totals = sorted(demand.total for demand in demands)
    return Together(sum(totals[:least]), tuple(portion for demand in demands for portion in demand.members))


def try_domains(
    session: Session,
    transaction: Transaction,
    area: Area,
    want: DomainDemand,
    attempt: Callable[[Domain, Spot | None], F | None],
    undone: Callable[[], None],
    otherwise: Callable[[], bool] | None = None,
    culprit: int = 0,
    everybody: Mapping[ClassRecord, int] | None = None,
) -> F | Shortage | None:
    """Makes the attempt in the domains that take all by the counts; why it failed in the one that came nearest.

    An attempt places within the transaction, or says why not; told the domain that came nearest, it says why there.
    `undone` is called when what an attempt has placed has been taken back; `otherwise` may then place by other
    means in the same domain. `everybody` are those for whom there should be room beside. The last attempt, which
    only finds out why, leaves its traces.
    """
    mark = transaction.mark()
    for domain in session.topology_domains.tries(area, want, everybody):
        with session.placer.within(domain.rows):
            facts = attempt(domain, None)
            if facts is None:
                return None
            transaction.back_to(mark)
            undone()
            if otherwise is not None and otherwise():
                return None
        if facts.of_account:
            return facts  # accounts are in the way in every domain
    nearest = session.topology_domains.nearest(area, want)
    if nearest is None:
        return no_domain(session, area, want, culprit)
    with session.placer.within(nearest.rows):
        return attempt(nearest, spot_of(session, area, nearest))

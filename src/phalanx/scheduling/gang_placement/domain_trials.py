"""Attempts to place pods in one domain after the other, the smallest first."""

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
    """Demand of several gangs of which some can be omitted: at least `total` of the members."""

    total: int
    members: tuple[MemberDemand, ...]
    roles: tuple[tuple[str, int], ...] = ()


def together(demands: Sequence[GangDemand], least: int) -> Together:
    """Return the demand of the `least` smallest gangs, out of the members of all."""
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
    waiting_pods: Mapping[ClassRecord, int] | None = None,
) -> F | Shortage | None:
    """Make the attempt in each domain with enough room by counts. Return None, or the refusal in the nearest
    domain.

    `attempt` places pods in the transaction or returns a refusal. Called with a `Spot`, it returns the refusal for
    that domain. `undone` is called after an attempt was rolled back; `otherwise` can then place pods by other means
    in the same domain. `waiting_pods` are further pods for which the domain should have room. The last attempt only
    finds the reason and is not rolled back.
    """
    mark = transaction.mark()
    for domain in session.topology_domains.tries(area, want, waiting_pods):
        with session.placer.within(domain.rows):
            facts = attempt(domain, None)
            if facts is None:
                return None
            transaction.back_to(mark)
            undone()
            if otherwise is not None and otherwise():
                return None
        if facts.of_account:
            return facts  # quota refuses the pods in every domain
    nearest = session.topology_domains.nearest(area, want)
    if nearest is None:
        return no_domain(session, area, want, culprit)
    with session.placer.within(nearest.rows):
        return attempt(nearest, spot_of(session, area, nearest))

"""Placement of quorums: all required members of the gangs of a gang group in one transaction, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.network.topology import Level
from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.resource_space import BoolArray
from phalanx.cluster.transaction import Transaction
from phalanx.scheduling.diagnosis.shortage import Spot, shortage
from phalanx.scheduling.gang_placement.affinity_candidates import affinity_candidates
from phalanx.scheduling.gang_placement.domain_trials import try_domains
from phalanx.scheduling.gang_placement.fallback import FallbackPlacement, fallback_placement
from phalanx.scheduling.gang_placement.pod_sets import (
    GangPlacement,
    Order,
    PodBatch,
    PodSet,
    hardest_first,
    leanest_first,
    of_whole_gang,
    subgroup_demand,
    unplaced_of,
)
from phalanx.scheduling.gang_placement.search_placement import search_gangs
from phalanx.scheduling.placement.affinity_order import leaders_first
from phalanx.scheduling.placement.topology_domains import Area, Domain, DomainDemand
from phalanx.scheduling.queue.demands import (
    GangDemand,
    QuorumDemand,
)
from phalanx.scheduling.refusals.no_room import Gap
from phalanx.scheduling.refusals.refusal import GangFault
from phalanx.scheduling.session.session import Session


def place_gangs(
    session: Session,
    placements: list[GangPlacement],
    demand: QuorumDemand,
    transaction: Transaction,
    spot: Spot | None = None,
    limited: bool = True,
) -> GangFault | None:
    """Place every quorum in the transaction (`placed` of each placement lists pods and rows), or place nothing.

    Return None, or the refusal; with `spot`, the refusal for that domain. The first try places the hardest members
    first. If quota refuses it, a second try places the members with the smallest amounts first. Then small gangs
    are searched; without `limited` only by amounts.
    """
    for place, part in enumerate(demand.gangs):
        gaps = session.shortfall_in_sum(part.reserve, afresh=transaction.explores) if part.reserve else ()
        if gaps:
            return Gap(gaps, culprit=place)
    facts = _all_in_turn(session, transaction, placements, demand, hardest_first, spot)
    if facts is None:
        return None
    if facts.of_account and len({batch.pod_class for placement in placements for batch in placement.batches}) > 1:
        facts = facts if _all_in_turn(session, transaction, placements, demand, leanest_first, spot) else None
    if facts is not None and facts.of_nodes and _place_gathered(session, transaction, placements, demand, spot):
        return None
    return facts if facts is None else _search(session, placements, demand, transaction, facts, spot, limited)


def _search(
    session: Session,
    placements: list[GangPlacement],
    demand: QuorumDemand,
    transaction: Transaction,
    facts: GangFault,
    spot: Spot | None,
    limited: bool,
) -> GangFault | None:
    """Search a placement that the usual order of choices has not found; `facts` is its refusal."""
    classes = {portion.pod_class for part in demand.gangs for portion in part.members}
    unlike = len(classes) > 1 or any(part.parts for part in demand.gangs)
    # Gangs of equal pods compete for the domains.
    unlike = unlike or (len(demand.gangs) > 1 and any(part.area is not None for part in demand.gangs))
    if not unlike and not any(pod_class.dynamic for pod_class in classes):
        return facts  # the order of equal pods is irrelevant
    if session.searched_enough:
        return facts
    if not any(placement.parts or placement.extras for placement in placements):
        choices = [_choice(session, placement) for placement in placements if not placement.satisfied]
        exact = fallback_placement(session, transaction, choices)
        if exact.placed is not None:
            waiting = [placement for placement in placements if not placement.satisfied]
            for placement, placed in zip(waiting, exact.placed, strict=True):
                placement.placed = placed
            return None
        if exact.proved:
            return facts
    if not limited or spot is not None or not facts.of_nodes:
        return facts
    if not transaction.explores and not demand.upper_bound(session):
        return facts
    result = search_gangs(session, transaction, placements, demand)
    return None if result.placed else facts.not_found(result.tries)


def _place_gathered(
    session: Session,
    transaction: Transaction,
    placements: list[GangPlacement],
    demand: QuorumDemand,
    spot: Spot | None,
) -> bool:
    """Place all quorums in another domain than the best one of the first member with required affinity.

    Return whether a domain was found.
    """
    wanted: dict[ClassRecord, int] = {}
    for part in demand.gangs:
        for pod_class in {portion.pod_class for portion in part.members}:
            wanted[pod_class] = wanted.get(pod_class, 0) + part.forced_members(pod_class)
    for rows in affinity_candidates(session, wanted.items()):
        with session.placer.within(rows):
            if _all_in_turn(session, transaction, placements, demand, hardest_first, spot) is None:
                return True
    return False


def _all_in_turn(
    session: Session,
    transaction: Transaction,
    placements: list[GangPlacement],
    demand: QuorumDemand,
    order: Order,
    spot: Spot | None,
) -> GangFault | None:
    start, ordered = transaction.mark(), list(enumerate(placements))
    if len(ordered) > 1:
        # Gangs of a gang group can have required affinity to each other too.
        ordered = leaders_first(ordered, lambda entry: {batch.pod_class for batch in entry[1].batches})
    for place, placement in ordered:
        facts = _Turn(session, transaction, placement, demand.gangs[place], place, order, spot).run()
        if facts is not None:
            transaction.back_to(start)
            return facts
    return None


class _Turn:
    """Placement of one gang within a joint placement."""

    def __init__(
        self,
        session: Session,
        transaction: Transaction,
        placement: GangPlacement,
        demand: GangDemand,
        place: int,
        order: Order,
        spot: Spot | None,
    ) -> None:
        self._session = session
        self._transaction = transaction
        self._placement = placement
        self._demand = demand
        self._place = place
        self._order = order
        self._spot = spot
        self._levels: tuple[Level, ...] = ()

    def run(self) -> GangFault | None:
        """Place the gang's quorum in the smallest domain that fits it; a failed attempt is not rolled back."""
        placement = self._placement
        placement.placed = []
        if placement.satisfied:
            return None
        attempt = self._parts if placement.parts or placement.extras else self._place_plain
        if placement.area is None:
            return attempt()
        choice = (
            _choice(self._session, placement, within=True) if not (placement.parts or placement.extras) else None
        )
        return self._near(placement.area, self._demand, choice, attempt)

    def _near(
        self,
        area: Area,
        want: DomainDemand,
        choice: FallbackPlacement | None,
        attempt: Callable[[], GangFault | None],
    ) -> GangFault | None:
        """Make the attempt in one domain after the other, until it succeeds; `choice` enables the fallback
        placement.
        """
        placement, before = self._placement, len(self._placement.placed)

        def on_the_spot(domain: Domain, spot: Spot | None) -> GangFault | None:
            outer = self._spot, self._levels
            self._spot, self._levels = spot or self._spot, self._session.topology_domains.finer(area, domain)
            facts = attempt()
            self._spot, self._levels = outer
            return facts

        def undone() -> None:
            del placement.placed[before:]

        def otherwise() -> bool:
            if choice is None:
                return False
            solution = fallback_placement(self._session, self._transaction, [choice]).placed
            if solution is not None:
                placement.placed += solution[0]
            return solution is not None

        waiting_pods = placement.waiting_pods if want is self._demand else None
        return try_domains(
            self._session, self._transaction, area, want, on_the_spot, undone, otherwise, self._place, waiting_pods
        )

    def _place_plain(self) -> GangFault | None:
        need = self._placement.need
        return self._fill(self._placement.rest, dict(need.roles), need.total)

    def _parts(self) -> GangFault | None:
        """Place required subgroups, then members in no subgroup, then further subgroups until the quorum is
        reached.
        """
        placement, need = self._placement, self._placement.need
        roles, lacking, remaining, first = dict(need.roles), list(need.subgroups), list(placement.parts), None
        for needed in (True, False):
            if not needed and (facts := self._place_ungrouped(roles)) is not None:
                first = first or facts
            for pod_set in placement.extras if not needed and self._lacks_members(roles) else ():
                if (facts := self._place_extra(pod_set)) is not None:
                    first = first or facts
            for pod_set in list(remaining):
                assert pod_set.part is not None
                number = pod_set.part.key[0]
                if not (lacking[number] if needed else self._lacks_members(roles)):
                    continue
                facts = self._place_subgroup(pod_set)
                if facts is None:
                    remaining.remove(pod_set)
                    lacking[number] = max(0, lacking[number] - 1)
                else:
                    first = first or facts
            if any(lacking):
                return first or self._quorum_refusal()
        return (first or self._quorum_refusal()) if self._lacks_members(roles) else None

    def _lacks_members(self, roles: dict[str, int]) -> bool:
        """Return whether the quorum lacks members, in total or of a role."""
        placed, total = self._placement.placed, self._placement.need.total
        counts = {role: sum(1 for record, _ in placed if record.pod.role == role) for role in roles}
        return len(placed) < total or any(counts[role] < least for role, least in roles.items())

    def _place_ungrouped(self, roles: dict[str, int]) -> GangFault | None:
        """Place members in no subgroup up to the needed number."""
        placement = self._placement
        available: dict[str, int] = {}
        for batch in placement.rest.batches:
            available[batch.role] = available.get(batch.role, 0) + len(batch.members)
        placed = {role: sum(1 for record, _ in placement.placed if record.pod.role == role) for role in roles}
        wanted = {role: min(least - placed[role], available.get(role, 0)) for role, least in roles.items()}
        wanted = {role: least for role, least in wanted.items() if least > 0}
        ungrouped = min(placement.need.total - len(placement.placed), sum(available.values()))
        total = max(ungrouped, sum(wanted.values()))
        return self._fill(placement.rest, wanted, total) if total > 0 else None

    def _place_subgroup(self, pod_set: PodSet) -> GangFault | None:
        """Place a subgroup as a whole, or nothing of it."""
        assert pod_set.part is not None
        mark, before = self._transaction.mark(), len(self._placement.placed)

        def attempt() -> GangFault | None:
            return self._fill(pod_set, {}, pod_set.total)

        if pod_set.area is None:
            facts = attempt()
        else:
            choice = FallbackPlacement(pod_set.total, (), pod_set.in_order(self._session, hardest_first))
            facts = self._near(pod_set.area, subgroup_demand(pod_set), choice, attempt)
        if facts is None:
            return None
        self._transaction.back_to(mark)
        del self._placement.placed[before:]
        return facts.of_subgroup(pod_set.part.title)

    def _place_extra(self, pod_set: PodSet) -> GangFault | None:
        """Place further members of a complete subgroup up to the needed number."""
        count = min(pod_set.total, self._placement.need.total - len(self._placement.placed))
        before = len(self._placement.placed)

        def attempt() -> GangFault | None:
            facts = self._fill(pod_set, {}, max(1, count))
            return facts if len(self._placement.placed) == before else None

        if pod_set.area is None:
            return attempt()
        one = msgspec.structs.replace(subgroup_demand(pod_set), total=1)
        return self._near(pod_set.area, one, None, attempt)

    def _quorum_refusal(self) -> GangFault:
        """Return the refusal of a gang whose subgroups fit but do not reach the quorum."""
        placement, session = self._placement, self._session
        pod_class, placed = placement.batches[0].pod_class, len(placement.placed)
        refusal = shortage(session.plugin_runtime, session.state.nodes, pod_class, placed, placement.need.total)
        return msgspec.structs.replace(refusal, culprit=self._place)

    def _fill(self, pod_set: PodSet, roles: dict[str, int], total: int) -> GangFault | None:
        """Place members of a set, batch by batch within a priority: first the roles' minimums, then the rest.

        A batch without further room is skipped: another batch can complete the quorum.
        """
        batches = pod_set.in_order(self._session, self._order)
        used = [0] * len(batches)
        missing, wanted = total - sum(roles.values()), dict(roles)
        start = len(self._placement.placed)
        for number, batch in enumerate(batches):
            least = wanted.get(batch.role, 0)
            if least:
                used[number] = self._place_batch(batch, batch.members[:least])
                wanted[batch.role] -= used[number]
        for number, batch in enumerate(batches):
            if wanted.get(batch.role) and used[number] < len(batch.members):
                return self._refusal(number, unplaced_of(batches, used), wanted[batch.role], start, total)
        failed: int | None = None
        for number, batch in enumerate(batches):
            candidates = batch.members[used[number] : used[number] + missing]
            placed = self._place_batch(batch, candidates)
            used[number] += placed
            missing -= placed
            if placed < len(candidates) and failed is None:
                failed = number
        if failed is None or not missing:
            return None
        return self._refusal(failed, unplaced_of(batches, used), missing, start, total)

    def _place_batch(self, batch: PodBatch, members: list[PodRecord], depth: int = 0) -> int:
        """Place as many members as fit and are allowed, in the fewest domains of each lower level. Return their
        number.
        """
        session, placed = self._session, 0
        if depth < len(self._levels) and len(members) > 1:
            level, tried_domains = self._levels[depth], set[int]()
            while placed < len(members) and session.quota_check.room(batch.charge_path, batch.pod_class.footprint):
                number = session.topology_domains.part(level, batch.pod_class, len(members) - placed, tried_domains)
                if not number:
                    break
                tried_domains.add(number)
                with session.placer.within(level.rows(number)):
                    placed += self._place_batch(batch, members[placed:], depth + 1)
        return placed + self._place_in_any_domain(batch, members[placed:])

    def _place_in_any_domain(self, batch: PodBatch, members: list[PodRecord]) -> int:
        session, pod_class, placed, buckets = self._session, batch.pod_class, 0, self._placement.buckets
        wanted = min(len(members), session.quota_check.room(batch.charge_path, pod_class.footprint))
        while placed < wanted:
            if buckets is None:
                rows = session.placer.place(pod_class, wanted - placed)
            else:
                # The score depends on the nodes of the members placed so far.
                with session.placer.with_extra_score(buckets.scores(members[placed], self._placement.placed)):
                    rows = session.placer.place(pod_class, wanted - placed)
            if not rows:
                break
            chosen = members[placed : placed + len(rows)]
            self._transaction.place(pod_class, chosen, rows)
            self._placement.placed.extend(zip(chosen, rows, strict=True))
            placed += len(rows)
        return placed

    def _refusal(
        self, failed: int, left: Sequence[tuple[PodBatch, int]], missing: int, start: int, need: int
    ) -> GangFault:
        """Return the refusal for `missing` members.

        `failed` is the index in `left` of the first batch without further room; `left` are the unplaced members of
        each batch.
        """
        batch, unplaced = left[failed]
        session, pod_class, place = self._session, batch.pod_class, self._place
        placements = self._placement.placed[start:]
        placed = len(placements)
        if not session.quota_check.room(batch.charge_path, pod_class.footprint):
            count = min(missing, unplaced)
            # A sum above the cluster's total is not refused by quota; then a single pod is.
            over_quota, charge_path = session.quota_check.over_quota, batch.charge_path
            excess = over_quota(charge_path, pod_class.footprint, count, placed, need, place)
            excess = excess or over_quota(charge_path, pod_class.footprint, 1, placed, need, place)
            assert excess is not None
            if not (excess.computed and not session.placer.fits(pod_class)):
                tried = [record.footprint for record, _ in self._placement.placed]
                other_batches = [entry for number, entry in enumerate(left) if number != failed]
                return of_whole_gang(session, excess, pod_class, count, tried, other_batches, missing - count)
        nodes = session.state.nodes
        alike = [row for record, row in self._placement.placed if record.pod_class is pod_class]
        return shortage(session.plugin_runtime, nodes, pod_class, placed, need, missing, place, self._spot, alike)


def _choice(session: Session, placement: GangPlacement, within: bool = False) -> FallbackPlacement:
    """Return the choice of a gang's members; with `within`, the placer is limited to the gang's domain already."""
    need, batches = placement.need, placement.rest.in_order(session, hardest_first)
    domains: tuple[BoolArray, ...] | None = None
    if placement.area is not None and not within:
        domains = tuple(
            domain.rows for domain in session.topology_domains.tries(placement.area, placement.demand())
        )
    return FallbackPlacement(need.total, need.roles, batches, domains)

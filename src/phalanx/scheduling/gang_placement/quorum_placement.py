"""Putting quorums together: all members that the gangs of a gang group need, in one transaction, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.network.topology import Level
from phalanx.cluster.pods.records import PodRecord
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
    left_of,
    of_whole_gang,
    subgroup_demand,
)
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
) -> GangFault | None:
    """Places every quorum within the transaction (`placed` of each tells who and where); or places nothing,
    and says why: with `spot`, why there.

    The first way takes the hardest members first. Where accounts are in the way, a second one takes those that
    cost them least.
    """
    for place, part in enumerate(demand.gangs):
        gaps = session.shortfall_in_sum(part.reserve, afresh=transaction.explores) if part.reserve else ()
        if gaps:
            return Gap(gaps, culprit=place)
    facts = _all_in_turn(session, transaction, placements, demand, hardest_first, spot)
    if facts is None:
        return None
    if facts.of_account and len({batch.pod_class for each in placements for batch in each.batches}) > 1:
        facts = facts if _all_in_turn(session, transaction, placements, demand, leanest_first, spot) else None
    if facts is not None and facts.of_nodes and _gathered(session, transaction, placements, demand, spot):
        return None
    if facts is None or any(each.area is not None or each.parts or each.extras for each in placements):
        return facts
    found = fallback_placement(session, transaction, [_choice(session, placement) for placement in placements])
    if found is None:
        return facts
    for placement, placed in zip(placements, found, strict=True):
        placement.placed = placed
    return None


def _gathered(
    session: Session,
    transaction: Transaction,
    placements: list[GangPlacement],
    demand: QuorumDemand,
    spot: Spot | None,
) -> bool:
    """Whether all can be placed in another domain than where the first of those who have to be near to each other
    would go by itself."""
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
        # Gangs of a gang group may have to be near to each other as well.
        ordered = leaders_first(ordered, lambda entry: {batch.pod_class for batch in entry[1].batches})
    for place, placement in ordered:
        facts = _Turn(session, transaction, placement, demand.gangs[place], place, order, spot).run()
        if facts is not None:
            transaction.back_to(start)
            return facts
    return None


class _Turn:
    """One gang's turn in one way of placing all of them."""

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
        """Places the gang's quorum in the smallest domain that takes it; what is in the way leaves its traces."""
        placement = self._placement
        placement.placed = []
        if placement.satisfied:
            return None
        attempt = self._parts if placement.parts or placement.extras else self._plain
        if placement.area is None:
            return attempt()
        choice = _choice(self._session, placement) if not (placement.parts or placement.extras) else None
        return self._near(placement.area, self._demand, choice, attempt)

    def _near(
        self,
        area: Area,
        want: DomainDemand,
        choice: FallbackPlacement | None,
        attempt: Callable[[], GangFault | None],
    ) -> GangFault | None:
        """Makes the attempt within one domain after the other, until it succeeds; `choice` is set if members may be
        placed in other ways as well."""
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
            found = fallback_placement(self._session, self._transaction, [choice]) if choice is not None else None
            if found is not None:
                placement.placed += found[0]
            return found is not None

        everybody = placement.everybody if want is self._demand else None
        return try_domains(
            self._session, self._transaction, area, want, on_the_spot, undone, otherwise, self._place, everybody
        )

    def _plain(self) -> GangFault | None:
        need = self._placement.need
        return self._fill(self._placement.rest, dict(need.roles), need.total)

    def _parts(self) -> GangFault | None:
        """Subgroups that must start, then members of none, then further subgroups until the quorum holds."""
        placement, need = self._placement, self._placement.need
        roles, lacking, left, first = dict(need.roles), list(need.subgroups), list(placement.parts), None
        for needed in (True, False):
            if not needed and (facts := self._loose(roles)) is not None:
                first = first or facts
            for pod_set in placement.extras if not needed and self._wanting(roles) else ():
                if (facts := self._extra(pod_set)) is not None:
                    first = first or facts
            for pod_set in list(left):
                assert pod_set.part is not None
                number = pod_set.part.key[0]
                if not (lacking[number] if needed else self._wanting(roles)):
                    continue
                facts = self._part(pod_set)
                if facts is None:
                    left.remove(pod_set)
                    lacking[number] = max(0, lacking[number] - 1)
                else:
                    first = first or facts
            if any(lacking):
                return first or self._too_few()
        return (first or self._too_few()) if self._wanting(roles) else None

    def _wanting(self, roles: dict[str, int]) -> bool:
        """Whether members are missing for the quorum, in all or of a role."""
        placed, total = self._placement.placed, self._placement.need.total
        counts = {role: sum(1 for record, _ in placed if record.pod.role == role) for role in roles}
        return len(placed) < total or any(counts[role] < least for role, least in roles.items())

    def _loose(self, roles: dict[str, int]) -> GangFault | None:
        """Places those who are in no subgroup, as many as are needed."""
        placement = self._placement
        there: dict[str, int] = {}
        for batch in placement.rest.batches:
            there[batch.role] = there.get(batch.role, 0) + len(batch.members)
        done = {role: sum(1 for record, _ in placement.placed if record.pod.role == role) for role in roles}
        asked = {role: min(least - done[role], there.get(role, 0)) for role, least in roles.items()}
        asked = {role: least for role, least in asked.items() if least > 0}
        rest = min(placement.need.total - len(placement.placed), sum(there.values()))
        total = max(rest, sum(asked.values()))
        return self._fill(placement.rest, asked, total) if total > 0 else None

    def _part(self, pod_set: PodSet) -> GangFault | None:
        """Places a subgroup whole, or nothing of it."""
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

    def _extra(self, pod_set: PodSet) -> GangFault | None:
        """Places as many of a whole subgroup's further members as are needed and fit."""
        asked = min(pod_set.total, self._placement.need.total - len(self._placement.placed))
        before = len(self._placement.placed)

        def attempt() -> GangFault | None:
            facts = self._fill(pod_set, {}, max(1, asked))
            return facts if len(self._placement.placed) == before else None

        if pod_set.area is None:
            return attempt()
        one = msgspec.structs.replace(subgroup_demand(pod_set), total=1)
        return self._near(pod_set.area, one, None, attempt)

    def _too_few(self) -> GangFault:
        """No subgroup failed for lack of room, yet those that there are do not make a quorum."""
        placement, session = self._placement, self._session
        pod_class, placed = placement.batches[0].pod_class, len(placement.placed)
        found = shortage(session.plugin_runtime, session.state.nodes, pod_class, placed, placement.need.total)
        return msgspec.structs.replace(found, culprit=self._place)

    def _fill(self, pod_set: PodSet, roles: dict[str, int], total: int) -> GangFault | None:
        """Places members of a set, batch by batch within a priority: first what roles ask, then the rest.

        A batch of which no more fits is passed over: another member may fill the quorum in its stead.
        """
        batches = pod_set.in_order(self._session, self._order)
        used = [0] * len(batches)
        rest, wanted = total - sum(roles.values()), dict(roles)
        start = len(self._placement.placed)
        for number, batch in enumerate(batches):
            least = wanted.get(batch.role, 0)
            if least:
                used[number] = self._put(batch, batch.members[:least])
                wanted[batch.role] -= used[number]
        for number, batch in enumerate(batches):
            if wanted.get(batch.role) and used[number] < len(batch.members):
                return self._short_of(number, left_of(batches, used), wanted[batch.role], start, total)
        failed: int | None = None
        for number, batch in enumerate(batches):
            asked = batch.members[used[number] : used[number] + rest]
            done = self._put(batch, asked)
            used[number] += done
            rest -= done
            if done < len(asked) and failed is None:
                failed = number
        if failed is None or not rest:
            return None
        return self._short_of(failed, left_of(batches, used), rest, start, total)

    def _put(self, batch: PodBatch, members: list[PodRecord], depth: int = 0) -> int:
        """Places as many of the members as fit and are allowed, in as few domains of each level below as possible;
        how many."""
        session, done = self._session, 0
        if depth < len(self._levels) and len(members) > 1:
            level, spent = self._levels[depth], set[int]()
            while done < len(members) and session.quota_check.room(batch.charge_path, batch.pod_class.footprint):
                number = session.topology_domains.part(level, batch.pod_class, len(members) - done, spent)
                if not number:
                    break
                spent.add(number)
                with session.placer.within(level.rows(number)):
                    done += self._put(batch, members[done:], depth + 1)
        return done + self._put_anywhere(batch, members[done:])

    def _put_anywhere(self, batch: PodBatch, members: list[PodRecord]) -> int:
        session, pod_class, done, buckets = self._session, batch.pod_class, 0, self._placement.buckets
        wanted = min(len(members), session.quota_check.room(batch.charge_path, pod_class.footprint))
        while done < wanted:
            if buckets is None:
                rows = session.placer.place(pod_class, wanted - done)
            else:
                # The nodes of the members that are placed so far count.
                with session.placer.with_extra_score(buckets.scores(members[done], self._placement.placed)):
                    rows = session.placer.place(pod_class, wanted - done)
            if not rows:
                break
            chosen = members[done : done + len(rows)]
            self._transaction.place(pod_class, chosen, rows)
            self._placement.placed.extend(zip(chosen, rows, strict=True))
            done += len(rows)
        return done

    def _short_of(
        self, failed: int, left: Sequence[tuple[PodBatch, int]], missing: int, start: int, need: int
    ) -> GangFault:
        """Why so many are missing: the batch with that number in `left`, which tells how many of each are without a
        node, was the first of which no more could be placed."""
        batch, there = left[failed]
        session, pod_class, place = self._session, batch.pod_class, self._place
        mine = self._placement.placed[start:]
        placed = len(mine)
        if not session.quota_check.room(batch.charge_path, pod_class.footprint):
            count = min(missing, there)
            # So many may be more than the cluster has, of which accounts do not speak; then it is one too many.
            over_quota, charge_path = session.quota_check.over_quota, batch.charge_path
            excess = over_quota(charge_path, pod_class.footprint, count, placed, need, place)
            excess = excess or over_quota(charge_path, pod_class.footprint, 1, placed, need, place)
            assert excess is not None
            if not (excess.computed and not session.placer.fits(pod_class)):
                tried = [record.footprint for record, _ in self._placement.placed]
                others = [each for number, each in enumerate(left) if number != failed]
                return of_whole_gang(session, excess, pod_class, count, tried, others, missing - count)
        nodes = session.state.nodes
        alike = [row for record, row in self._placement.placed if record.pod_class is pod_class]
        return shortage(session.plugin_runtime, nodes, pod_class, placed, need, missing, place, self._spot, alike)


def _choice(session: Session, placement: GangPlacement) -> FallbackPlacement:
    need, batches = placement.need, placement.rest.in_order(session, hardest_first)
    return FallbackPlacement(need.total, need.roles, batches)

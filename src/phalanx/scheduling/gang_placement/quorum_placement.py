"""Putting quorums together: all members that the gangs of a bundle need, in one transaction, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from phalanx.cluster.accounts import ChargePath, add_amounts
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.network.topology import Level
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.resource_space import FloatArray
from phalanx.cluster.transaction import Transaction
from phalanx.model.resources import PODS, Requests, requests_of
from phalanx.scheduling.diagnosis.shortage import Gap, Shortage, Spot, shortage
from phalanx.scheduling.framework.colocation import ColocationGroups
from phalanx.scheduling.gang_placement.affinity_candidates import affinity_candidates
from phalanx.scheduling.gang_placement.domain_trials import Facts, try_domains
from phalanx.scheduling.gang_placement.fallback import FallbackPlacement, fallback_placement
from phalanx.scheduling.gang_placement.pod_sets import (
    Order,
    PodBatch,
    batches_of,
    beyond_all_nodes,
    hardest_first,
    leanest_first,
    least_amount,
    left_of,
)
from phalanx.scheduling.gangs.quorum import QuorumRequirement, counted
from phalanx.scheduling.gangs.subgroups import Subgroup, part_key, subgroups_of
from phalanx.scheduling.placement.affinity_order import leaders_first
from phalanx.scheduling.placement.topology_domains import Area, Domain, DomainDemand, area_of
from phalanx.scheduling.queue.signatures import (
    GangSignature,
    QuorumSignature,
    SubgroupSignature,
    gang_signature,
    member_signatures,
)
from phalanx.scheduling.quota.limits import OverQuota
from phalanx.scheduling.session.session import Session


class PodSet:
    """Members who are placed together, and the area in which they have to be."""

    __slots__ = ("_orders", "area", "batches", "part", "total")

    def __init__(
        self, batches: list[PodBatch], total: int = 0, area: Area | None = None, part: Subgroup | None = None
    ) -> None:
        self.batches = batches
        self.total = total
        self.area = area
        self.part = part
        self._orders: dict[Order, list[PodBatch]] = {}

    @property
    def uids(self) -> set[str]:
        return {member.pod.uid for batch in self.batches for member in batch.members}

    def in_order(self, session: Session, order: Order) -> list[PodBatch]:
        """The batches in an order; found once, as tries take and give back room but hardly change who may go
        where."""
        found = self._orders.get(order)
        if found is None:
            found = self._orders[order] = order(session, self.batches)
        return found


class GangPlacement:
    """One gang's part in an assembly: what it needs now, and who may take part.

    `rest` are the members that are in no subgroup, `parts` the subgroups that could start, those first that have
    started already, `extras` further members of subgroups that are whole.
    """

    __slots__ = ("area", "extras", "gang", "huddles", "need", "parts", "placed", "rest")

    def __init__(self, session: Session, gang: GangRecord, least: int | None = None) -> None:
        """`least` is the lowest priority of members that may take part (None: all)."""
        self.gang = gang
        self.need: QuorumRequirement = session.requirement(gang)
        self.rest = PodSet([])
        self.parts: list[PodSet] = []
        self.extras: list[PodSet] = []
        self.placed: list[tuple[PodRecord, int]] = []
        self.area: Area | None = None
        self.huddles: ColocationGroups | None = None
        if not self.need.satisfied:
            noun = gang.spec
            assert noun is not None
            self.area = area_of(noun.topology, gang.members.values() if noun.topology is not None else ())
            # What is half bound is finished whatever its accounts say meanwhile: nobody pays for a repair.
            roles, charged = {role for role, _ in self.need.roles}, not self.need.repair
            members = session.pending_in_order(gang) + (gang.starting_placeholders if gang.placeholders else [])
            if least is not None:
                members = [member for member in members if member.pod.priority >= least]
            self.huddles = session.colocation_groups(gang)
            if not noun.subgroups:
                self.rest = PodSet(batches_of(members, roles, charged, self.huddles))
                return
            policy, repair = noun.match_policy, self.need.repair
            found = subgroups_of(noun, gang.members.values(), lambda each: counted(each, policy, repair))
            waiting: dict[object, list[PodRecord]] = {}
            for member in members:
                waiting.setdefault(part_key(noun.subgroups, member), []).append(member)
            self.rest = PodSet(batches_of(waiting.get(None, []), roles, charged, self.huddles))
            for key, part in sorted(found.items(), key=lambda entry: (not entry[1].there, entry[0])):
                if part.can_start or (part.waiting and not part.missing):
                    area = area_of(part.rule.topology, part.members)
                    batches = batches_of(waiting[key], roles, charged, self.huddles)
                    lots = self.parts if part.missing else self.extras
                    lots.append(PodSet(batches, part.missing or part.waiting, area, part))
            self._enlarge()

    def _enlarge(self) -> None:
        """Where whole subgroups of their size are not enough for the quorum, more of their members start."""
        there = sum(len(batch.members) for batch in self.rest.batches)
        short = self.need.total - there - sum(lot.total for lot in (*self.parts, *self.extras))
        for lot in self.parts:
            more = min(max(0, short), sum(len(batch.members) for batch in lot.batches) - lot.total)
            lot.total += more
            short -= more

    @property
    def batches(self) -> list[PodBatch]:
        """All who may take part."""
        return [batch for lot in (self.rest, *self.parts, *self.extras) for batch in lot.batches]

    @property
    def everybody(self) -> dict[ClassRecord, int] | None:
        """How many of each class wait, where they are more than are needed."""
        found: dict[ClassRecord, int] = {}
        for batch in self.batches:
            found[batch.cls] = found.get(batch.cls, 0) + len(batch.members)
        return found if sum(found.values()) > self.need.total else None

    def near_enough(self, session: Session) -> bool:
        """Whether those who are placed keep to their domains, and all subgroups that must start are whole."""
        if self.area is not None and not session.topology_domains.holds(self.area, [row for _, row in self.placed]):
            return False
        started: dict[int, int] = {}
        for lot in self.parts:
            assert lot.part is not None
            rows = [row for record, row in self.placed if record.pod.uid in lot.uids]
            if lot.area is not None and rows and not session.topology_domains.holds(lot.area, rows):
                return False
            if 0 < len(rows) < lot.total:
                return False
            number = lot.part.key[0]
            started[number] = started.get(number, 0) + (len(rows) >= lot.total)
        return all(started.get(number, 0) >= least for number, least in enumerate(self.need.subgroups))

    def demand(self) -> GangSignature:
        need = self.need
        if need.satisfied:
            return gang_signature(need, (), ())
        found = gang_signature(need, _kinds(self.batches), _reserve(self.gang))
        if self.area is None and not (self.parts or self.extras):
            return found
        return msgspec.structs.replace(
            found,
            area=self.area,
            parts=tuple(subgroup_signature(lot) for lot in (*self.parts, *self.extras)),
            subgroups=need.subgroups,
        )


def subgroup_signature(lot: PodSet) -> SubgroupSignature:
    assert lot.part is not None
    portions = member_signatures(_kinds(lot.batches), set(), lot.total)
    return SubgroupSignature(lot.part.key[0], lot.total, portions, lot.area)


def signature_of(calls: list[GangPlacement]) -> QuorumSignature:
    return QuorumSignature(tuple(call.demand() for call in calls))


def copies_of(
    session: Session, calls: list[GangPlacement], demand: QuorumSignature
) -> Iterator[tuple[ChargePath, ClassRecord, int]]:
    """How many pods of which class who pays for, if the first of the portions will do."""
    for call, part in zip(calls, demand.gangs, strict=True):
        left = part.total
        for portion in part.members:
            count = min(left, portion.count)
            if count > 0:
                # Nobody's limits hold a repair back, but others go for it on its own queue's grounds only.
                payer = portion.payer if portion.payer is not None else session.payer(call.gang)
                left -= count
                yield payer, portion.cls, count


def charges_of(
    session: Session, calls: list[GangPlacement], demand: QuorumSignature
) -> dict[ChargePath, dict[str, int]]:
    """What each payer would be charged."""
    charges: dict[ChargePath, dict[str, int]] = {}
    for payer, cls, count in copies_of(session, calls, demand):
        add_amounts(charges.setdefault(payer, {}), cls.footprint.amounts, count)
    return charges


def place_gangs(
    session: Session,
    calls: list[GangPlacement],
    demand: QuorumSignature,
    transaction: Transaction,
    spot: Spot | None = None,
) -> Facts | Gap | None:
    """Places every quorum within the transaction (`placed` of each call tells who and where); or places nothing,
    and says why: with `spot`, why there.

    The first way takes the hardest members first. Where accounts are in the way, a second one takes those that
    cost them least.
    """
    for place, part in enumerate(demand.gangs):
        gaps = session.shortfall_in_sum(part.reserve, afresh=transaction.explores) if part.reserve else ()
        if gaps:
            return Gap(gaps, place)
    facts = _all_in_turn(session, transaction, calls, demand, hardest_first, spot)
    if isinstance(facts, OverQuota) and len({batch.cls for call in calls for batch in call.batches}) > 1:
        facts = facts if _all_in_turn(session, transaction, calls, demand, leanest_first, spot) else None
    if isinstance(facts, Shortage) and _gathered(session, transaction, calls, demand, spot):
        return None
    if facts is None or any(call.area is not None or call.parts or call.extras for call in calls):
        return facts
    found = fallback_placement(session, transaction, [_choice(session, call) for call in calls])
    if found is None:
        return facts
    for call, placed in zip(calls, found, strict=True):
        call.placed = placed
    return None


def _gathered(
    session: Session,
    transaction: Transaction,
    calls: list[GangPlacement],
    demand: QuorumSignature,
    spot: Spot | None,
) -> bool:
    """Whether all can be placed in another domain than where the first of those who have to be near to each other
    would go by itself."""
    wanted: dict[ClassRecord, int] = {}
    for part in demand.gangs:
        for cls in {portion.cls for portion in part.members}:
            wanted[cls] = wanted.get(cls, 0) + part.forced_members(cls)
    for rows in affinity_candidates(session, wanted.items()):
        with session.placer.within(rows):
            if _all_in_turn(session, transaction, calls, demand, hardest_first, spot) is None:
                return True
    return False


def _all_in_turn(
    session: Session,
    transaction: Transaction,
    calls: list[GangPlacement],
    demand: QuorumSignature,
    order: Order,
    spot: Spot | None,
) -> Facts | None:
    start = transaction.mark()
    # Gangs of a bundle may have to be near to each other as well.
    for place, call in leaders_first(
        list(enumerate(calls)), lambda entry: {batch.cls for batch in entry[1].batches}
    ):
        facts = _Turn(session, transaction, call, demand.gangs[place], place, order, spot).run()
        if facts is not None:
            transaction.back_to(start)
            return facts
    return None


class _Turn:
    """One gang's turn in one way of putting an assembly together."""

    def __init__(
        self,
        session: Session,
        transaction: Transaction,
        call: GangPlacement,
        demand: GangSignature,
        place: int,
        order: Order,
        spot: Spot | None,
    ) -> None:
        self._session = session
        self._transaction = transaction
        self._call = call
        self._demand = demand
        self._place = place
        self._order = order
        self._spot = spot
        self._levels: tuple[Level, ...] = ()

    def run(self) -> Facts | None:
        """Places the gang's quorum in the smallest domain that takes it; what is in the way leaves its traces."""
        call = self._call
        call.placed = []
        if call.need.satisfied:
            return None
        attempt = self._parts if call.parts or call.extras else self._plain
        if call.area is None:
            return attempt()
        choice = _choice(self._session, call) if not (call.parts or call.extras) else None
        return self._near(call.area, self._demand, choice, attempt)

    def _near(
        self, area: Area, want: DomainDemand, choice: FallbackPlacement | None, attempt: Callable[[], Facts | None]
    ) -> Facts | None:
        """Makes the attempt within one domain after the other, until it succeeds; `choice` is set if members may be
        placed in other ways as well."""
        call, before = self._call, len(self._call.placed)

        def on_the_spot(domain: Domain, spot: Spot | None) -> Facts | None:
            outer = self._spot, self._levels
            self._spot, self._levels = spot or self._spot, self._session.topology_domains.finer(area, domain)
            facts = attempt()
            self._spot, self._levels = outer
            return facts

        def undone() -> None:
            del call.placed[before:]

        def otherwise() -> bool:
            found = fallback_placement(self._session, self._transaction, [choice]) if choice is not None else None
            if found is not None:
                call.placed += found[0]
            return found is not None

        everybody = call.everybody if want is self._demand else None
        return try_domains(
            self._session, self._transaction, area, want, on_the_spot, undone, otherwise, self._place, everybody
        )

    def _plain(self) -> Facts | None:
        need = self._call.need
        return self._fill(self._call.rest, dict(need.roles), need.total)

    def _parts(self) -> Facts | None:
        """Subgroups that must start, then members of none, then further subgroups until the quorum holds."""
        call, roles, lacking = self._call, dict(self._call.need.roles), list(self._call.need.subgroups)
        left, first = list(call.parts), None
        for needed in (True, False):
            if not needed and (facts := self._loose(roles)) is not None:
                first = first or facts
            for lot in call.extras if not needed and self._wanting(roles) else ():
                if (facts := self._extra(lot)) is not None:
                    first = first or facts
            for lot in list(left):
                assert lot.part is not None
                number = lot.part.key[0]
                if not (lacking[number] if needed else self._wanting(roles)):
                    continue
                facts = self._part(lot)
                if facts is None:
                    left.remove(lot)
                    lacking[number] = max(0, lacking[number] - 1)
                else:
                    first = first or facts
            if any(lacking):
                return first or self._too_few()
        return (first or self._too_few()) if self._wanting(roles) else None

    def _wanting(self, roles: dict[str, int]) -> bool:
        """Whether members are missing for the quorum, in all or of a role."""
        placed = self._call.placed
        counts = {role: sum(1 for record, _ in placed if record.pod.role == role) for role in roles}
        return len(placed) < self._call.need.total or any(counts[role] < least for role, least in roles.items())

    def _loose(self, roles: dict[str, int]) -> Facts | None:
        """Places those who are in no subgroup, as many as are needed."""
        call = self._call
        there: dict[str, int] = {}
        for batch in call.rest.batches:
            there[batch.role] = there.get(batch.role, 0) + len(batch.members)
        done = {role: sum(1 for record, _ in call.placed if record.pod.role == role) for role in roles}
        asked = {role: min(least - done[role], there.get(role, 0)) for role, least in roles.items()}
        asked = {role: least for role, least in asked.items() if least > 0}
        rest = min(call.need.total - len(call.placed), sum(there.values()))
        total = max(rest, sum(asked.values()))
        return self._fill(call.rest, asked, total) if total > 0 else None

    def _part(self, lot: PodSet) -> Facts | None:
        """Places a subgroup whole, or nothing of it."""
        assert lot.part is not None
        mark, before = self._transaction.mark(), len(self._call.placed)

        def attempt() -> Facts | None:
            return self._fill(lot, {}, lot.total)

        if lot.area is None:
            facts = attempt()
        else:
            choice = FallbackPlacement(lot.total, (), lot.in_order(self._session, hardest_first))
            facts = self._near(lot.area, subgroup_signature(lot), choice, attempt)
        if facts is None:
            return None
        self._transaction.back_to(mark)
        del self._call.placed[before:]
        if isinstance(facts, Shortage):
            return msgspec.structs.replace(facts, part=lot.part.title)
        return facts

    def _extra(self, lot: PodSet) -> Facts | None:
        """Places as many of a whole subgroup's further members as are needed and fit."""
        asked = min(lot.total, self._call.need.total - len(self._call.placed))
        before = len(self._call.placed)

        def attempt() -> Facts | None:
            facts = self._fill(lot, {}, max(1, asked))
            return facts if len(self._call.placed) == before else None

        if lot.area is None:
            return attempt()
        one = msgspec.structs.replace(subgroup_signature(lot), total=1)
        return self._near(lot.area, one, None, attempt)

    def _too_few(self) -> Facts:
        """No subgroup failed for lack of room, yet those that there are do not make a quorum."""
        call = self._call
        cls = call.batches[0].cls
        found = shortage(self._session.pipeline, self._session.state.nodes, cls, len(call.placed), call.need.total)
        return msgspec.structs.replace(found, culprit=self._place)

    def _fill(self, lot: PodSet, roles: dict[str, int], total: int) -> Facts | None:
        """Places members of a lot, batch by batch within a priority: first what roles ask, then the rest.

        A batch of which no more fits is passed over: another member may fill the quorum in its stead.
        """
        batches = lot.in_order(self._session, self._order)
        used = [0] * len(batches)
        rest, wanted = total - sum(roles.values()), dict(roles)
        start = len(self._call.placed)
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
            while done < len(members) and session.quota_check.room(batch.payer, batch.cls.footprint):
                number = session.topology_domains.part(level, batch.cls, len(members) - done, spent)
                if not number:
                    break
                spent.add(number)
                with session.placer.within(level.rows(number)):
                    done += self._put(batch, members[done:], depth + 1)
        return done + self._put_anywhere(batch, members[done:])

    def _put_anywhere(self, batch: PodBatch, members: list[PodRecord]) -> int:
        session, cls, done = self._session, batch.cls, 0
        wanted = min(len(members), session.quota_check.room(batch.payer, cls.footprint))
        while done < wanted:
            with session.placer.with_extra_score(self._leaning(members[done])):
                rows = session.placer.place(cls, wanted - done)
            if not rows:
                break
            chosen = members[done : done + len(rows)]
            self._transaction.place(cls, chosen, rows)
            self._call.placed.extend(zip(chosen, rows, strict=True))
            done += len(rows)
        return done

    def _leaning(self, member: PodRecord) -> FloatArray | None:
        """How good each row is for the member because of who is there."""
        huddles = self._call.huddles
        return huddles.scores(member, self._call.placed) if huddles is not None else None

    def _short_of(
        self, failed: int, left: Sequence[tuple[PodBatch, int]], missing: int, start: int, need: int
    ) -> Facts:
        """Why so many are missing: the batch with that number in `left`, which tells how many of each are without a
        node, was the first of which no more could be placed."""
        batch, there = left[failed]
        session, cls, place = self._session, batch.cls, self._place
        mine = self._call.placed[start:]
        placed = len(mine)
        if not session.quota_check.room(batch.payer, cls.footprint):
            count = min(missing, there)
            # So many may be more than the cluster has, of which accounts do not speak; then it is one too many.
            excess = session.quota_check.over_quota(batch.payer, cls.footprint, count, placed, need, place)
            excess = excess or session.quota_check.over_quota(batch.payer, cls.footprint, 1, placed, need, place)
            assert excess is not None
            if not (excess.computed and not session.placer.fits(cls)):
                # The gang's own members that were tried are part of what it wants, not of what is in use.
                own = sum(record.footprint.amounts.get(excess.resource, 0) for record, _ in self._call.placed)
                others = [each for number, each in enumerate(left) if number != failed]
                wanted = (
                    excess.wanted + own + least_amount(others, missing - count, excess.account, excess.resource)
                )
                # A higher ceiling does not help who asks for more than there is.
                used, total = excess.used - own, session.totals().get(excess.resource, (0, 0))[0]
                change = excess.change if used + wanted <= total else ""
                tried = [*(record.footprint for record, _ in self._call.placed), *[cls.footprint] * count]
                beyond = beyond_all_nodes(session, excess.resource, tried, others, missing - count)
                return msgspec.structs.replace(excess, used=used, wanted=wanted, change=change, beyond=beyond)
        nodes = session.state.nodes
        alike = [row for record, row in self._call.placed if record.pod_class is cls]
        return shortage(session.pipeline, nodes, cls, placed, need, missing, place, self._spot, alike)


def _choice(session: Session, call: GangPlacement) -> FallbackPlacement:
    return FallbackPlacement(call.need.total, call.need.roles, call.rest.in_order(session, hardest_first))


def _kinds(batches: list[PodBatch]) -> Iterator[tuple[tuple[ClassRecord, str, ChargePath | None], int]]:
    return (((batch.cls, batch.role, batch.payer), len(batch.members)) for batch in batches)


def _reserve(gang: GangRecord) -> Requests:
    """What minResources and a slot per needed member ask to be idle, the gang's own members counted as idle.

    Only for groups without an admission of their own: those were counted when they were admitted.
    """
    noun = gang.spec
    assert noun is not None
    if noun.admission or not noun.min_resources:
        return ()
    wanted = dict(noun.min_resources)
    wanted.setdefault(PODS, noun.min_member)
    for member in gang.members.values():
        if member.row >= 0:
            for name, amount in (*member.pod.usage, (PODS, 1)):
                wanted[name] = wanted.get(name, 0) - amount
    return requests_of({name: amount for name, amount in wanted.items() if amount > 0})

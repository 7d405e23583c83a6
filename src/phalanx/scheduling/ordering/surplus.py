"""Members above the minimum: best effort, in fair turns, after everyone's quorum."""

from __future__ import annotations

from itertools import takewhile

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.model.pod import ACTIVE, MemberState, bound_at
from phalanx.model.verdict import gang_object
from phalanx.scheduling.diagnosis.verdicts import scale_up_delayed, subgroup_too_small, unreadable
from phalanx.scheduling.gang_placement.nominated_placement import place_nominated, wait_for_victims
from phalanx.scheduling.gang_placement.surplus_domains import (
    SurplusDomain,
    SurplusRefusal,
    kind_of,
    place_in_domain,
    surplus_domain,
)
from phalanx.scheduling.queue.demands import (
    PodDemand,
    ScaleUpDelayed,
    SurplusDemand,
)
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import FitError, Rank
from phalanx.scheduling.session.session import Session


class SurplusTurn:
    """One gang's surplus members in order; `refused` are the kinds that have no room."""

    __slots__ = ("gang", "members", "near", "refused", "together", "unit")

    def __init__(self, session: Session, unit: QueuedUnit, gang: GangRecord) -> None:
        self.unit = unit
        self.gang = gang
        self.members: list[PodRecord] = []
        self.near: SurplusDomain | None = surplus_domain(session.state.gangs.composites, gang)
        self.refused: dict[PodDemand, None] = {}
        # Members of Kubernetes' own groups follow into their domain at once, before somebody else takes it.
        spec = gang.spec
        topology = spec.topology if spec is not None and spec.rules.by_native_rules else None
        self.together = topology is not None and topology.hard
        # Somebody for whom room is held goes first.
        for member in sorted(session.pending_in_order(gang), key=lambda member: member.nomination is None):
            if member.pod.problem:
                session.decisions.set_pod_verdict(member, unreadable(member))
                session.decisions.withdraw_nominations([member])
            else:
                self.members.append(member)

    def run_length(self) -> int:
        """How many members at the head are of one kind."""
        if self.near is not None:
            return 1
        head = self.members[0]
        same = takewhile(
            lambda each: each.pod_class is head.pod_class and each.charge_path is head.charge_path, self.members
        )
        return sum(1 for _ in same)

    def rank(self, session: Session) -> Rank:
        """As units are ordered, but of one gang and now; then who has the fewest above its minimum, so that none
        takes it all.

        The turn depends on what the gangs have, not on how often they were asked: a cycle that is cut short goes
        on where it was.
        """
        assert self.gang.spec is not None
        return (*session.rank(self.gang), _extra(self.gang), self.gang.spec.created, self.gang.key)


class SurplusTurns:
    """The turns of gangs whose quorum holds, by the unit that they belong to."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._turns: dict[QueuedUnit, list[SurplusTurn]] = {}

    def of(self, unit: QueuedUnit) -> list[SurplusTurn]:
        """The turns of a unit that is content; those without members left have nothing to wait for."""
        content = [gang for gang in unit.gangs if gang.pending and _is_content(self._session, unit, gang)]
        if any(gang.spec is not None and gang.spec.scale_up_delay for gang in content):
            content = [gang for gang in content if not self._delay(unit, gang)]
        turns = self._turns[unit] = [SurplusTurn(self._session, unit, gang) for gang in content]
        self._finish_unit(unit)
        return [turn for turn in turns if turn.members]

    def _delay(self, unit: QueuedUnit, gang: GangRecord) -> bool:
        """Whether the gang is to stay as it is for now; its members are told until when."""
        session, until = self._session, grows_at(gang, int(self._session.now))
        if until <= session.now or any(member.nomination is not None for member in gang.pending.values()):
            return False
        verdict = scale_up_delayed(gang.title, gang.active, until, (gang_object(gang.key),))
        for member in gang.pending.values():
            session.decisions.set_pod_verdict(member, verdict)
        session.mark_attempted(unit)
        session.set_unschedulable(unit, ScaleUpDelayed(unit.key), FitError(None, session.state.version))
        session.queue.recheck_at(unit, until)
        return True

    def take(self, turn: SurplusTurn, most: int) -> None:
        """Places the gang's next member, or a run of at most so many that are equal."""
        session = self._session
        head = turn.members[0]
        if head.nomination is not None and (turn.near is None or turn.near.starts_singly(head)):
            self._take_promised(turn, head)
            return
        session.decisions.withdraw_nominations([head])
        if turn.near is not None:
            self._take_near(turn, turn.near)
            return
        kind = PodDemand(head.pod_class, head.charge_path)
        rows: list[int] = []
        if session.fit_errors.known(kind) is None:
            wanted = min(
                turn.run_length() if most > 1 else 1,
                most,
                session.quota_check.room(kind.charge_path, head.pod_class.footprint),
            )
            buckets = session.task_buckets(turn.gang) if wanted else None
            with session.placer.with_extra_score(buckets.scores(head, ()) if buckets is not None else None):
                rows = session.placer.place(head.pod_class, wanted) if wanted else []
        if rows:
            transaction = session.state.transaction(charging=False)
            transaction.place(head.pod_class, turn.members[: len(rows)], rows)
            for record, row in transaction.commit():
                session.decisions.bind_member(record, row, turn.gang)
            turn.members = turn.members[len(rows) :]
        else:
            session.fit_errors.record(kind, *session.fit_errors.facts(kind))
            turn.refused[kind] = None
            turn.members = [
                each
                for each in turn.members
                if (each.pod_class, each.charge_path) != (kind.pod_class, kind.charge_path)
            ]
        if not turn.members:
            self._finish_unit(turn.unit)

    def _take_near(self, turn: SurplusTurn, rules: SurplusDomain) -> None:
        """Places the next member near the others, and with it all who start with it."""
        session, head = self._session, turn.members[0]
        group = rules.next(turn.members)
        kind, part = group.kind, rules.part(head)
        if part is not None and len(group.members) < part.missing:
            for member in group.alike:
                session.decisions.set_pod_verdict(member, subgroup_too_small(turn.gang, part))
            turn.members = [each for each in turn.members if each not in group.alike]
        elif session.fit_errors.known(kind) is None:
            transaction = session.state.transaction()
            placed = place_in_domain(session, transaction, group)
            if placed:
                transaction.commit()
                for record, row in placed:
                    session.decisions.bind_member(record, row, turn.gang)
                    turn.members.remove(record)
                turn.near = surplus_domain(session.state.gangs.composites, turn.gang)
            else:
                transaction.rollback()
                session.fit_errors.record(kind, *session.fit_errors.facts(kind))
        if session.fit_errors.known(kind) is not None:
            turn.refused[kind] = None
            turn.members = [each for each in turn.members if each not in group.alike]
        if not turn.members:
            self._finish_unit(turn.unit)

    def _take_promised(self, turn: SurplusTurn, member: PodRecord) -> None:
        """Places a member for which room is held, there or elsewhere; or nobody until others have left."""
        session = self._session
        kind = kind_of(session, member)
        if place_nominated(session, member, kind, turn.gang):
            turn.members.remove(member)
        elif wait_for_victims(session, turn.unit, kind):
            turn.members.clear()
        else:
            # What was held for it is of no use: it waits like all others.
            session.decisions.withdraw_nominations([member])
        if not turn.members:
            self._finish_unit(turn.unit)

    def _finish_unit(self, unit: QueuedUnit) -> None:
        """When nobody of a unit is left to place: tells those without room why, and notes what the unit waits
        for."""
        session, turns = self._session, self._turns[unit]
        if any(turn.members for turn in turns):
            return
        session.mark_attempted(unit)
        refused = {kind for turn in turns for kind in turn.refused}
        if not refused:
            return
        demand = SurplusDemand(tuple(sorted(refused, key=_place)))
        fit_error = surplus_fit_error(session, demand)
        known, found = session.unschedulable.get(unit.key, (None, fit_error))
        reason = known.joined(demand) if known is not None else demand
        if reason is not known:
            session.set_unschedulable(unit, reason, fit_error if reason is demand else found)
            session.decisions.explain(unit, fit_error.facts)


def grows_at(gang: GangRecord, now: int) -> int:
    """From when on (seconds since the epoch) further members may join, by when the last one has.

    A gang of which nobody runs yet is starting: whoever fits starts with it.
    """
    delay = gang.spec.scale_up_delay if gang.spec is not None else 0
    if not delay or not gang.count(MemberState.RUNNING):
        return 0
    there = (member for member in gang.members.values() if member.state in ACTIVE)
    return delay + max(now if each.state is MemberState.ASSUMED else bound_at(each.pod) for each in there)


def _is_content(session: Session, unit: QueuedUnit, gang: GangRecord) -> bool:
    """Return whether the gang has its quorum; in a composite some gangs may still wait for theirs."""
    return unit.starts_whole or session.requirement(gang).satisfied


def surplus_fit_error(session: Session, demand: SurplusDemand, afresh: bool = False) -> FitError:
    """Why none of the kinds has room: a reason for each."""
    found = {kind: session.fit_errors.facts(kind, afresh) for kind in demand.kinds}
    facts = SurplusRefusal({kind: reason for kind, (reason, _) in found.items()})
    return session.fit_errors.record(demand, facts, min(version for _, version in found.values()))


def _place(kind: PodDemand) -> tuple[int, object, str]:
    return kind.pod_class.number, kind.charge_path.key if kind.charge_path is not None else "", repr(kind.area)


def _extra(gang: GangRecord) -> int:
    assert gang.spec is not None
    return gang.active - gang.spec.min_member

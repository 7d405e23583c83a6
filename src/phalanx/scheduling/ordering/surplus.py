"""Turns of surplus members: best effort, in fair order, after all quorums."""

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
    """Surplus members of one gang in order; `refused` are the kinds without room."""

    __slots__ = ("gang", "members", "near", "refused", "together", "unit")

    def __init__(self, session: Session, unit: QueuedUnit, gang: GangRecord) -> None:
        self.unit = unit
        self.gang = gang
        self.members: list[PodRecord] = []
        self.near: SurplusDomain | None = surplus_domain(session.state.gangs.composites, gang)
        self.refused: dict[PodDemand, None] = {}
        # Members of Kubernetes' native groups are placed in their domain at once, before other pods use it.
        spec = gang.spec
        topology = spec.topology if spec is not None and spec.rules.by_native_rules else None
        self.together = topology is not None and topology.hard
        # Nominated members come first.
        for member in sorted(session.pending_in_order(gang), key=lambda member: member.nomination is None):
            if member.pod.problem:
                session.decisions.set_pod_verdict(member, unreadable(member))
                session.decisions.withdraw_nominations([member])
            else:
                self.members.append(member)

    def run_length(self) -> int:
        """Return the number of members of one kind at the head."""
        if self.near is not None:
            return 1
        head = self.members[0]
        same = takewhile(
            lambda member: member.pod_class is head.pod_class and member.charge_path is head.charge_path,
            self.members,
        )
        return sum(1 for _ in same)

    def rank(self, session: Session) -> Rank:
        """Return the rank of the gang now, then by the number of members above its minimum, so that gangs share the
        room.

        The rank depends on present members and not on earlier turns: an interrupted cycle continues where it was.
        """
        assert self.gang.spec is not None
        return (*session.rank(self.gang), _extra(self.gang), self.gang.spec.created, self.gang.key)


class SurplusTurns:
    """Surplus turns of gangs with a quorum, by unit."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._turns: dict[QueuedUnit, list[SurplusTurn]] = {}

    def of(self, unit: QueuedUnit) -> list[SurplusTurn]:
        """Return the surplus turns of a satisfied unit that have members."""
        satisfied = [gang for gang in unit.gangs if gang.pending and _has_quorum(self._session, unit, gang)]
        if any(gang.spec is not None and gang.spec.scale_up_delay for gang in satisfied):
            satisfied = [gang for gang in satisfied if not self._delay(unit, gang)]
        turns = self._turns[unit] = [SurplusTurn(self._session, unit, gang) for gang in satisfied]
        self._finish_unit(unit)
        return [turn for turn in turns if turn.members]

    def _delay(self, unit: QueuedUnit, gang: GangRecord) -> bool:
        """Return whether the gang's scale-up delay is running; if so, set the verdict of its members."""
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
        """Place the gang's next member, or a run of at most `most` equal members."""
        session = self._session
        head = turn.members[0]
        if head.nomination is not None and (turn.near is None or turn.near.starts_singly(head)):
            self._place_nominated_member(turn, head)
            return
        session.decisions.withdraw_nominations([head], held=True)
        if turn.near is not None:
            self._place_in_domain(turn, turn.near)
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
                member
                for member in turn.members
                if (member.pod_class, member.charge_path) != (kind.pod_class, kind.charge_path)
            ]
        if not turn.members:
            self._finish_unit(turn.unit)

    def _place_in_domain(self, turn: SurplusTurn, rules: SurplusDomain) -> None:
        """Place the next member in the domain of its gang, with all members that start with it."""
        session, head = self._session, turn.members[0]
        group = rules.next(turn.members)
        kind, part = group.kind, rules.part(head)
        if part is not None and len(group.members) < part.missing:
            for member in group.alike:
                session.decisions.set_pod_verdict(member, subgroup_too_small(turn.gang, part))
            turn.members = [member for member in turn.members if member not in group.alike]
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
            turn.members = [member for member in turn.members if member not in group.alike]
        if not turn.members:
            self._finish_unit(turn.unit)

    def _place_nominated_member(self, turn: SurplusTurn, member: PodRecord) -> None:
        """Place a nominated member at its nomination or elsewhere; else wait for its victims."""
        session = self._session
        kind = kind_of(session, member)
        if place_nominated(session, member, kind, turn.gang):
            turn.members.remove(member)
        elif wait_for_victims(session, turn.unit, kind):
            turn.members.clear()
        else:
            # The nomination is useless: the member waits like all others.
            session.decisions.withdraw_nominations([member], held=True)
        if not turn.members:
            self._finish_unit(turn.unit)

    def _finish_unit(self, unit: QueuedUnit) -> None:
        """Finish a unit without members to place: explain refused members, and mark the unit unschedulable."""
        session, turns = self._session, self._turns[unit]
        if any(turn.members for turn in turns):
            return
        session.mark_attempted(unit)
        refused = {kind for turn in turns for kind in turn.refused}
        if not refused:
            return
        demand = SurplusDemand(tuple(sorted(refused, key=_place)))
        fit_error = surplus_fit_error(session, demand)
        known, known_error = session.unschedulable.get(unit.key, (None, fit_error))
        reason = known.joined(demand) if known is not None else demand
        if reason is not known:
            session.set_unschedulable(unit, reason, fit_error if reason is demand else known_error)
            session.decisions.explain(unit, fit_error.facts)


def grows_at(gang: GangRecord, now: int) -> int:
    """Return the time (seconds since the epoch) from which further members can be placed: the delay after the last
    one.

    A gang without running members is starting: all members that fit start with it.
    """
    delay = gang.spec.scale_up_delay if gang.spec is not None else 0
    if not delay or not gang.count(MemberState.RUNNING):
        return 0
    active_members = (member for member in gang.members.values() if member.state in ACTIVE)
    return delay + max(
        now if member.state is MemberState.ASSUMED else bound_at(member.pod) for member in active_members
    )


def _has_quorum(session: Session, unit: QueuedUnit, gang: GangRecord) -> bool:
    """Return whether the gang has its quorum; in a composite some gangs may still wait for theirs."""
    return unit.starts_whole or session.requirement(gang).satisfied


def surplus_fit_error(session: Session, demand: SurplusDemand, afresh: bool = False) -> FitError:
    """Return the fit error of all kinds, with a reason for each."""
    facts_of = {kind: session.fit_errors.facts(kind, afresh) for kind in demand.kinds}
    facts = SurplusRefusal({kind: reason for kind, (reason, _) in facts_of.items()})
    return session.fit_errors.record(demand, facts, min(version for _, version in facts_of.values()))


def _place(kind: PodDemand) -> tuple[int, object, str]:
    return kind.pod_class.number, kind.charge_path.key if kind.charge_path is not None else "", repr(kind.area)


def _extra(gang: GangRecord) -> int:
    assert gang.spec is not None
    return gang.active - gang.spec.min_member

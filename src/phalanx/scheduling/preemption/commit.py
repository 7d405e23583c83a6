"""What becomes of an eviction that was found: the victims are told to go, and the room is held for whom they go."""

from __future__ import annotations

import msgspec

from phalanx.cluster.pods.nominations import PATIENCE, Nomination
from phalanx.cluster.pods.records import PodRecord
from phalanx.model.decisions import EvictionReason
from phalanx.model.text.quantity import format_quantity
from phalanx.scheduling.gang_placement.nominated_placement import await_victims, nominated_members
from phalanx.scheduling.preemption.preemptor import PodPreemptor, Preemptor
from phalanx.scheduling.preemption.rules.self_protection import protected_pods_of
from phalanx.scheduling.preemption.solution import Eviction
from phalanx.scheduling.preemption.victims import VictimCandidate
from phalanx.scheduling.session.session import Session

_LENT = "what it holds was lent"


def commit(session: Session, preemptor: Preemptor, found: Eviction) -> None:
    """Tells the victims to go and holds the room for whom they go."""
    unit = preemptor.unit
    session.disruptions[unit.key] = found
    transfers, kept = _transfers(preemptor, found), dict(found.placements)
    session.decisions.withdraw_nominations(record for record in nominated_members(unit) if record not in kept)
    _nominate(session, preemptor, preemptor.name, found, transfers)
    await_victims(session, unit, preemptor.demand)


def commit_for_each(session: Session, preemptor: PodPreemptor, found: Eviction) -> None:
    """The same for pods on their own: each waits only for those who must leave for it."""
    unit_of, transfers = {unit.pod: unit for unit in preemptor.units}, _transfers(preemptor, found)
    first = found.placements[0][0]
    # Who tells a victim to go: the first who is placed where it stands. Those who stand nowhere near go for an
    # account's sake: that is the first one's to tell, and everybody's concern.
    teller = {row: record for record, row in reversed(found.placements)}
    told: dict[PodRecord, list[VictimCandidate]] = {record: [] for record, _ in found.placements}
    at_row: dict[int, list[PodRecord]] = {}
    common = list(found.terminating)
    for victim in found.victims:
        near = next((teller[row] for row in victim.rows if row in teller), None)
        told[near if near is not None else first].append(victim)
        for victim_pod in victim.records:
            (at_row.setdefault(victim_pod.row, []) if near is not None else common).append(victim_pod)
    for record, row in found.placements:
        part = msgspec.structs.replace(
            found,
            victims=tuple(told[record]),
            placements=((record, row),),
            terminating=(*at_row.get(row, ()), *common),
            displaced=found.displaced if record is first else (),
        )
        unit = unit_of[record]
        session.disruptions[unit.key] = part
        _nominate(session, preemptor, f"pod {record.pod.key}", part, transfers)
        await_victims(session, unit, preemptor.demand)


def _transfers(preemptor: Preemptor, found: Eviction) -> int:
    """How often the room that the preemptor gets was held for somebody and taken by the next."""
    taken = [record.nomination.transfers + 1 for record in found.displaced if record.nomination is not None]
    own = [record.nomination.transfers for record in preemptor.nominated if record.nomination is not None]
    return max((*taken, *own), default=0)


def _nominate(session: Session, preemptor: Preemptor, name: str, found: Eviction, transfers: int) -> None:
    cause = session.decisions.next_cause()
    victims = {record: None for victim in found.victims for record in victim.records}
    victims.update(dict.fromkeys(found.terminating))
    # Grace begins when they are told; those who leave already have their own end.
    ends = [max(session.now + record.pod.grace, record.pod.leaves) for record in victims]
    uids = frozenset(record.pod.uid for record in victims)
    nomination = Nomination(uids, max(ends, default=session.now) + PATIENCE, cause, transfers)
    for victim in found.victims:
        message = _why(preemptor, victim)
        for record in victim.records:
            assert record.charge_path is not None
            spite = protected_pods_of(session).overruled_remark(record, victim.rules[record.charge_path])
            session.decisions.evict(record, victim.reason, message + spite, name, cause)
    # What is held for others is taken before it is held again.
    session.decisions.withdraw_nominations(found.displaced, successor=cause)
    for record, row in found.placements:
        session.decisions.nominate(record, row, nomination)


def _why(preemptor: Preemptor, victim: VictimCandidate) -> str:
    """One clause that names no preemptor: whoever tells it has done so (`Evict.sentence`)."""
    if victim.reason is EvictionReason.RECLAIMED:
        return _excess(victim)
    if any(gang in preemptor.gangs for gang in victim.gangs):
        return _outranked(victim.highest_priority, preemptor.pod_priority)
    if victim.priority >= preemptor.priority:
        return f"both have priority {victim.priority}, and the other holds less"
    return _outranked(victim.priority, preemptor.priority)


def _outranked(low: int, high: int) -> str:
    return f"priority {low} gives way to priority {high}"


def _excess(victim: VictimCandidate) -> str:
    """Who of those that pay for the victim is furthest above what is meant for him, in anything that it holds."""
    found: list[tuple[float, str]] = []
    for charge_path, rule in victim.rules.items():
        for over in rule.must_exceed:
            # Others of the same decision leave already; all are told the same.
            holding = over.account.allocated
            for name, own in sorted(over.limits.items()):
                amount = holding.get(name, 0)
                if amount > own and victim.amounts[charge_path].get(name, 0):
                    more, everything = format_quantity(amount - own, name), format_quantity(amount, name)
                    text = f"{over.account.label} holds {everything} {name}, {more} more than is its own"
                    found.append((own / amount, text))
    return min(found, key=lambda entry: entry[0], default=(0, _LENT))[1]

"""Commit of an eviction that was found: evict the victims and nominate the preemptor's pods to the freed nodes."""

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

_LENT = "it uses borrowed amounts"


def commit(session: Session, preemptor: Preemptor, eviction: Eviction) -> None:
    """Evict the victims and nominate the preemptor's pods to their rows."""
    unit = preemptor.unit
    session.disruptions[unit.key] = eviction
    transfers, placements = _transfers(preemptor, eviction), dict(eviction.placements)
    session.decisions.withdraw_nominations(record for record in nominated_members(unit) if record not in placements)
    _nominate(session, preemptor, preemptor.name, eviction, transfers)
    await_victims(session, unit, preemptor.demand)


def commit_for_each(session: Session, preemptor: PodPreemptor, eviction: Eviction) -> None:
    """Commit an eviction for several pods on their own: each pod waits for the victims on its own row."""
    unit_of, transfers = {unit.pod: unit for unit in preemptor.units}, _transfers(preemptor, eviction)
    first = eviction.placements[0][0]
    # The first pod that is placed on a victim's row evicts the victim. A victim on no such row frees an account:
    # the first pod evicts it, and all pods wait for it.
    evicting_pod = {row: record for record, row in reversed(eviction.placements)}
    victims_of: dict[PodRecord, list[VictimCandidate]] = {record: [] for record, _ in eviction.placements}
    at_row: dict[int, list[PodRecord]] = {}
    common = list(eviction.terminating)
    for victim in eviction.victims:
        near = next((evicting_pod[row] for row in victim.rows if row in evicting_pod), None)
        victims_of[near if near is not None else first].append(victim)
        for victim_pod in victim.records:
            (at_row.setdefault(victim_pod.row, []) if near is not None else common).append(victim_pod)
    for record, row in eviction.placements:
        pod_eviction = msgspec.structs.replace(
            eviction,
            victims=tuple(victims_of[record]),
            placements=((record, row),),
            terminating=(*at_row.get(row, ()), *common),
            displaced=eviction.displaced if record is first else (),
        )
        unit = unit_of[record]
        session.disruptions[unit.key] = pod_eviction
        _nominate(session, preemptor, f"pod {record.pod.key}", pod_eviction, transfers)
        await_victims(session, unit, preemptor.demand)


def _transfers(preemptor: Preemptor, eviction: Eviction) -> int:
    """Return the number of times that the room of the preemptor has changed from one nominated pod to another."""
    taken = [record.nomination.transfers + 1 for record in eviction.displaced if record.nomination is not None]
    own = [record.nomination.transfers for record in preemptor.nominated if record.nomination is not None]
    return max((*taken, *own), default=0)


def _nominate(session: Session, preemptor: Preemptor, name: str, eviction: Eviction, transfers: int) -> None:
    cause = session.decisions.next_cause()
    victims = {record: None for victim in eviction.victims for record in victim.records}
    victims.update(dict.fromkeys(eviction.terminating))
    # The grace period of a victim begins with this eviction. A terminating pod already has its own end.
    ends = [max(session.now + record.pod.grace, record.pod.leaves) for record in victims]
    uids = frozenset(record.pod.uid for record in victims)
    nomination = Nomination(uids, max(ends, default=session.now) + PATIENCE, cause, transfers)
    for victim in eviction.victims:
        message = _why(preemptor, victim)
        for record in victim.records:
            assert record.charge_path is not None
            remark = protected_pods_of(session).overruled_remark(record, victim.rules[record.charge_path])
            session.decisions.evict(record, victim.reason, message + remark, name, cause)
    # Withdraw the nominations of displaced pods before other pods are nominated to the same room.
    session.decisions.withdraw_nominations(eviction.displaced, successor=cause)
    for record, row in eviction.placements:
        session.decisions.nominate(record, row, nomination)


def _why(preemptor: Preemptor, victim: VictimCandidate) -> str:
    """Return a clause that does not name the preemptor: `Evict.sentence` already names it."""
    if victim.reason is EvictionReason.RECLAIMED:
        return _excess(victim)
    if any(gang in preemptor.gangs for gang in victim.gangs):
        return _outranked(victim.highest_priority, preemptor.pod_priority)
    if victim.priority >= preemptor.priority:
        return f"both have priority {victim.priority}, and the preemptor has a smaller share"
    return _outranked(victim.priority, preemptor.priority)


def _outranked(low: int, high: int) -> str:
    return f"priority {low} is below priority {high}"


def _excess(victim: VictimCandidate) -> str:
    """Describe the account on the victim's charge paths that exceeds its share by the largest part, in any resource
    that the victim holds."""
    excesses: list[tuple[float, str]] = []
    for charge_path, rule in victim.rules.items():
        for over in rule.must_exceed:
            # Other victims of the same decision are still counted: all victims get the same text.
            holding = over.account.allocated
            for name, own in sorted(over.limits.items()):
                amount = holding.get(name, 0)
                if amount > own and victim.amounts[charge_path].get(name, 0):
                    excess, total = format_quantity(amount - own, name), format_quantity(amount, name)
                    text = f"{over.account.label} uses {total} {name}, {excess} above its share"
                    excesses.append((own / amount, text))
    return min(excesses, key=lambda entry: entry[0], default=(0, _LENT))[1]

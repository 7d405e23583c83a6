"""In which orders victims are tried: the first of an order that suffice are a choice, the cheapest choice wins."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.cluster.accounts import add_amounts
from phalanx.model.resources import PODS
from phalanx.scheduling.preemption.preemptor import Beneficiary
from phalanx.scheduling.preemption.search.affinity_dependents import Interplay
from phalanx.scheduling.preemption.search.per_node import Nearby
from phalanx.scheduling.preemption.search.victim_sequence import Rules, in_turns, thrifty
from phalanx.scheduling.preemption.victims import Victim
from phalanx.scheduling.session.session import Session

# The first so many parts of a victim's key say what kind of victim it is, the others which of its kind.
_KIND = 6


def orders(rules: Rules, beneficiary: Beneficiary, candidates: list[Victim]) -> Iterator[list[Victim]]:
    """Node by node, those first who keep the beneficiary out by being where they are, the policy's order, in which
    the candidates are, by size; and for accounts that need not give all, the one that frees most."""
    nearby = _node_by_node(rules.session, beneficiary, candidates)
    if nearby is not None:
        yield nearby
    interplay = Interplay(rules.session, beneficiary.classes)
    blockers = interplay.first(candidates) if interplay else candidates
    if blockers != candidates:
        yield blockers
    yield in_turns(rules, candidates)
    larger = _largest_first(beneficiary, candidates)
    if larger != candidates:
        yield larger
    if any(ground.overs for victim in candidates for ground in victim.grounds.values()):
        yield thrifty(rules, candidates)


def _largest_first(beneficiary: Beneficiary, candidates: list[Victim]) -> list[Victim]:
    """Within one kind by the largest part that they hold of anything that is asked for: so fewer have to go."""
    asked: dict[str, int] = {}
    for wanted in beneficiary.payers.values():
        add_amounts(asked, {name: amount for name, amount in wanted.items() if name != PODS}, 1)

    def part(victim: Victim) -> float:
        held: dict[str, int] = {}
        for amounts in victim.amounts.values():
            add_amounts(held, amounts, 1)
        return max((held.get(name, 0) / amount for name, amount in asked.items()), default=0.0)

    return sorted(candidates, key=lambda victim: (victim.key[:_KIND], -part(victim), victim.key))


def _node_by_node(session: Session, beneficiary: Beneficiary, candidates: list[Victim]) -> list[Victim] | None:
    """Those first who make room where the least is lost; None if that is not enough."""
    nearby = Nearby(session, beneficiary.classes, candidates)
    for cls, count in beneficiary.copies:
        if not nearby.choose(cls, count):
            return None
    return nearby.first(candidates)

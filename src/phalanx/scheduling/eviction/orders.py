"""In which orders victims are tried: the first of an order that suffice are a choice, the cheapest choice wins."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.cluster.accounts import add_amounts
from phalanx.model.resources import PODS
from phalanx.scheduling.eviction.beneficiary import Beneficiary
from phalanx.scheduling.eviction.cost import cost_of
from phalanx.scheduling.eviction.victims import Victim
from phalanx.scheduling.session import Session

# The first so many parts of a victim's key say what kind of victim it is, the others which of its kind.
_KIND = 6


def orders(session: Session, beneficiary: Beneficiary, candidates: list[Victim]) -> Iterator[list[Victim]]:
    """The policy's order, in which the candidates are; for those who need little room node by node; and by size."""
    yield candidates
    nearby = _node_by_node(session, beneficiary, candidates)
    if nearby is not None:
        yield nearby
    larger = _largest_first(beneficiary, candidates)
    if larger != candidates:
        yield larger


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
    """What suffices for one pod on each node, the cheapest nodes first."""
    if len(beneficiary.classes) != 1:
        return None
    cls = beneficiary.classes[0]
    view, idle = session.placer.view(cls), session.state.nodes.idle
    on_row: dict[int, list[Victim]] = {}
    for victim in candidates:
        for row in dict.fromkeys(victim.rows):
            if row >= 0 and view.mask[row]:
                on_row.setdefault(row, []).append(victim)
    ways: list[tuple[tuple[object, ...], int, list[Victim]]] = []
    for row, victims in on_row.items():
        room = idle[cls.columns, row].copy()
        chosen: list[Victim] = []
        for victim in victims:
            if (room >= cls.amounts).all():
                break
            for record in victim.records:
                if record.row == row:
                    room += record.footprint.usage[cls.columns]
            chosen.append(victim)
        if (room >= cls.amounts).all():
            ways.append((cost_of(chosen, 0).decisive, row, chosen))
    ways.sort(key=lambda way: way[:2])
    first = dict.fromkeys(victim for _, _, chosen in ways[: beneficiary.total] for victim in chosen)
    return [*first, *(victim for victim in candidates if victim not in first)] if first else None

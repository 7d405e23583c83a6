"""Why a victim goes, in the words of its condition and its events."""

from __future__ import annotations

from phalanx.model.decisions import EvictionReason
from phalanx.model.quantity import format_quantity
from phalanx.scheduling.preemption.preemptor import Beneficiary
from phalanx.scheduling.preemption.victims import Victim

_LENT = "what it holds was lent"


def why(beneficiary: Beneficiary, victim: Victim) -> str:
    """One clause that names no beneficiary: whoever tells it has done so (`Evict.sentence`)."""
    if victim.reason is EvictionReason.RECLAIMED:
        return _excess(victim)
    if any(gang in beneficiary.gangs for gang in victim.gangs):
        return _outranked(victim.importance, beneficiary.pod_priority)
    if victim.priority >= beneficiary.priority:
        return f"both have priority {victim.priority}, and the other holds less"
    return _outranked(victim.priority, beneficiary.priority)


def _outranked(low: int, high: int) -> str:
    return f"priority {low} gives way to priority {high}"


def _excess(victim: Victim) -> str:
    """Who of those that pay for the victim is furthest above what is meant for him, in anything that it holds."""
    found: list[tuple[float, str]] = []
    for payer, ground in victim.grounds.items():
        for over in ground.overs:
            # Others of the same decision leave already; all are told the same.
            holding = over.account.allocated
            for name, own in sorted(over.limits.items()):
                amount = holding.get(name, 0)
                if amount > own and victim.amounts[payer].get(name, 0):
                    more, everything = format_quantity(amount - own, name), format_quantity(amount, name)
                    text = f"{over.account.label} holds {everything} {name}, {more} more than is its own"
                    found.append((own / amount, text))
    return min(found, key=lambda entry: entry[0], default=(0, _LENT))[1]

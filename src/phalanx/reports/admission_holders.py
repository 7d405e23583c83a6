"""Message of `phalanx why` about admitted gangs that delay the admission of another gang."""

from __future__ import annotations

from phalanx.cluster.gangs import GangTable
from phalanx.cluster.pods.records import GangRecord
from phalanx.model.gang import GangKey
from phalanx.model.resources import PODS
from phalanx.model.text.quantity import format_quantity

_MOST_NAMED = 3
# Slots for pods hold up a group only where everything else is short too.
_POD_COUNTS = (PODS, "count/pods")


def admission_holders(gangs: GangTable, waiting: GangRecord) -> str:
    """Return a message about admitted gangs and their requests without placed pods; "" if there are none.

    Only resources that the waiting group requests count.
    """
    spec = waiting.spec
    if spec is None or not spec.min_resources:
        return ""
    holders = gangs.inqueue.holders(
        name for name, amount in spec.min_resources if amount and name not in _POD_COUNTS
    )
    if not holders:
        return ""
    named = []
    for key, amounts in holders[:_MOST_NAMED]:
        quantities = (f"{format_quantity(amount, name)} {name}" for name, amount in amounts.items())
        named.append(f"gang {_name_of(gangs, key)} ({', '.join(quantities)})")
    if len(holders) > _MOST_NAMED:
        named.append(f"{len(holders) - _MOST_NAMED} more")
    return f"admitted and not placed yet: {', '.join(named)}"


def _name_of(gangs: GangTable, key: GangKey) -> str:
    record = gangs.get(key)
    return record.title if record is not None else str(key)

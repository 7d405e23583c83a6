"""Message of `phalanx why` about admitted gangs that delay the admission of another gang."""

from __future__ import annotations

from phalanx.cluster.inqueue import InqueueResources
from phalanx.cluster.pods.records import GangRecord
from phalanx.model.resources import PODS
from phalanx.model.text.quantity import format_quantity

_MOST_NAMED = 3
# Slots for pods hold up a group only where everything else is short too.
_POD_COUNTS = (PODS, "count/pods")


def admission_holders(inqueue: InqueueResources, waiting: GangRecord) -> str:
    """Return a message about admitted gangs and their requests without placed pods; "" if there are none.

    Only resources that the waiting group requests count.
    """
    spec = waiting.spec
    if spec is None or not spec.min_resources:
        return ""
    holders = inqueue.holders(name for name, amount in spec.min_resources if amount and name not in _POD_COUNTS)
    if not holders:
        return ""
    named = [
        f"gang {key} ({', '.join(f'{format_quantity(amount, name)} {name}' for name, amount in amounts.items())})"
        for key, amounts in holders[:_MOST_NAMED]
    ]
    if len(holders) > _MOST_NAMED:
        named.append(f"{len(holders) - _MOST_NAMED} more")
    return f"admitted and not placed yet: {', '.join(named)}"

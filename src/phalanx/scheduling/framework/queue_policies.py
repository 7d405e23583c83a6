"""Policies of single queues in the policy file: order, evictions and start reservations of their units."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.cluster.accounts import AccountRecord
from phalanx.model.account import Tree
from phalanx.model.text.decoding import quoted
from phalanx.scheduling.framework.unknown_keys import check_keys

ORDERS = ("traverse", "fifo")
_FIELDS = ("order", "preempt", "reserve")


class QueuePolicy(msgspec.Struct, frozen=True):
    """Policy of a queue. None leaves a field to the parent queue, and at the root to the queue and the policy.

    `order` replaces the queue's dequeueStrategy. With `preempt` False no pod is evicted for a unit of the queue.
    With `reserve` False a unit of the queue has no start reservation.
    """

    order: str | None = None
    preempt: bool | None = None
    reserve: bool | None = None

    def stated(self) -> dict[str, str | bool]:
        """Return the fields that the policy states."""
        return {field: value for field in _FIELDS if (value := getattr(self, field)) is not None}


QueuePolicies = Mapping[str, QueuePolicy]


def parse_queue_policies(value: object, errors: list[str]) -> dict[str, QueuePolicy]:
    """Parse `phalanx.queues` of a policy file; add errors that name the field."""
    if not isinstance(value, Mapping):
        errors.append("phalanx.queues: expected a mapping of queue names")
        return {}
    return {str(name): _parse(f"phalanx.queues.{name}", entry, errors) for name, entry in value.items()}


def keeps_order(policies: QueuePolicies, queue: AccountRecord) -> bool:
    """Return whether the units of a queue keep their order: by its policy, else by its dequeueStrategy."""
    order = _nearest(policies, queue, "order") if policies else None
    if order is not None:
        return order == "fifo"
    return queue.spec is not None and queue.spec.fifo


def any_order(policies: QueuePolicies) -> bool:
    """Return whether a policy lets any queue keep its order."""
    return bool(policies) and any(policy.order == "fifo" for policy in policies.values())


def barred_from_eviction(policies: QueuePolicies, queue: AccountRecord | None) -> str:
    """Return the queue whose policy forbids evictions for units of `queue`; "" if none does."""
    if queue is None or not policies or _nearest(policies, queue, "preempt") is not False:
        return ""
    stated = (
        account for account in queue.lineage() if policies.get(account.key.name, QueuePolicy()).preempt is False
    )
    return next(account.key.name for account in stated)


def reserves_starts(policies: QueuePolicies, queue: AccountRecord | None) -> bool:
    """Return whether units of `queue` can have start reservations."""
    return queue is None or not policies or _nearest(policies, queue, "reserve") is not False


def _nearest(policies: QueuePolicies, queue: AccountRecord, field: str) -> object:
    """Return the value of the queue itself or of its nearest ancestor that states the field."""
    for account in queue.lineage():
        policy = policies.get(account.key.name) if account.key.tree is Tree.QUEUE else None
        value = getattr(policy, field) if policy is not None else None
        if value is not None:
            return value
    return None


def _parse(place: str, entry: object, errors: list[str]) -> QueuePolicy:
    if not isinstance(entry, Mapping):
        errors.append(f"{place}: expected a mapping with {', '.join(_FIELDS)}")
        return QueuePolicy()
    check_keys(entry, _FIELDS, f"{place}.", errors)
    order = entry.get("order")
    if order is not None and order not in ORDERS:
        errors.append(f"{place}.order: {quoted(order)} is unknown; expected {' or '.join(ORDERS)}")
        order = None
    switches: dict[str, bool | None] = {}
    for key in _FIELDS[1:]:
        value = entry.get(key)
        if value is not None and not isinstance(value, bool):
            errors.append(f"{place}.{key}: {quoted(value)} is not true or false")
            value = None
        switches[key] = value
    return QueuePolicy(order, switches["preempt"], switches["reserve"])

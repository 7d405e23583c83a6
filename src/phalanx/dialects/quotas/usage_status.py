"""Usage status of queues and quotas, in the terms of each dialect.

A patch contains only fields that differ, so a steady state writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from phalanx.model.account import Account, AccountState, Tree
from phalanx.model.resources import CPU, MEMORY, PODS, parse_amount
from phalanx.model.text.quantity import QuantityError, canonical_quantity

# Volcano's phases of a PodGroup, and the fields of a Queue's status that count them.
_COUNTS = {
    "Pending": "pending",
    "Inqueue": "inqueue",
    "Running": "running",
    "Completed": "completed",
    "Unknown": "unknown",
}
_KUBE_BATCH_COUNTS = ("pending", "running", "unknown")


class QuotaUsage(msgspec.Struct, frozen=True):
    """Usage of a queue or quota: `used` by all bound pods, `running` by running pods only. `groups` counts the
    PodGroups of a queue by phase."""

    used: Mapping[str, int]
    running: Mapping[str, int]
    groups: Mapping[str, int] = {}


class UsageInput(msgspec.Struct, frozen=True):
    """Input for the status of a queue or quota.

    Without `tell_state`, another writer (Volcano's controller) maintains the state of a queue; without
    `tell_counts`, the number of its groups by phase. The scheduler always writes the allocated amounts.
    """

    current: Mapping[str, Any]
    account: Account
    holdings: QuotaUsage
    tell_state: bool = True
    tell_counts: bool = True


# Each function returns the status fields that need an update; null removes a field.


def volcano_queue_status(usage: UsageInput) -> dict[str, Any]:
    current, holdings = usage.current, usage.holdings
    changed = _differing(current, _counts(holdings) if usage.tell_counts else {})
    state = _state(current, usage.account, holdings) if usage.tell_state else ""
    if state and current.get("state") != state:
        changed["state"] = state
    # Many releases require the field: without it, the API server rejects every status update.
    missing = not isinstance(current.get("allocated"), Mapping)
    allocated = _amounts(current, "allocated", {CPU: 0, MEMORY: 0, **holdings.used}, zeros=missing)
    return {**changed, "allocated": allocated} if allocated else changed


def kube_batch_queue_status(usage: UsageInput) -> dict[str, Any]:
    counts = _counts(usage.holdings)
    return _differing(usage.current, {name: counts[name] for name in _KUBE_BATCH_COUNTS})


def elastic_quota_status(usage: UsageInput) -> dict[str, Any]:
    """Return the used amounts for the status of an ElasticQuota: Koordinator counts all bound pods,
    scheduler-plugins only running ones."""
    account, holdings = usage.account, usage.holdings
    return _used(
        usage.current, account, holdings.used if account.key.tree is Tree.KOORDINATOR else holdings.running
    )


def _state(current: Mapping[str, Any], account: Account, holdings: QuotaUsage) -> str:
    """Return the desired state of a queue; "" if unknown. A queue to be closed is Closed once it is empty.

    A Closed queue remains so, even with running pods: Volcano's webhook rejects changes of a Closing queue.
    """
    if current.get("state") == AccountState.CLOSED and account.state is not AccountState.OPEN:
        return ""
    if account.state is AccountState.OPEN:
        return AccountState.OPEN.value
    if account.state is AccountState.UNKNOWN:
        return ""
    unfinished = sum(count for phase, count in holdings.groups.items() if phase != "Completed")
    state = AccountState.CLOSING if unfinished or any(holdings.used.values()) else AccountState.CLOSED
    return state.value


def _counts(holdings: QuotaUsage) -> dict[str, int]:
    return {field: holdings.groups.get(phase, 0) for phase, field in _COUNTS.items()}


def _differing(current: Mapping[str, Any], counts: Mapping[str, int]) -> dict[str, Any]:
    # Go omits zeros.
    return {name: count for name, count in counts.items() if (current.get(name) or 0) != count}


def _used(current: Mapping[str, Any], account: Account, usage: Mapping[str, int]) -> dict[str, Any]:
    """Return the used amounts for an ElasticQuota's status: of every resource of min or max, and of all other
    requested ones (scheduler-plugins, elasticquota controller).

    The number of pods is not a request, so it is included only if the quota names it.
    """
    named = {name for name, _ in (*(account.deserved or ()), *account.capability)}
    desired = {name: usage.get(name, 0) for name in named | usage.keys() if name in named or name != PODS}
    used = _amounts(current, "used", desired, zeros=True)
    return {"used": used} if used else {}


def _amounts(
    current: Mapping[str, Any], field: str, desired: Mapping[str, int], zeros: bool = False
) -> dict[str, str | None]:
    """Return the entries of a status map of quantities that need an update; with `zeros`, zeros are written too."""
    stated = current.get(field)
    if not isinstance(stated, Mapping):
        stated = {}
    changed: dict[str, str | None] = {}
    for name, amount in sorted(desired.items()):
        if name in stated:
            is_current = _read(name, stated[name]) == amount
        else:
            is_current = not amount and not zeros
        if not is_current:
            changed[name] = canonical_quantity(amount, name)
    outdated = sorted(name for name in stated if name not in desired and (zeros or _read(name, stated[name]) != 0))
    return {**changed, **dict.fromkeys(outdated)}


def _read(name: str, value: object) -> int | None:
    try:
        return parse_amount(name, value)
    except QuantityError:
        return None

"""What an account holds, in the words of the object that declares it.

A change is computed only where something differs, so a steady state writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from phalanx.model.account import Account, AccountState, Tree
from phalanx.model.resources import CPU, MEMORY, PODS, parse_amount
from phalanx.model.text.quantity import QuantityError, canonical_quantity

# Volcano's phases of a PodGroup and the fields of a Queue's status that count them.
_COUNTS = {
    "Pending": "pending",
    "Inqueue": "inqueue",
    "Running": "running",
    "Completed": "completed",
    "Unknown": "unknown",
}
_KUBE_BATCH_COUNTS = ("pending", "running", "unknown")


class QuotaUsage(msgspec.Struct, frozen=True):
    """`used` is what pods on nodes hold, `running` what of it the running ones do; `groups` counts the PodGroups
    of a queue by their phase.
    """

    used: Mapping[str, int]
    running: Mapping[str, int]
    groups: Mapping[str, int] = {}


class UsageInput(msgspec.Struct, frozen=True):
    """What the status of a queue or quota is computed from.

    Without `tell_state` the state of a queue is left to whoever else tells it, without `tell_counts` the number of
    its groups in each phase: Volcano's controller. What is allocated is the scheduler's to say.
    """

    current: Mapping[str, Any]
    account: Account
    holdings: QuotaUsage
    tell_state: bool = True
    tell_counts: bool = True


# Each gives the fields of an object's status that are not true, as they should be; null takes a field away.


def volcano_queue_status(usage: UsageInput) -> dict[str, Any]:
    current, holdings = usage.current, usage.holdings
    changed = _differing(current, _counts(holdings) if usage.tell_counts else {})
    state = _state(current, usage.account, holdings) if usage.tell_state else ""
    if state and current.get("state") != state:
        changed["state"] = state
    # Many releases require the field: no status without it is accepted, from whomever.
    missing = not isinstance(current.get("allocated"), Mapping)
    allocated = _amounts(current, "allocated", {CPU: 0, MEMORY: 0, **holdings.used}, zeros=missing)
    return {**changed, "allocated": allocated} if allocated else changed


def kube_batch_queue_status(usage: UsageInput) -> dict[str, Any]:
    counts = _counts(usage.holdings)
    return _differing(usage.current, {name: counts[name] for name in _KUBE_BATCH_COUNTS})


def elastic_quota_status(usage: UsageInput) -> dict[str, Any]:
    """Koordinator counts what pods on nodes hold, scheduler-plugins what running ones do."""
    account, holdings = usage.account, usage.holdings
    return _used(
        usage.current, account, holdings.used if account.key.tree is Tree.KOORDINATOR else holdings.running
    )


def _state(current: Mapping[str, Any], account: Account, holdings: QuotaUsage) -> str:
    """A queue that is to be closed is so once it holds nothing. "" where nothing is known to be true.

    What says Closed stays so, whatever runs there: Volcano's webhook takes no change of a queue that is Closing.
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
    # Go leaves out zeros.
    return {name: count for name, count in counts.items() if (current.get(name) or 0) != count}


def _used(current: Mapping[str, Any], account: Account, held: Mapping[str, int]) -> dict[str, Any]:
    """Every resource that min or max name, and what else pods request (scheduler-plugins, elasticquota controller).

    The number of pods is no request, so it is told only where the quota names it.
    """
    named = {name for name, _ in (*(account.deserved or ()), *account.capability)}
    desired = {name: held.get(name, 0) for name in named | held.keys() if name in named or name != PODS}
    used = _amounts(current, "used", desired, zeros=True)
    return {"used": used} if used else {}


def _amounts(
    current: Mapping[str, Any], field: str, desired: Mapping[str, int], zeros: bool = False
) -> dict[str, str | None]:
    """The entries of a map of quantities that differ; `zeros` asks for zeros to be written out."""
    stated = current.get(field)
    if not isinstance(stated, Mapping):
        stated = {}
    changed: dict[str, str | None] = {}
    for name, amount in sorted(desired.items()):
        if name in stated:
            same = _read(name, stated[name]) == amount
        else:
            same = not amount and not zeros
        if not same:
            changed[name] = canonical_quantity(amount, name)
    gone = sorted(name for name in stated if name not in desired and (zeros or _read(name, stated[name]) != 0))
    return {**changed, **dict.fromkeys(gone)}


def _read(name: str, value: object) -> int | None:
    try:
        return parse_amount(name, value)
    except QuantityError:
        return None

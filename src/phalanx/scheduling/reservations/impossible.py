"""Proof that a unit can never run: the nodes are too small or closed, or an account limit is too small."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from phalanx.cluster.accounts import ChargePath, add_amounts
from phalanx.cluster.resource_space import BoolArray
from phalanx.cluster.state import ClusterState
from phalanx.scheduling.quota.quota_check import QuotaCheck
from phalanx.scheduling.reservations.window import Part


class Never(msgspec.Struct, frozen=True):
    """Reason why a unit can never run.

    With `closed`, it would fit on nodes that are closed to it now, or that an autoscaler can create.
    """

    message: str
    closed: bool = False


def why_never(state: ClusterState, quotas: QuotaCheck, parts: Sequence[Part]) -> Never | None:
    """Return the reason why the parts could not run in an empty cluster; None if they could."""
    alive = state.nodes.alive
    for part in parts:
        usable = part.rows & alive
        if _copies_when_empty(state, part, usable) >= part.count:
            continue
        room = f"have no room for {part.count} of its pods even when they are empty"
        if _copies_when_empty(state, part, alive) >= part.count:
            return Never(f"no start is known: the {int(usable.sum())} nodes that are open to it now {room}", True)
        if quotas.nodes_come:
            return Never(f"no start is known: the {int(alive.sum())} present nodes {room}", True)
        return Never(f"cannot ever run: all {int(alive.sum())} nodes {room}")
    account = _never_allowed(quotas, parts)
    return Never(f"cannot ever run: {account} never allows so much") if account else None


def _copies_when_empty(state: ClusterState, part: Part, rows: BoolArray) -> int:
    columns, amounts = part.pod_class.columns, part.pod_class.amounts
    empty = (state.nodes.allocatable[columns][:, rows] // amounts[:, None]).min(axis=0, initial=2**31)
    return int(empty.clip(0).sum())


def _never_allowed(quotas: QuotaCheck, parts: Sequence[Part]) -> str:
    """Return the limit that the parts exceed even in an empty account, "" for none."""
    wanted: dict[ChargePath, dict[str, int]] = {}
    for part in parts:
        if part.charge_path is not None:
            add_amounts(wanted.setdefault(part.charge_path, {}), part.pod_class.footprint.amounts, part.count)
    for charge_path, amounts in wanted.items():
        for account_limit in quotas.account_limits(charge_path):
            for name, amount in amounts.items():
                if name in account_limit.limit.limits and not account_limit.limit.computed:
                    limit, _, kept = account_limit.state(name)
                    if amount > max(limit, kept):
                        return f"{account_limit.limit.word} of {account_limit.account.label} ({name})"
    return ""

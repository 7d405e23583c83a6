"""Who cannot ever run, whoever leaves: the nodes are too small, or an account is."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.cluster.accounts import ChargePath, add_amounts
from phalanx.cluster.state import ClusterState
from phalanx.scheduling.quota.quota_check import QuotaCheck
from phalanx.scheduling.reservations.window import Part


def why_never(state: ClusterState, quotas: QuotaCheck, parts: Sequence[Part]) -> str:
    """Why the parts could not run even if nobody else did, "" where they could."""
    for part in parts:
        usable = part.rows & state.nodes.alive
        columns, amounts = part.pod_class.columns, part.pod_class.amounts
        empty = (state.nodes.allocatable[columns][:, usable] // amounts[:, None]).min(axis=0, initial=2**31)
        if int(empty.clip(0).sum()) < part.count:
            return (
                f"cannot ever run: the {int(usable.sum())} nodes that it could use have no room for "
                f"{part.count} of its pods even when they are empty"
            )
    account = _never_allowed(quotas, parts)
    return f"cannot ever run: {account} never allows so much" if account else ""


def _never_allowed(quotas: QuotaCheck, parts: Sequence[Part]) -> str:
    """The account that would not allow the parts even if it held nothing, "" for none."""
    wanted: dict[ChargePath, dict[str, int]] = {}
    for part in parts:
        if part.charge_path is not None:
            add_amounts(wanted.setdefault(part.charge_path, {}), part.pod_class.footprint.amounts, part.count)
    for charge_path, amounts in wanted.items():
        for bar in quotas.bars(charge_path):
            for name, amount in amounts.items():
                if name in bar.ceiling.limits and not bar.ceiling.computed:
                    limit, _, kept = bar.state(name)
                    if amount > max(limit, kept):
                        return f"{bar.ceiling.word} of {bar.account.label} ({name})"
    return ""

"""What of an observed pod matters to whom: its place in the order, its accounts, its node."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from phalanx.model.account import ResourceQuota
from phalanx.model.disruption import DisruptionBudget
from phalanx.model.pod import MemberState, Pod, PodPhase

Named = TypeVar("Named", ResourceQuota, DisruptionBudget)

# (No set: an enum is hashed slowly.)
_OCCUPYING = (MemberState.RUNNING, MemberState.BOUND, MemberState.ASSUMED, MemberState.TERMINATING)


def state_of(pod: Pod, schedulers: Collection[str]) -> MemberState:
    """Where an observed pod stands; `schedulers` are ours."""
    if pod.finished:
        return MemberState.SUCCEEDED if pod.phase is PodPhase.SUCCEEDED else MemberState.FAILED
    if pod.terminating:
        return MemberState.TERMINATING
    if pod.node:
        return MemberState.RUNNING if pod.phase is PodPhase.RUNNING else MemberState.BOUND
    if pod.gated:
        return MemberState.GATED
    return MemberState.PENDING if pod.scheduler in schedulers else MemberState.OTHER_SCHEDULER


def standing(pod: Pod) -> tuple[object, ...]:
    """What of a pod matters to its place in the order, beside its state."""
    return pod.node, pod.priority, pod.index, pod.problem, pod.queue, pod.quota, pod.user, pod.firm


def charging(pod: Pod) -> tuple[object, ...]:
    """What of a pod decides where and whether it is charged, beside its state."""
    return pod.scheduler, pod.queue, pod.quota, pod.user, pod.firm, pod.problem


def claim_of(pod: Pod, state: MemberState) -> tuple[str, MemberState | None]:
    """(the node on which an observed pod counts, "" for none; as what: bound, on its way out, or nominated)."""
    if state is MemberState.OTHER_SCHEDULER:
        return pod.nominated_node, state
    if state in _OCCUPYING:
        return pod.node, state if state is MemberState.TERMINATING else MemberState.BOUND
    return "", None


def yielding(pod: Pod) -> tuple[object, ...]:
    """What of a pod decides whether it has to go when others need its room."""
    return pod.priority, pod.preemptable, pod.cooldown, pod.fixture, pod.critical, pod.budgets


def renew(known: dict[str, dict[str, Named]], spec: Named) -> bool:
    """Takes in a spec by its namespace and name; whether it says anything new."""
    specs = known.setdefault(spec.namespace, {})
    if specs.get(spec.name) == spec:
        return False
    specs[spec.name] = spec
    return True

"""Properties of an observed pod by purpose: its position in the order, its queue and quotas, its node."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from msgspec.structs import replace

from phalanx.model.account import ResourceQuota
from phalanx.model.disruption import DisruptionBudget
from phalanx.model.pod import MemberState, Pod, PodPhase

Named = TypeVar("Named", ResourceQuota, DisruptionBudget)

# Not a set, since hashing an enum is slow.
_OCCUPYING = (MemberState.RUNNING, MemberState.BOUND, MemberState.ASSUMED, MemberState.TERMINATING)


def state_of(pod: Pod, schedulers: Collection[str]) -> MemberState:
    """Return the state of an observed pod; `schedulers` are our names."""
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
    """Return the properties, beside the state, that affect the pod's position in the scheduling order."""
    return pod.node, pod.priority, pod.index, pod.problem, pod.queue, pod.quota, pod.user, pod.firm


def charging(pod: Pod) -> tuple[object, ...]:
    """Return the properties, beside the state, that determine to which queues and quotas the pod is charged."""
    return pod.scheduler, pod.queue, pod.quota, pod.user, pod.firm, pod.problem


def same_charges(old: Pod, new: Pod) -> bool:
    """Return whether two versions of a pod are charged to the same queues and quotas in equal amounts, the node
    aside."""
    return (old.pod_class, old.usage, old.gang, old.role) == (new.pod_class, new.usage, new.gang, new.role)


def is_binding(old: Pod, new: Pod) -> bool:
    """Return whether two versions of a pod differ in nothing but its binding."""
    bound = replace(old, node=new.node, bound=new.bound, mark=new.mark, nominated_node=new.nominated_node)
    return bound == new


def claim_of(pod: Pod, state: MemberState) -> tuple[str, MemberState | None]:
    """Return the node on which an observed pod counts ("" for none), and its state there: bound, terminating or
    nominated."""
    if state is MemberState.OTHER_SCHEDULER:
        return pod.nominated_node, state
    if state in _OCCUPYING:
        return pod.node, state if state is MemberState.TERMINATING else MemberState.BOUND
    return "", None


def ordering(pod: Pod) -> tuple[object, ...]:
    """Return the properties that determine the place of a pod among the pending members of its gang."""
    return pod.problem, pod.priority, pod.index, pod.created, pod.name


def times(pod: Pod) -> tuple[object, ...]:
    """Return the properties that determine when the pod leaves its node."""
    return pod.started, pod.bound, pod.terminating, pod.leaves, pod.grace, pod.run_time


def yielding(pod: Pod) -> tuple[object, ...]:
    """Return the properties that determine whether the pod can be a preemption victim."""
    return pod.priority, pod.preemptable, pod.cooldown, pod.fixture, pod.critical, pod.budgets


def renew(known: dict[str, dict[str, Named]], spec: Named) -> bool:
    """Store a ResourceQuota or PodDisruptionBudget by its namespace and name. Return whether it differs from the
    last."""
    specs = known.setdefault(spec.namespace, {})
    if specs.get(spec.name) == spec:
        return False
    specs[spec.name] = spec
    return True

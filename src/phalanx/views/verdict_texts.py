"""Short texts by code and counts, without names of objects, so that every user can read them.

Views show them to users without access to the full text of a verdict or eviction, and on short lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from phalanx.model.verdict import NodeCount

_FIT = "{placeable} of {needed} required pods fit"
#: Text of each code; codes of plugins have none.
TEXTS: Mapping[str, str] = MappingProxyType(
    {
        "NotEnoughMembers": "{members} of {needed} required pods exist",
        "NotEnoughResources": _FIT,
        "NoEligibleNode": _FIT + ": no node is eligible",
        "UnsupportedField": "a pod has a field that this version does not support",
        "UnreadablePod": "a pod has a field that cannot be read",
        "PrerequisiteMissing": "an object that a pod refers to is missing or not ready",
        "PodGroupNotFound": "the object that declares the gang does not exist",
        "InvalidPodGroup": "the object that declares the gang has a field that cannot be read",
        "QuotaExceeded": "{placeable} of {needed} required pods are within quota",
        "QueueNotFound": "its queue does not exist",
        "QueueNotLeaf": "its queue has child queues and takes no pods of its own",
        "QueueClosed": "its queue is closed",
        "QueueOverused": "its queue has its share in use",
        "BudgetSpent": "the budget of its queue or quota is spent",
        "AwaitingAdmission": "it is not admitted yet",
        "BehindInQueue": "an earlier unit of its queue has no room yet",
        "BackfillRejected": "a unit with a reserved start comes first",
        "WaitingForGangGroup": "another gang of its gang group is not ready",
        "WaitingForComposite": "{members} of {needed} required groups are ready",
        "WaitingForEvictedPods": "room for {needed} pods is held until evicted pods have terminated",
        "ScaleUpDelayed": "it has its minimum, and its scale-up is delayed",
        "NotConsidered": "no action of the policy places it",
        "PlanningFailed": "planning it failed: see the log of the scheduler",
        "SchedulerError": "its binding was rejected",
        "SchedulingGated": "its pods have scheduling gates",
        "WaitingForVolumes": "it waits for its volumes or devices",
    }
)
#: Text of each reason of an eviction, with the API server's and Kubernetes' own.
EVICTION_TEXTS: Mapping[str, str] = MappingProxyType(
    {
        "Preempted": "evicted for a unit of higher priority",
        "Reclaimed": "evicted: borrowed quota was reclaimed",
        "Rescheduled": "evicted to be placed elsewhere",
        "Revoked": "evicted: its time on the node was over",
        "PreemptionByScheduler": "evicted by the scheduler",
        "EvictionByEvictionAPI": "evicted through the eviction API",
        "DeletionByTaintManager": "evicted for a taint of its node",
        "DeletionByPodGC": "deleted: its node does not exist",
        "TerminationByKubelet": "terminated by the kubelet",
    }
)


def brief_text(
    code: str, *, needed: int = 0, placeable: int = 0, members: int = 0, nodes: Iterable[NodeCount] = ()
) -> str:
    """Return the text of a code with its counts, and how many nodes lack which resource; "" for unknown codes."""
    text = TEXTS.get(code, "").format(needed=needed, placeable=placeable, members=members)
    lacking = ", ".join(f"{part.count} nodes lack {part.resource}" for part in nodes if part.resource)
    return f"{text}; {lacking}" if text and lacking else text


def eviction_text(reason: str) -> str:
    """Return the text of an eviction's reason; for an unknown one the reason itself."""
    return EVICTION_TEXTS.get(reason, reason)

"""Short messages by verdict code and counts, without names of objects, so that every user can read them.

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
        "QueueOverused": "its queue uses its whole share",
        "BudgetSpent": "the budget of its queue or quota is spent",
        "AwaitingAdmission": "the gang is not admitted yet",
        "BehindInQueue": "an earlier gang or pod of its queue does not fit yet",
        "BackfillRejected": "a gang or pod with a reserved start comes first",
        "WaitingForGangGroup": "another gang of its gang group is not ready",
        "WaitingForComposite": "{members} of {needed} required groups are ready",
        "WaitingForNodes": "nodes for {needed} pods are requested from the autoscaler",
        "WaitingForEvictedPods": "nodes for {needed} pods are reserved until evicted pods have terminated",
        "ScaleUpDelayed": "the gang has its minimum, and its scale-up is delayed",
        "NotConsidered": "no action of the policy places this kind of gang or pod",
        "PlanningFailed": "planning failed with an error: see the log of the scheduler",
        "SchedulerError": "the API server rejected its binding",
        "SchedulingGated": "its pods have scheduling gates",
        "WaitingForVolumes": "it waits for its volumes or devices",
    }
)
#: Text of each reason of an eviction, with the API server's and Kubernetes' own.
EVICTION_TEXTS: Mapping[str, str] = MappingProxyType(
    {
        "Preempted": "evicted for a gang or pod of higher priority",
        "Reclaimed": "evicted: borrowed quota was reclaimed",
        "Rescheduled": "evicted to be placed on another node",
        "Revoked": "evicted: its permitted time on the node has ended",
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
    """Return the short message of a verdict code with its counts, and how many nodes lack which resource; "" for
    unknown codes."""
    text = TEXTS.get(code, "").format(needed=needed, placeable=placeable, members=members)
    lacking = ", ".join(f"{part.count} nodes lack {part.resource}" for part in nodes if part.resource)
    return f"{text}; {lacking}" if text and lacking else text


#: Texts without names for the codes of an unknown start (`PromisedStart.reason`).
START_TEXTS: Mapping[str, str] = MappingProxyType(
    {
        "NotPlannedYet": "not planned yet",
        "BeyondHorizon": "beyond the horizon of the plan",
        "NoEndKnown": "unknown: pods that must end first have no known end",
        "CannotEverRun": "never, as declared: it does not fit on the nodes even if they were empty",
        "NodesClosed": "unknown: the open nodes have no room for it even when they are empty",
        "DeadlineImpossible": "not before its deadline",
        "NotAnAmount": "unknown: it waits for something other than free resources",
        "Held": "unknown: it waits for something else first",
        "NotCalibrated": "no estimate of its probability yet",
    }
)


def start_text(reason: str) -> str:
    """Return the short message of the reason why a start is unknown; for an unknown reason the reason itself."""
    return START_TEXTS.get(reason, reason)


def eviction_text(reason: str) -> str:
    """Return the short message of an eviction's reason; for an unknown reason the reason itself."""
    return EVICTION_TEXTS.get(reason, reason)

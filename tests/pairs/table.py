"""The table of pairs: features, and the pairs that cannot meet."""

from __future__ import annotations

from itertools import combinations

from .feature import Feature
from .forms import (
    Admission,
    Composites,
    Devices,
    ElasticSurplus,
    ExpectedMembers,
    RunTimeLimit,
    SuspendedJobs,
    Topology,
)
from .obstacles import (
    AdvanceReservations,
    Maintenance,
    NodeBackoff,
    NominatedPods,
    Preempt,
    Reclaim,
    Resize,
    StartReservation,
)

FEATURES: tuple[type[Feature], ...] = (
    Preempt,
    Reclaim,
    ElasticSurplus,
    StartReservation,
    AdvanceReservations,
    Maintenance,
    RunTimeLimit,
    ExpectedMembers,
    Admission,
    SuspendedJobs,
    Devices,
    Topology,
    Composites,
    NodeBackoff,
    NominatedPods,
    Resize,
)

Pair = tuple[type[Feature], type[Feature]]

PAIRS: tuple[Pair, ...] = tuple(combinations(FEATURES, 2))

#: Pairs that cannot meet, each with the reason.
APART: dict[Pair, str] = {
    (ElasticSurplus, ExpectedMembers): "a member above the minimum is one of the expected members",
    (Admission, Composites): "the groups of a CompositePodGroup are native: they have no phase Inqueue",
    (SuspendedJobs, Composites): "a suspended job in a queue gets a PodGroup of Volcano's API, never a composite",
}


def title(pair: Pair) -> str:
    return f"{pair[0].name} and {pair[1].name}"

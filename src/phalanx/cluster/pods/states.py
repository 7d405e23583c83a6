"""States of pods and the events that change them, for the transition table (`table.TRANSITIONS`)."""

from __future__ import annotations

import enum

from phalanx.cluster.pods.records import PodRecord
from phalanx.model.pod import MemberState


class PodState(enum.IntEnum):
    """State of a pod in the scheduler. For its gang's counts, nominated equals pending, and evicting equals
    terminating."""

    PENDING = 0  # pending, for our schedulers
    NOMINATED = 1  # pending, for our schedulers, with reserved room
    GATED = 2  # has scheduling gates
    OTHER_SCHEDULER = 3  # pending, for another scheduler
    ASSUMED = 4  # placed by us; the API has not confirmed the binding yet (Volcano: Binding)
    BOUND = 5  # has a node, not running yet
    RUNNING = 6
    EVICTING = 7  # evicted by us; the API does not show it yet
    TERMINATING = 8
    SUCCEEDED = 9
    FAILED = 10
    GONE = 11


class PodEvent(enum.IntEnum):
    """Cause of a pod's change of state: a new state that the API shows, or a decision of the scheduler, such as to
    bind or evict the pod."""

    SEEN_PENDING = 0
    SEEN_GATED = 1
    SEEN_OTHER_SCHEDULER = 2
    SEEN_BOUND = 3
    SEEN_RUNNING = 4
    SEEN_SUCCEEDED = 5
    SEEN_FAILED = 6
    SEEN_TERMINATING = 7
    DELETED = 8
    NOMINATE = 9
    CANCEL_NOMINATION = 10
    ASSUME = 11
    BINDING_FAILED = 12
    EVICT = 13
    EVICTION_REFUSED = 14


SEEN: dict[MemberState, PodEvent] = {
    state: PodEvent[f"SEEN_{state.name}"] for state in MemberState if state is not MemberState.ASSUMED
}
# Late results: the pod has changed in between, and nothing is to be undone.
IGNORED = frozenset({PodEvent.CANCEL_NOMINATION, PodEvent.BINDING_FAILED, PodEvent.EVICTION_REFUSED})
_STATES = tuple(PodState[state.name] for state in MemberState)


class InvalidTransitionError(ValueError):
    """A decision about a pod that the pod's state does not permit."""


def state_of_record(record: PodRecord) -> PodState:
    state = record.state
    if state is MemberState.PENDING and record.nomination is not None:
        return PodState.NOMINATED
    if state is MemberState.TERMINATING and record.evicting and not record.pod.terminating:
        return PodState.EVICTING
    return _STATES[state]

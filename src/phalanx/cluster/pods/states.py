"""The states of a pod and what happens to it: the words of the table of its life (`table.TRANSITIONS`)."""

from __future__ import annotations

import enum

from phalanx.cluster.pods.records import PodRecord
from phalanx.model.pod import MemberState


class PodState(enum.IntEnum):
    """Where a pod stands; its gang does not tell nominated from pending, nor evicting from terminating."""

    PENDING = 0  # ours to place
    NOMINATED = 1  # ours to place, and room is held for it
    GATED = 2  # has scheduling gates
    OTHER_SCHEDULER = 3  # pending, but another scheduler's
    ASSUMED = 4  # placed by us; the API has not confirmed the binding yet (Volcano: Binding)
    BOUND = 5  # has a node, does not run yet
    RUNNING = 6
    EVICTING = 7  # told to leave by us; the API does not show that yet
    TERMINATING = 8
    SUCCEEDED = 9
    FAILED = 10
    GONE = 11


class PodEvent(enum.IntEnum):
    """What happens to a pod: the API shows it in a state, or something is decided for it."""

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
# Late answers: the pod has gone on meanwhile, and nothing is to be taken back.
IGNORED = frozenset({PodEvent.CANCEL_NOMINATION, PodEvent.BINDING_FAILED, PodEvent.EVICTION_REFUSED})
_STATES = tuple(PodState[state.name] for state in MemberState)


class InvalidTransitionError(ValueError):
    """A decision about a pod whose state does not allow it."""


def state_of_record(record: PodRecord) -> PodState:
    state = record.state
    if state is MemberState.PENDING and record.nomination is not None:
        return PodState.NOMINATED
    if state is MemberState.TERMINATING and record.evicting and not record.pod.terminating:
        return PodState.EVICTING
    return _STATES[state]

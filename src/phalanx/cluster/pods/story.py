"""What happened to pods last, and why: a bounded record, for whoever asks how a pod came to where it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import NamedTuple

from phalanx.cluster.pods.states import PodEvent, PodState

# So many transitions are told of one pod, and kept of all together.
PER_POD = 8
IN_ALL = 65_536


class Transition(NamedTuple):
    """`time` is in seconds since the epoch, `cause` names the decision, or its cycle ("" for what the API
    showed)."""

    time: float
    cause: str
    uid: str
    event: PodEvent
    before: PodState
    after: PodState


class PodStories:
    """The last transitions of all pods, in order. Whoever drives the state says what time it is and which cycle
    decides (`now`, `cycle`): the state has no clock. The table of pods appends to `ring` itself, once per step."""

    def __init__(self) -> None:
        self.now = 0.0
        self.cycle = ""
        self.ring: deque[tuple[float, str, str, PodEvent, PodState, PodState]] = deque(maxlen=IN_ALL)

    def of_pods(self, uids: Collection[str]) -> list[Transition]:
        """The last that happened to each of these since it became known, in order."""
        left = dict.fromkeys(uids, PER_POD)
        found: list[Transition] = []
        for each in map(Transition._make, reversed(self.ring)):
            if each.after is PodState.GONE:
                left.pop(each.uid, None)  # what was before concerns a former pod
            elif left.get(each.uid):
                found.append(each)
                left[each.uid] -= 1
        return found[::-1]

"""Stories of pods: a bounded record of their last changes of state and the causes."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import NamedTuple

from phalanx.cluster.pods.states import PodEvent, PodState

# Limits for the transitions shown of one pod, and stored of all.
PER_POD = 8
IN_ALL = 65_536


class Transition(NamedTuple):
    """Change of a pod's state. `time` is in seconds since the epoch; `cause` names the decision or its cycle (""
    for a change shown by the API)."""

    time: float
    cause: str
    uid: str
    event: PodEvent
    before: PodState
    after: PodState


# (time, cause, event, before, after) of a transition.
Step = tuple[float, str, PodEvent, PodState, PodState]


class PodStories:
    """The last transitions of all pods, in order. The driver of the state sets the time and the deciding cycle
    (`now`, `cycle`), as the state has no clock. `uids` and `steps` are rings of equal length; pods that change
    together share a step. The pod table appends to them itself."""

    def __init__(self) -> None:
        self.now = 0.0
        self.cycle = ""
        self.uids: deque[str] = deque(maxlen=IN_ALL)
        self.steps: deque[Step] = deque(maxlen=IN_ALL)

    def of_pods(self, uids: Collection[str]) -> list[Transition]:
        """Return the last changes of state of each of the pods since it became known, in order."""
        remaining = dict.fromkeys(uids, PER_POD)
        transitions: list[Transition] = []
        for uid, step in zip(reversed(self.uids), reversed(self.steps), strict=True):
            time, cause, event, before, after = step
            if after is PodState.GONE:
                remaining.pop(uid, None)  # earlier entries are about a former pod
            elif remaining.get(uid):
                transitions.append(Transition(time, cause, uid, event, before, after))
                remaining[uid] -= 1
        return transitions[::-1]

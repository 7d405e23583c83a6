"""What happened to pods last, and why: a bounded record, for whoever asks how a pod came to where it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from phalanx.cluster.pods.states import PodEvent, PodState

# So many transitions are kept of one pod, and of so many pods; who was quiet for longest is forgotten first.
PER_POD = 8
MOST_PODS = 20_000


class Transition(NamedTuple):
    """`number` counts all transitions, `time` is in seconds since the epoch, `cause` names the decision that it
    belongs to ("" for what the API showed)."""

    number: int
    time: float
    cause: str
    pod: str
    event: PodEvent
    before: PodState
    after: PodState


class PodStories:
    """The last transitions by the pods' uids. Whoever drives the state says what time it is and for what cause
    (`now`, `cause`): the state has no clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.cause = ""
        self._number = 0
        self._by_uid: dict[str, deque[Transition]] = {}

    def record(self, uid: str, pod: str, event: PodEvent, before: PodState, after: PodState) -> None:
        story = self._by_uid.pop(uid, None)
        if story is None:
            if len(self._by_uid) >= MOST_PODS:
                del self._by_uid[next(iter(self._by_uid))]
            story = deque(maxlen=PER_POD)
        self._by_uid[uid] = story
        self._number += 1
        cause = self.cause if event > PodEvent.DELETED else ""
        story.append(Transition(self._number, self.now, cause, pod, event, before, after))

    def forget(self, uid: str) -> None:
        self._by_uid.pop(uid, None)

    def of_pods(self, uids: Iterable[str]) -> list[Transition]:
        """What happened to these, in order."""
        return sorted(each for uid in uids for each in self._by_uid.get(uid, ()))

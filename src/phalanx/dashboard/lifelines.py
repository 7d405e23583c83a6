"""Times of creation, binding, start and end of single pods, from the API objects. Deleted pods are remembered for a
while."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from phalanx.dashboard.rows.entries import MemberLine
from phalanx.dialects.core import PodObject
from phalanx.dialects.pods.evictability import DISRUPTION_TARGET, PREEMPTION_BY_SCHEDULER
from phalanx.model.eviction_condition import EVICTION
from phalanx.model.gang import GangKey
from phalanx.model.pod import Pod
from phalanx.model.text.duration import format_moment

# Bounds of remembered deleted pods: in total and per gang.
_MOST_GONE = 20_000
_MOST_OF_GANG = 256


class Lifeline(msgspec.Struct, gc=False):
    """Times in the life of one pod, as the API writes them, "" for a step that did not happen yet."""

    uid: str
    namespace: str
    name: str
    phase: str = ""
    node: str = ""
    created: str = ""
    gated: bool = False
    bound: str = ""
    started: str = ""
    told: str = ""
    cause: str = ""
    reason: str = ""
    ended: str = ""
    gone: str = ""


class Lifelines:
    """Lifelines of pods by uid. The cluster state resolves the gang of a pod later (`assign`)."""

    def __init__(self) -> None:
        self._lines: dict[str, Lifeline] = {}
        self._of_gang: dict[GangKey, dict[str, None]] = {}
        self._gang_of: dict[str, GangKey] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()

    def seen(self, pod: PodObject) -> None:
        metadata, status = pod.metadata, pod.status
        line = self._lines.get(metadata.uid)
        if line is None:
            line = self._lines[metadata.uid] = Lifeline(metadata.uid, metadata.namespace, metadata.name)
        line.created = metadata.creation_timestamp
        line.phase = status.phase
        line.node = pod.spec.node_name
        line.gated = bool(pod.spec.scheduling_gates)
        line.started = status.start_time or line.started if status.phase != "Pending" else ""
        if metadata.deletion_timestamp and not line.told:
            line.told = metadata.deletion_timestamp
        exact = ""
        for condition in status.conditions:
            when = condition.last_transition_time or ""
            if (condition.type, condition.status) == ("PodScheduled", "True"):
                line.bound = when
            elif (condition.type, condition.status) == (DISRUPTION_TARGET, "True"):
                line.told, line.reason = when or line.told, condition.reason
                line.cause = f"{condition.reason}: {condition.message}"
            elif (condition.type, condition.status) == (EVICTION, "True"):
                exact = condition.reason
            elif condition.type == "Ready" and condition.status == "False" and condition.reason == "PodCompleted":
                line.ended = when
        line.reason = exact if exact and line.reason == PREEMPTION_BY_SCHEDULER else line.reason

    def assign(self, pod: Pod) -> None:
        key = GangKey(pod.namespace, pod.gang or f"pod/{pod.name}")
        if self._gang_of.get(pod.uid) != key:
            self._leave(pod.uid)
            self._gang_of[pod.uid] = key
            members = self._of_gang.setdefault(key, {})
            members[pod.uid] = None
            while len(members) > _MOST_OF_GANG and (first := next(iter(members))) in self._gone:
                self._forget(first)

    def left(self, uid: str, now: float) -> None:
        line = self._lines.get(uid)
        if line is None or line.gone:
            return
        line.gone = format_moment(int(now))
        self._gone[uid] = None
        if len(self._gone) > _MOST_GONE:
            self._forget(next(iter(self._gone)))

    def of(self, key: GangKey) -> list[Lifeline]:
        """Return the lifelines of a gang's pods, or of a single pod (its name after `pod/`), oldest first."""
        lines = (self._lines[uid] for uid in self._of_gang.get(key, ()) if uid in self._lines)
        return sorted(lines, key=lambda line: (line.created, line.name))

    def line(self, uid: str) -> Lifeline | None:
        return self._lines.get(uid)

    def _leave(self, uid: str) -> None:
        key = self._gang_of.pop(uid, None)
        if key is not None:
            members = self._of_gang[key]
            members.pop(uid, None)
            if not members:
                del self._of_gang[key]

    def _forget(self, uid: str) -> None:
        self._gone.pop(uid, None)
        self._lines.pop(uid, None)
        self._leave(uid)


def member_line(line: Lifeline, planned: int) -> MemberLine:
    """Return the lifeline of a pod in the page's form. `planned` is the time of the plan that places the pod, 0 for
    none."""
    if line.gone:
        state = "Gone"
    elif line.told:
        state = "Terminating"
    elif line.phase in ("Succeeded", "Failed"):
        state = line.phase
    elif line.phase == "Running":
        state = "Running"
    elif line.node:
        state = "Bound"
    else:
        state = "Gated" if line.gated else "Pending"
    return MemberLine(
        name=line.name,
        state=state,
        node=line.node,
        created=line.created,
        gated=line.gated,
        planned=format_moment(planned) if planned else "",
        bound=line.bound,
        started=line.started,
        told=line.told,
        cause=line.cause,
        reason=line.reason,
        ended=line.ended,
        gone=line.gone,
    )

"""States of pods before the dry run of `phalanx why`, and the answers that follow from these states alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from phalanx.model.pod import MemberState, Pod
from phalanx.model.text.duration import format_moment
from phalanx.reports.evicted_members import (
    advice_after_eviction,
    evicted_members_of,
)
from phalanx.reports.other_scheduler import of_other_scheduler
from phalanx.reports.snapshot import DisruptionTarget
from phalanx.reports.why_answer import WhyAnswer
from phalanx.views.gang_state import GangState, gang_state
from phalanx.views.record_facts import member_facts


class ObservedPods:
    """States of all pods of a snapshot, taken before a dry run evicts or places any pod."""

    def __init__(
        self,
        states: Mapping[str, MemberState],
        disruption_targets: Mapping[str, DisruptionTarget],
        schedulers: Collection[str],
    ) -> None:
        self._states, self._disruption_targets = states, disruption_targets
        self._schedulers = schedulers

    def state_of(self, pods: Sequence[Pod]) -> GangState:
        """Return the common state of pods that form no gang."""
        states = [self._states[pod.uid] for pod in pods]
        terminating = [pod for pod, state in zip(pods, states, strict=True) if state is MemberState.TERMINATING]
        evicted = sum(bool(pod.condemned) or pod.uid in self._disruption_targets for pod in terminating)
        return gang_state(member_facts(states, minimum=int(len(pods) == 1), evicted=evicted))

    def describe_other_scheduler(self, answer: WhyAnswer, pods: Sequence[Pod]) -> bool:
        """Describe a gang if all its pods name another scheduler; return whether they do."""
        skipped = [pod for pod in pods if self._states[pod.uid] is MemberState.OTHER_SCHEDULER]
        if not skipped or len(skipped) < len(pods):
            return False
        _set_other_scheduler(answer, skipped, self._schedulers, "the gang")
        return True

    def describe_pod(self, answer: WhyAnswer, pod: Pod) -> bool:
        """Describe a pod that needs no node (running, ended, gated, ...); return False for a pod that needs a
        node."""
        where = f" on node {pod.node}" if pod.node else ""
        match self._states[pod.uid]:
            case MemberState.RUNNING:
                answer.message = f"the pod runs{where}"
            case MemberState.BOUND:
                answer.message = f"the pod is bound to node {pod.node} and has not started yet"
            case MemberState.TERMINATING:
                answer.message = f"the pod is being deleted{where}"
                self._add_disruption_target(answer, pod)
            case MemberState.SUCCEEDED | MemberState.FAILED:
                answer.message = f"the pod has ended ({pod.phase.value})"
            case MemberState.GATED:
                answer.reason = "SchedulingGated"
                answer.message = "the pod has scheduling gates"
                answer.change = (
                    "wait until the controller that set spec.schedulingGates removes them, or remove them"
                )
            case MemberState.OTHER_SCHEDULER:
                _set_other_scheduler(answer, [pod], self._schedulers, "the pod")
            case _:
                return False
        return True

    def add_evicted_members(self, answer: WhyAnswer, pods: Iterable[Pod]) -> None:
        """Add the eviction of members to the answer about a gang whose members are being evicted."""
        terminating = (pod for pod in pods if self._states[pod.uid] is MemberState.TERMINATING)
        loss = answer.loss = evicted_members_of(terminating, self._disruption_targets)
        if loss is not None and answer.state is GangState.EVICTING:
            answer.reason, answer.change = loss.reason, advice_after_eviction(placed=bool(answer.uid))
            answer.message = f"{loss.told}: {loss.message}"

    def _add_disruption_target(self, answer: WhyAnswer, pod: Pod) -> None:
        target = self._disruption_targets.get(pod.uid)
        if target is not None:
            answer.reason = target.reason
            answer.message = f"the pod is being evicted from node {pod.node}: {target.sentence}"
        if pod.leaves:
            answer.message += f"; its grace period ends at {format_moment(pod.leaves)}"


def _set_other_scheduler(answer: WhyAnswer, pods: Sequence[Pod], ours: Collection[str], subject: str) -> None:
    verdict = of_other_scheduler(pods, ours, subject)
    answer.reason, answer.message, answer.change = verdict.code, verdict.message, verdict.change

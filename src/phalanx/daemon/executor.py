"""Turns plans into writes, and what became of them into knowledge."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from phalanx.cluster.members import GangRecord
from phalanx.cluster.state import ClusterState
from phalanx.daemon.group_status import GroupStatuses
from phalanx.daemon.narrator import Narrator
from phalanx.dialects.core import PodObject
from phalanx.dialects.notices import Notice
from phalanx.execution.binder import Binder, BindResult, Outcome
from phalanx.execution.conditions import ADMITTED, POD_SCHEDULED, PodConditions, condition_of
from phalanx.kube.conditions import PodCondition
from phalanx.model.decisions import Bind, Plan
from phalanx.model.gang import GangKey
from phalanx.model.pod import Pod
from phalanx.model.verdict import Verdict

log = logging.getLogger(__name__)

# A negative verdict is told when it has stood this long (seconds): pods of one gang are created one by one, and
# "1 of 5 members", "2 of 5" ... would be five times five writes for nothing.
_SETTLE = 0.3
_SETTLE_MEMBERS = 1.0
_NOT_A_MEMBER_YET = frozenset({"NotEnoughMembers", "PodGroupNotFound", "WaitingForBundle"})
# A binding that fails again and again waits this long before its pod is placed anew, doubling.
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 10.0
# What the API calls gone but the watch has not told us yet is placed anew after this long at the latest.
_WATCH_GRACE = 30.0


class Executor:
    """Binds at once; conditions, statuses and events follow when they have settled.

    Verdicts live here until they are contradicted, so that a status can be derived at any time. `wake` asks
    for another cycle.
    """

    def __init__(
        self,
        state: ClusterState,
        binder: Binder,
        conditions: PodConditions,
        narrator: Narrator,
    ) -> None:
        self._state = state
        self._binder = binder
        self._conditions = conditions
        self._narrator = narrator
        # Set by whoever wires the process: the statuses ask this executor for verdicts.
        self.statuses: GroupStatuses
        self.wake: Callable[[], None] = lambda: None
        self._gang_verdicts: dict[GangKey, Verdict] = {}
        self._pod_verdicts: dict[str, Verdict] = {}
        self._unsaid_gangs: dict[GangKey, asyncio.TimerHandle] = {}
        self._unsaid_pods: dict[str, asyncio.TimerHandle] = {}
        self._failures: dict[str, int] = {}

    def carry_out(self, plan: Plan) -> None:
        self._binder.submit(plan.binds)
        for bind in plan.binds:
            self._conditions.retract(bind.uid)
            self._hush_pod(bind.uid)
        self._narrator.placed(plan.binds)
        for admission in plan.admissions:
            self.statuses.admit(admission.gang)
        for gang in plan.gangs:
            self._gang(gang.gang, gang.verdict)
        for pod in plan.pods:
            self._pod(pod.uid, pod.verdict)

    def bound(self, result: BindResult) -> None:
        """Called by the binder, once per binding."""
        bind = result.bind
        if result.outcome is Outcome.BOUND:
            self._failures.pop(bind.uid, None)
            self._narrator.bound(bind)
            return
        log.warning("binding %s/%s to %s: %s", bind.namespace, bind.name, bind.node, result.message)
        loop = asyncio.get_running_loop()
        if result.outcome is Outcome.MOVED:
            loop.call_later(_WATCH_GRACE, self._forget, bind)
            return
        failures = self._failures.get(bind.uid, 0)
        self._failures[bind.uid] = failures + 1
        self._narrator.refused(bind, result.message)
        text = f"binding to node {bind.node} failed: {result.message}"
        self._conditions.say(
            bind.uid, bind.namespace, bind.name, PodCondition(POD_SCHEDULED, "False", "SchedulerError", text)
        )
        if failures == 0:
            self._forget(bind)
        else:
            loop.call_later(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (failures - 1)), self._forget, bind)

    def pod_seen(self, pod: PodObject) -> None:
        self._conditions.observe(
            pod.metadata.uid,
            [
                PodCondition(condition.type, condition.status, condition.reason, condition.message)
                for condition in pod.status.conditions
                if condition.type in (POD_SCHEDULED, ADMITTED)
            ],
        )

    def gang_touched(self, key: GangKey) -> None:
        self.statuses.touch(key)

    def tell(self, notices: Iterable[Notice]) -> None:
        for notice in notices:
            self._narrator.notice(notice)

    def pod_gone(self, uid: str) -> None:
        self._conditions.forget(uid)
        self._narrator.forget_pod(uid)
        self._failures.pop(uid, None)
        self._hush_pod(uid)

    def verdict(self, gang: GangKey) -> Verdict | None:
        """What was last decided about a gang that waits."""
        return self._gang_verdicts.get(gang)

    def _forget(self, bind: Bind) -> None:
        self._state.forget(bind.uid)
        self.wake()

    # verdicts

    def _gang(self, key: GangKey, verdict: Verdict | None) -> None:
        if verdict is None:
            self._gang_verdicts.pop(key, None)
            self._hush_gang(key)
            return
        self._gang_verdicts[key] = verdict
        self._hush_gang(key)
        self._unsaid_gangs[key] = asyncio.get_running_loop().call_later(_pause(verdict), self._say_gang, key)

    def _say_gang(self, key: GangKey) -> None:
        self._unsaid_gangs.pop(key, None)
        verdict, record = self._gang_verdicts.get(key), self._state.gangs.get(key)
        if verdict is None or record is None:
            self._gang_verdicts.pop(key, None)
            return
        condition = condition_of(verdict)
        for member in _waiting(record):
            self._conditions.say(member.uid, member.namespace, member.name, condition)
        self.statuses.touch(key)
        self._narrator.held(record, verdict)

    def _pod(self, uid: str, verdict: Verdict | None) -> None:
        self._hush_pod(uid)
        if verdict is None:
            return
        self._pod_verdicts[uid] = verdict
        self._unsaid_pods[uid] = asyncio.get_running_loop().call_later(_pause(verdict), self._say_pod, uid)

    def _say_pod(self, uid: str) -> None:
        self._unsaid_pods.pop(uid, None)
        verdict, record = self._pod_verdicts.pop(uid, None), self._state.pods.get(uid)
        if verdict is None or record is None or record.target or record.pod.node:
            return
        pod = record.pod
        self._conditions.say(uid, pod.namespace, pod.name, condition_of(verdict))
        self._narrator.pod_held(pod, verdict)

    def _hush_gang(self, key: GangKey) -> None:
        timer = self._unsaid_gangs.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _hush_pod(self, uid: str) -> None:
        self._pod_verdicts.pop(uid, None)
        timer = self._unsaid_pods.pop(uid, None)
        if timer is not None:
            timer.cancel()


def _pause(verdict: Verdict) -> float:
    return _SETTLE_MEMBERS if verdict.code in _NOT_A_MEMBER_YET else _SETTLE


def _waiting(record: GangRecord) -> list[Pod]:
    return [member.pod for _, member in sorted(record.pending.items())]

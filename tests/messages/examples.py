"""One rendered message for each code of verdicts, evictions and events, made by the scheduler's own code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import msgspec

from phalanx.dialects.gangs.naming import podgroup_missing
from phalanx.execution.conditions import text_of
from phalanx.execution.evictor import EvictionOutcome, EvictResult
from phalanx.kube.events import EventRecorder
from phalanx.model.account import Account, AccountKey, AccountState, Tree
from phalanx.model.decisions import Bind, Evict, EvictionReason, Nominate
from phalanx.model.events import AccountUpdated, PodUpdated
from phalanx.model.gang import Gang, GangKey, Problem
from phalanx.model.pod import PodPhase
from phalanx.model.verdict import NodeCount, Verdict
from phalanx.reports.other_scheduler import of_other_scheduler
from phalanx.scheduling.diagnosis import verdicts
from phalanx.scheduling.gang_placement.composite_verdicts import Waits
from phalanx.scheduling.gangs.quorum import quorum_requirement
from phalanx.scheduling.refusals.no_room import Shortage
from phalanx.scheduling.refusals.over_quota import OverQuota
from phalanx.scheduling.refusals.refusal import (
    Blocked,
    BlockedByFifo,
    NotAdmitted,
    VictimsTerminating,
    waiting_for_gang_group,
)
from phalanx.scheduling.refusals.waiting_for_nodes import waiting_for_nodes
from phalanx.status.event_publisher import EventPublisher
from phalanx.status.eviction_events import EvictionEvents
from phalanx.views.verdict_texts import TEXTS
from tests.cluster_content import MARK, REF, G, Recorded, pod, state_of
from tests.scheduling.scenario import Scenario

_MATE = GangKey("ns", "mate")
_GANG = Gang(G, source=REF, min_member=3, min_resources=(("cpu", 3000),))


def verdict_examples() -> Iterator[Verdict]:
    """Return a verdict for each code about gang ns/g, which requires 3 pods, or about pod ns/p."""
    state = state_of(pod("g-0"), gang=_GANG)
    state.apply(AccountUpdated(Account(AccountKey(Tree.QUEUE, "team"), label="queue team")))
    state.ledger.refresh()
    gang, queue = state.gangs[G], state.ledger.accounts[AccountKey(Tree.QUEUE, "team")]
    member = state.pods["uid-g-0"]
    cls = member.pod_class
    full = (NodeCount("Insufficient cpu", 4, "cpu"),)
    taint = (NodeCount("node(s) had untolerated taint {dedicated: ml}", 4),)
    missing = verdicts.members_missing(gang, _GANG, quorum_requirement(gang, _GANG))
    assert missing is not None
    yield missing
    yield Shortage(cls, 4, full, True, "free or add 1 cpu", placed=2, need=3).gang_verdict(gang)
    lacking = Shortage(cls, 4, full, True, need=3).gang_verdict(gang)
    yield waiting_for_nodes(gang, lacking, "cluster-autoscaler", 1_800_000_000)
    tolerate = "tolerate the taint {dedicated: ml} or remove it (makes 4 nodes eligible)"
    yield Shortage(cls, 4, taint, False, tolerate, need=3).gang_verdict(gang)
    field = "spec.resourceClaims: not supported by this version of Phalanx"
    remove = "remove these fields from the pod, or use another scheduler"
    yield Shortage(cls, 4, refusal=field, change=remove, need=3).gang_verdict(gang)
    unready = 'persistentvolumeclaim "data" not found'
    create = "create or correct the named object; the pod is retried then"
    yield Shortage(cls, 4, unready=unready, change=create, need=3).gang_verdict(gang)
    yield OverQuota(queue, "capability", "cpu", 4000, 2000, 3000, "raise its capability", need=3).gang_verdict(gang)
    yield Blocked("QueueOverused", "queue team: the extender reports the queue as overused").gang_verdict(gang)
    spent = (
        "queue team has used 40 of 40 cpu hours of its budget for 24h; the next window starts at "
        "2026-12-01T00:00:00Z"
    )
    wait = "wait until 2026-12-01T00:00:00Z, or raise the budget of queue team"
    yield Blocked("BudgetSpent", spent, wait).gang_verdict(gang)
    rejected = "plugin fairness rejects its start before gang ns/large, whose start is reserved"
    yield Blocked("BackfillRejected", rejected, "wait until gang ns/large starts").gang_verdict(gang)
    yield NotAdmitted().gang_verdict(gang)
    yield BlockedByFifo("queue team", "gang ns/first").gang_verdict(gang)
    yield VictimsTerminating(2, 3, ("node-0", "node-1")).gang_verdict(gang)
    why, remedy = "0 of the 2 required pods of gang ns/mate exist", "create 2 more pods of the gang"
    yield waiting_for_gang_group(str(G), str(_MATE), why, remedy)
    yield Waits(GangKey("ns", "tree"), 2, 1, None).gang_verdict_beside(gang, {})
    yield verdicts.scale_up_delayed(str(G), 3, 1_800_000_000)
    yield verdicts.not_considered(f"gang {G}", ("enqueue",))
    yield verdicts.planning_failed(f"gang {G}", "nodeorder", ValueError("x"))
    yield of_other_scheduler([pod("p", "", scheduler="volcano")], ["phalanx"], "pod ns/p")
    yield from _decided()


def _decided() -> Iterator[Verdict]:
    """Return verdicts of whole cycles."""
    world = (
        Scenario()
        .node("n", cpu=4)
        .queue("parent")
        .queue("child", parent="parent")
        .queue("shut", state=AccountState.CLOSED)
    )
    for name, queue in (("unknown", "nowhere"), ("inner", "parent"), ("closed", "shut")):
        world.job(name, 1, cpu=1).gang(name, 1, queue=queue)
    world.run()
    for name in ("unknown", "inner", "closed"):
        yield world.why(name)


def text_examples() -> dict[str, str]:
    """Return code -> message as pods, groups and events have it."""
    found = {verdict.code: text_of(verdict) for verdict in verdict_examples()}
    for code, text in _held_examples().items():
        found.setdefault(code, text)
    found |= _event_examples()
    found["SchedulingGated"] = TEXTS["SchedulingGated"]
    found["SchedulerError"] = TEXTS["SchedulerError"]
    found["WaitingForVolumes"] = TEXTS["WaitingForVolumes"]
    return found


def _held_examples() -> dict[str, str]:
    """Return the messages of gangs and pods whose declaration is at fault."""
    state = state_of(pod("g-0"), gang=_GANG)
    gang, member = state.gangs[G], state.pods["uid-g-0"]
    remedy = "write a whole number of at least 1, such as 3"
    wrong = Problem.of("InvalidPodGroup", f"PodGroup {G}: spec.minMember is 'many'", remedy)
    found = [
        verdicts.held_by_problem(gang, Gang(G, min_member=3, problem=problem))
        for problem in (podgroup_missing(G, "", True), wrong)
    ]
    problem = "spec.containers[0].resources.requests.cpu is 'x'"
    state.apply(PodUpdated(msgspec.structs.replace(member.pod, problem=problem)))
    found.append(verdicts.unreadable(state.pods["uid-g-0"]))
    return {verdict.code: text_of(verdict) for verdict in found}


def _event_examples() -> dict[str, str]:
    recorded = Recorded()
    members = [pod(f"g-{number}", node="n1", phase=PodPhase.RUNNING) for number in range(2)]
    state = state_of(*members, pod("p", ""), gang=_GANG)
    events = EventPublisher(cast(EventRecorder, recorded), state)
    bind = Bind("uid-p", "ns", "p", "n1")
    events.binding_answered(bind, bound=True)
    events.binding_refused(bind, "409 Conflict: pod p is already assigned to node n2")
    events.plan_timed_out(state.gangs[G], MARK, 2, released=True)
    evictions = EvictionEvents(cast(EventRecorder, recorded), state)
    why = "priority 0 gives way to priority 10"
    for reason in EvictionReason:
        decided = [
            Evict(
                member.uid,
                "ns",
                member.name,
                "n1",
                reason,
                why,
                "pod ns/p",
                G,
                reason,
            )
            for member in members
        ]
        evictions.evictions_decided(decided, [Nominate("uid-p", "ns", "p", "n1", reason)])
        for evict in decided:
            evictions.eviction_answered(EvictResult(evict, EvictionOutcome.EVICTED))
    return {reason: note for _, reason, note in recorded.events}

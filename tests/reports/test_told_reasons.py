"""What `phalanx jobs` makes of conditions is the reason that the scheduler had when it wrote them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from phalanx.dialects.families import kueue, native, own
from phalanx.dialects.gangs.naming import podgroup_missing
from phalanx.execution.conditions import text_of
from phalanx.model.account import Account, AccountKey, Tree
from phalanx.model.events import AccountUpdated
from phalanx.model.gang import Gang, Problem
from phalanx.model.verdict import NodeCount, Verdict
from phalanx.reports.jobs.entries import JobEntry
from phalanx.reports.jobs.read_documents import job_entry, read_pod
from phalanx.reports.jobs.told_reasons import told_reason
from phalanx.scheduling.diagnosis import verdicts
from phalanx.scheduling.gangs.quorum import quorum_requirement
from phalanx.scheduling.refusals.no_room import Gap, Shortage
from phalanx.scheduling.refusals.over_quota import OverQuota
from phalanx.scheduling.refusals.refusal import (
    Blocked,
    BlockedByFifo,
    NotAdmitted,
    VictimsTerminating,
    waiting_for_gang_group,
)
from tests.cluster_content import G, pod, state_of

TAINT, FULL = NodeCount("node(s) had untolerated taint {a: b}", 2), NodeCount("Insufficient cpu", 2)
Json = dict[str, Any]


def spoken() -> Iterator[Verdict]:
    """What the scheduler says of a gang of three, of which one member is there."""
    spec = Gang(G, min_member=3)
    state = state_of(pod("g-0"), gang=spec)
    state.apply(AccountUpdated(Account(AccountKey(Tree.QUEUE, "q"), label="Queue q")))
    gang, cls = state.gangs[G], state.pods["uid-g-0"].pod_class
    missing = verdicts.members_missing(gang, spec, quorum_requirement(gang, spec))
    assert missing is not None
    yield missing
    for told in (
        native._missing(G, "", True),
        native._missing(G, native._WORKLOAD_REF, True),
        own._missing(G, "", True),
        kueue._missing(G, "", True),
        podgroup_missing(G, "", True),
    ):
        yield verdicts.held_by_problem(gang, Gang(G, min_member=0, problem=Problem("PodGroupNotFound", told)))
    for facts in (
        Shortage(cls, 4, (TAINT, FULL), True, "add 1 cpu"),
        Shortage(cls, 2, (TAINT,), False, "tolerate the taint"),
        Shortage(cls, 0, (), False, "add a node"),
        Shortage(cls, 4, (TAINT,), True, "add 1 room"),
        Shortage(cls, 4, (FULL,), True, "add 1 cpu", where="r1 (rack), where other members are", part="w/0"),
        Shortage(cls, 4, unready="volume v is not bound", change="create what is named"),
        Shortage(cls, 4, refusal="spec.x", change="remove it"),
    ):
        yield facts.pod_verdict(state.pods["uid-g-0"])
        yield facts.gang_verdict(gang)
    state.ledger.refresh()
    account = state.ledger.accounts[AccountKey(Tree.QUEUE, "q")]
    yield OverQuota(account, "capability", "cpu", 1000, 1000, 1000, need=3).gang_verdict(gang)
    beyond = OverQuota(account, "capability", "cpu", 1000, 1000, 3000, need=3, beyond=("cpu", 3000, 2000))
    yield beyond.gang_verdict(gang)
    yield Blocked("QueueNotFound", "queue q does not exist").gang_verdict(gang)
    yield Blocked("QueueClosed", "Queue q is closed and takes nothing new").gang_verdict(gang)
    yield NotAdmitted().gang_verdict(gang)
    yield BlockedByFifo("Queue q", "gang ns/first").gang_verdict(gang)
    yield VictimsTerminating(1, 3, ("n",)).gang_verdict(gang)
    yield waiting_for_gang_group(str(G), str(G), "it has too few members")
    yield verdicts.unrequited(str(G), str(G), str(G))
    yield Gap((("cpu", 1000),)).gang_verdict(gang)
    yield verdicts.unreadable(state.pods["uid-g-0"])
    yield verdicts.planning_failed(f"gang {G}", "nodeorder", ValueError("x"))


@pytest.mark.parametrize("verdict", list(spoken()), ids=lambda each: f"{each.code}: {each.message[:30]}")
def test_behind_kubes_one_word_a_sentence_of_the_scheduler_gives_the_reason_away(verdict: Verdict) -> None:
    assert told_reason("Unschedulable", text_of(verdict)) == verdict.code
    assert told_reason("NotEnoughResources", verdict.message) == verdict.code


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("Unschedulable", ""),
        ("Unschedulable", "gang ns/g is held: its minimum is no number"),
        ("NotEnoughTasks", "1/2 tasks in gang unschedulable: pod group is not ready"),
        ("SchedulerError", "0/3 nodes are available: 3 Insufficient cpu."),
    ],
)
def test_what_says_nothing_definite_or_has_a_word_of_its_own_keeps_its_word(reason: str, message: str) -> None:
    assert told_reason(reason, message) == reason


def test_words_of_kube_scheduler_are_understood_too() -> None:
    some = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {a: b}. "
    none = "0/3 nodes are available: 3 node(s) had untolerated taint {a: b}. "
    afterwards = "preemption: 0/3 nodes are available: 3 Insufficient cpu."
    assert told_reason("Unschedulable", some + afterwards) == "NotEnoughResources"
    assert told_reason("Unschedulable", none + afterwards) == "NoEligibleNode"


def waiting(conditions: list[Json], of_group: list[Json]) -> JobEntry:
    """A gang of one pod with what both say."""
    metadata = {"namespace": "ns", "name": "g"}
    group = {"metadata": metadata, "spec": {"minMember": 1}, "status": {"conditions": of_group}}
    member = {"metadata": metadata, "status": {"phase": "Pending", "conditions": conditions}}
    return job_entry("gang", group, [read_pod(member)], [group], 0.0)


def condition(kind: str, status: str, reason: str, message: str) -> Json:
    return {"type": kind, "status": status, "reason": reason, "message": message}


ADMITTED, SCHEDULED = "phalanx.dev/Admitted", "PodScheduled"


def test_a_gang_that_a_quota_holds_says_so() -> None:
    told = waiting([condition(ADMITTED, "False", "QuotaExceeded", "max 2")], [])
    assert (told.reason, told.message) == ("QuotaExceeded", "max 2")


def test_that_a_quota_holds_it_is_newer_than_what_was_said_about_nodes() -> None:
    nodes = condition(SCHEDULED, "False", "Unschedulable", "0/1 nodes are available: 1 Insufficient cpu.")
    held = condition(ADMITTED, "False", "QuotaExceeded", "max 2")
    assert waiting([nodes, held], []).reason == "QuotaExceeded"
    assert waiting([nodes, condition(ADMITTED, "True", "Admitted", "")], []).reason == "NotEnoughResources"
    assert waiting([condition(SCHEDULED, "True", "", ""), held], []).reason == ""


def test_where_a_volcano_group_has_one_word_for_all_its_pods_have_the_reason() -> None:
    sentence = "gang ns/g cannot start: Queue q: the extender wants no more"
    group = condition("Unschedulable", "True", "NotEnoughResources", sentence)
    held = condition(ADMITTED, "False", "QueueOverused", f"{sentence}. To help: ask its owner.")
    assert waiting([held], [group]).reason == "QueueOverused"


def test_a_group_without_pods_says_that_its_queue_is_not_there() -> None:
    sentence = "gang s2/noq cannot start: queue nosuchqueue does not exist"
    group = {"status": {"conditions": [condition("Unschedulable", "True", "NotEnoughResources", sentence)]}}
    metadata = {"namespace": "s2", "name": "noq"}
    told = job_entry("gang", {"metadata": metadata, "spec": {"minMember": 2}, **group}, [], [group], 0.0)
    assert told.reason == "QueueNotFound"


def test_a_volcano_job_repeats_its_groups_sentence_and_is_read_likewise() -> None:
    state = {
        "phase": "Pending",
        "reason": "Unschedulable",
        "message": "gang ns/g cannot start: queue q does not exist",
    }
    job = {"metadata": {"namespace": "ns", "name": "g"}, "spec": {"tasks": []}, "status": {"state": state}}
    assert job_entry("vcjob", job, [], [], 0.0).reason == "QueueNotFound"

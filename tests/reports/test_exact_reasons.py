"""`phalanx jobs` reads from conditions the code that the scheduler had when it wrote them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from phalanx.dialects.families import kueue, native, own
from phalanx.dialects.gangs.naming import podgroup_missing
from phalanx.model.account import Account, AccountKey, Tree
from phalanx.model.events import AccountUpdated
from phalanx.model.gang import Gang
from phalanx.model.verdict import NamedObject, NodeCount, Verdict
from phalanx.model.verdict_condition import LAST_VERDICT, VerdictFields, read_told, told_fields
from phalanx.reports.jobs.entries import JobEntry
from phalanx.reports.jobs.read_documents import job_entry, read_pod
from phalanx.reports.other_scheduler import of_other_scheduler
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
from phalanx.views.verdict_texts import start_text
from tests.cluster_content import G, pod, state_of

TAINT, FULL = NodeCount("node(s) had untolerated taint {a: b}", 2), NodeCount("Insufficient cpu", 2, "cpu")
Json = dict[str, Any]


def spoken() -> Iterator[Verdict]:
    """Return the scheduler's message about a gang of three, of which one member exists."""
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
        yield verdicts.held_by_problem(gang, Gang(G, min_member=0, problem=told))
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
def test_exact_code_accompanies_the_generic_reason_of_kube_and_volcano_for_any_message(verdict: Verdict) -> None:
    exact = condition(LAST_VERDICT, "True", verdict.code, told_fields(verdict))
    of_pod = waiting([condition(SCHEDULED, "False", "Unschedulable", "x"), exact], [])
    of_group = waiting([], [condition("Unschedulable", "True", "NotEnoughTasks", "x"), exact])
    assert (of_pod.reason, of_group.reason) == (verdict.code, verdict.code)
    told = read_told(verdict.code, told_fields(verdict))
    assert told is not None
    assert (told.fields.needed, told.fields.members) == (verdict.needed, verdict.members)
    assert told.fields.objects == verdict.objects


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("Unschedulable", ""),
        ("Unschedulable", "0/3 nodes are available: 3 Insufficient cpu."),
        ("SchedulerError", "0/3 nodes are available: 3 Insufficient cpu."),
    ],
)
def test_condition_without_fields_keeps_its_word(reason: str, message: str) -> None:
    assert waiting([condition(SCHEDULED, "False", reason, message)], []).reason == reason


@pytest.mark.parametrize("reason", ["", "no code", "x" * 10, "A" * 64, "Quota-Exceeded", None, 7])
def test_last_verdict_that_is_no_code_is_left_aside(reason: Any) -> None:
    exact = {"type": LAST_VERDICT, "status": "True", "reason": reason, "message": "{}"}
    assert waiting([condition(SCHEDULED, "False", "Unschedulable", "x"), exact], []).reason == "Unschedulable"


@pytest.mark.parametrize("message", ["", "no JSON", "[" * 500, '{"needed": "x"}', "x" * 100_000, "null", None])
def test_last_verdict_with_unreadable_fields_is_its_code_alone(message: Any) -> None:
    told = read_told("QuotaExceeded", message)
    assert told is not None
    assert (told.code, told.fields) == ("QuotaExceeded", VerdictFields())


def test_too_many_objects_are_as_if_they_were_unknown() -> None:
    verdict = Verdict("QuotaExceeded", "", objects=tuple(NamedObject("Gang", f"g{n}", "ns") for n in range(17)))
    told = read_told(verdict.code, told_fields(verdict))
    assert told is not None
    assert told.fields.objects is None


def waiting(conditions: list[Json], of_group: list[Json]) -> JobEntry:
    """Return a gang of one pod with the conditions of both."""
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


def test_quota_reason_replaces_an_older_reason_about_nodes() -> None:
    nodes = condition(SCHEDULED, "False", "Unschedulable", "x")
    held = condition(ADMITTED, "False", "QuotaExceeded", "x")
    exact = condition(LAST_VERDICT, "True", "NotEnoughResources", "{}")
    assert waiting([nodes, held], []).reason == "QuotaExceeded"
    assert waiting([nodes, condition(ADMITTED, "True", "Admitted", ""), exact], []).reason == "NotEnoughResources"
    assert waiting([condition(SCHEDULED, "True", "", ""), held, exact], []).reason == ""


def test_where_a_volcano_group_has_one_word_for_all_its_pods_have_the_reason() -> None:
    group = condition("Unschedulable", "True", "NotEnoughResources", "x")
    held = condition(ADMITTED, "False", "QueueOverused", "y")
    assert waiting([held], [group]).reason == "QueueOverused"


def test_a_group_without_pods_says_that_its_queue_is_not_there() -> None:
    told = [
        condition("Unschedulable", "True", "NotEnoughResources", "x"),
        condition(LAST_VERDICT, "True", "QueueNotFound", "{}"),
    ]
    group = {"status": {"conditions": told}}
    metadata = {"namespace": "s2", "name": "noq"}
    found = job_entry("gang", {"metadata": metadata, "spec": {"minMember": 2}, **group}, [], [group], 0.0)
    assert found.reason == "QueueNotFound"


def test_a_volcano_job_has_the_exact_code_of_its_group() -> None:
    state = {"phase": "Pending", "reason": "Unschedulable", "message": "x"}
    job = {"metadata": {"namespace": "ns", "name": "g"}, "spec": {"tasks": []}, "status": {"state": state}}
    group = {"status": {"conditions": [condition(LAST_VERDICT, "True", "QueueNotFound", "{}")]}}
    assert job_entry("vcjob", job, [], [group], 0.0).reason == "QueueNotFound"
    assert job_entry("vcjob", job, [], [], 0.0).reason == "Unschedulable"


def test_pod_of_another_scheduler_is_advised_the_name_that_only_phalanx_serves() -> None:
    verdict = of_other_scheduler([pod("p", scheduler="other")], ("default-scheduler", "phalanx", "volcano"))
    assert "create the pods with spec.schedulerName: phalanx;" in verdict.change


def test_start_without_open_nodes_names_no_closed_nodes() -> None:
    # With an autoscaler no node is closed: further nodes can be created.
    assert start_text("NodesClosed") == "unknown: the open nodes have no room for it even when they are empty"

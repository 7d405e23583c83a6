"""Status of groups, transition by transition.

The rules: docs/rules/coscheduling.md, 2.3 and 4; docs/rules/volcano.md, 1.1; docs/rules/kubernetes_native.md,
N12.
"""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.status import StatusChange
from phalanx.model.gang import Gang, GangCounts, GangKey, GroupRef, MatchPolicy, Problem
from phalanx.model.verdict import Verdict
from phalanx.model.verdict_condition import LAST_VERDICT
from tests.dialects.objects import (
    KUBE_BATCH,
    KUBE_BATCH_DESIGN,
    KUBE_BATCH_LAST,
    NATIVE,
    NATIVE_1_36,
    SIGS,
    VOLCANO,
    WORKLOAD,
    X_K8S,
    desired_status,
)

NOW = 1_900_000_000
NOW_TEXT = "2030-03-17T17:46:40Z"
FULL = Verdict("NotEnoughResources", "0/4 nodes are available: 4 Insufficient nvidia.com/gpu.")
QUOTA = Verdict("QueueFull", "queue research is full", unschedulable=False)


def ref(resource: ServedKind, uid: str = "u1") -> GroupRef:
    return GroupRef(resource.group, resource.version, resource.kind, resource.plural, "default", "g", uid)


def change(
    resource: ServedKind,
    current: dict[str, Any] | None = None,
    *,
    minimum: int = 3,
    policy: MatchPolicy = MatchPolicy.WAITING_AND_RUNNING,
    roles: dict[str, int] | None = None,
    once_satisfied: bool = False,
    admitted: bool = False,
    role_counts: dict[str, GangCounts] | None = None,
    problem: Problem | None = None,
    occupied_by: str = "",
    verdict: Verdict | None = None,
    ever_scheduled: bool = False,
    now: int = NOW,
    fail_on_any_member: bool = False,
    generation: int = 0,
    **counts: int,
) -> StatusChange | None:
    gang = Gang(
        GangKey("default", "g"),
        source=ref(resource),
        min_member=minimum,
        match_policy=policy,
        roles=tuple(sorted((roles or {}).items())),
        problem=problem,
        once_satisfied=once_satisfied,
    )
    return desired_status(
        ref(resource),
        current or {},
        gang,
        GangCounts(**counts),
        roles=role_counts,
        occupied_by=occupied_by,
        verdict=verdict,
        ever_scheduled=ever_scheduled,
        admitted=admitted,
        now=now,
        generation=generation,
        options=DialectOptions(fail_on_any_member=fail_on_any_member),
    )


def written(resource: ServedKind, current: dict[str, Any] | None = None, **details: Any) -> dict[str, Any]:
    """Return the status after the change, as the API server merges it."""
    found = change(resource, current, **details)
    return {**(current or {}), **(found.patch["status"] if found else {})}


def phase(resource: ServedKind, current: str = "", **details: Any) -> str:
    return str(written(resource, {"phase": current} if current else {}, **details)["phase"])


ALL = [X_K8S, SIGS, VOLCANO, KUBE_BATCH, KUBE_BATCH_DESIGN, KUBE_BATCH_LAST, NATIVE, NATIVE_1_36]
SITUATIONS: list[dict[str, Any]] = [
    {},
    {"pending": 2, "verdict": FULL},
    {"pending": 4, "verdict": FULL, "occupied_by": "default/job"},
    {"pending": 1, "running": 2, "verdict": QUOTA},
    {"bound": 3},
    {"running": 3, "failed": 1},
    {"running": 1, "failed": 3, "verdict": FULL},
    {"succeeded": 3},
    {"gated": 3},
    {"terminating": 3},
    {"pending": 3, "problem": Problem("InvalidPodGroup", "bad")},
    {"pending": 3, "problem": Problem("PriorityMismatch", "bad")},
]


@pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.api_version)
@pytest.mark.parametrize("situation", SITUATIONS, ids=str)
def test_steady_state_writes_nothing(resource: ServedKind, situation: dict[str, Any]) -> None:
    status = written(resource, **situation)
    assert change(resource, status, now=NOW + 3600, **situation) is None


@pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.api_version)
@pytest.mark.parametrize("before", SITUATIONS, ids=str)
def test_any_situation_settles_after_one_write(resource: ServedKind, before: dict[str, Any]) -> None:
    status = written(resource, **before)
    for after in SITUATIONS:
        settled = written(resource, status, now=NOW + 60, **after)
        assert change(resource, settled, now=NOW + 120, **after) is None


def test_change_has_the_uid_and_only_differing_fields() -> None:
    found = change(X_K8S, {"phase": "Scheduling", "running": 1}, running=2, pending=1)
    assert found is not None
    assert found == StatusChange(ref(X_K8S), {"metadata": {"uid": "u1"}, "status": {"running": 2}})


@pytest.mark.parametrize(
    "garbage", [{"phase": 3}, {"conditions": "x"}, {"conditions": [1, {"type": 2}]}, {"running": "x"}]
)
@pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.api_version)
def test_unreadable_status_is_written_from_scratch(resource: ServedKind, garbage: dict[str, Any]) -> None:
    settled = written(resource, garbage, pending=3, verdict=FULL)
    assert change(resource, settled, pending=3, verdict=FULL) is None


# scheduling.x-k8s.io


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({}, "Pending"),
        ({"pending": 2}, "Pending"),
        ({"pending": 2, "gated": 1}, "Pending"),
        ({"pending": 2, "terminating": 1}, "Pending"),
        ({"pending": 3}, "Scheduling"),
        ({"pending": 1, "bound": 2}, "Scheduling"),
        ({"bound": 3}, "Scheduling"),
        ({"running": 2, "bound": 1}, "Scheduling"),
        ({"running": 3}, "Running"),
        ({"running": 2, "succeeded": 1}, "Running"),
        ({"running": 1, "succeeded": 2, "failed": 5}, "Running"),
        ({"running": 3, "failed": 1}, "Running"),
        ({"running": 2, "failed": 1}, "Failed"),
        ({"running": 2, "failed": 1, "pending": 1}, "Scheduling"),
        ({"running": 2, "failed": 1, "gated": 1}, "Pending"),
        ({"succeeded": 3}, "Finished"),
        ({"succeeded": 3, "failed": 2}, "Finished"),
    ],
    ids=str,
)
def test_x_k8s_phase_is_derived_from_the_pods(counts: dict[str, Any], expected: str) -> None:
    assert phase(X_K8S, **counts) == expected


def test_x_k8s_finished_is_final_and_failed_is_not() -> None:
    assert change(X_K8S, {"phase": "Finished", "succeeded": 3}, pending=3) is None
    assert phase(X_K8S, "Failed", running=2, failed=1, pending=1) == "Scheduling"
    assert phase(X_K8S, "Failed", running=3, failed=1) == "Running"


def test_x_k8s_any_failed_member_can_be_made_to_count_as_upstream_does() -> None:
    assert phase(X_K8S, fail_on_any_member=True, running=4, failed=1) == "Failed"
    assert phase(X_K8S, fail_on_any_member=True, running=1, failed=1, pending=3) == "Scheduling"
    assert phase(X_K8S, fail_on_any_member=True, succeeded=3, failed=1) == "Finished"


def test_x_k8s_finished_members_count_only_where_the_policy_says_so() -> None:
    counted = MatchPolicy.WAITING_RUNNING_SUCCEEDED
    assert phase(X_K8S, pending=2, succeeded=1) == "Pending"
    assert phase(X_K8S, pending=2, succeeded=1, policy=counted) == "Scheduling"


def test_x_k8s_owner_of_the_first_members_occupies_the_group() -> None:
    assert "occupiedBy" not in written(X_K8S, pending=1, occupied_by="default/job")
    assert written(X_K8S, pending=3, occupied_by="default/job")["occupiedBy"] == "default/job"
    assert (
        written(X_K8S, {"occupiedBy": "default/a"}, pending=3, occupied_by="default/b")["occupiedBy"] == "default/a"
    )


def test_x_k8s_has_neither_conditions_nor_a_start_time() -> None:
    status = written(X_K8S, pending=1, running=2, failed=1, verdict=FULL)
    assert status == {"phase": "Scheduling", "running": 2, "failed": 1}


# scheduling.sigs.k8s.io


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"pending": 2}, "Pending"),
        ({"pending": 3}, "PreScheduling"),
        ({"pending": 2, "bound": 1}, "Scheduling"),
        ({"bound": 3}, "Scheduled"),
        ({"running": 2, "bound": 1}, "Scheduled"),
        ({"running": 3}, "Running"),
        ({"bound": 1, "succeeded": 2}, "Scheduled"),
        ({"running": 2}, "Pending"),
        ({"running": 1, "failed": 2}, "Failed"),
        ({"succeeded": 3}, "Finished"),
        ({}, "Pending"),
    ],
    ids=str,
)
def test_sigs_status_uses_its_older_names(counts: dict[str, Any], expected: str) -> None:
    assert phase(SIGS, **counts) == expected


def test_sigs_counts_scheduled_members_and_stamps_the_start_once() -> None:
    assert "scheduleStartTime" not in written(SIGS, pending=3)
    started = written(SIGS, pending=1, bound=1, running=1)
    assert (started["scheduled"], started["scheduleStartTime"]) == (2, NOW_TEXT)
    assert written(SIGS, started, running=3, now=NOW + 60)["scheduleStartTime"] == NOW_TEXT


# scheduling.volcano.sh


@pytest.mark.parametrize(
    ("current", "situation", "expected"),
    [
        ("", {}, "Pending"),
        ("Pending", {"pending": 3}, "Pending"),
        ("Inqueue", {}, "Inqueue"),
        ("Inqueue", {"pending": 3, "verdict": FULL}, "Inqueue"),
        ("Inqueue", {"bound": 3}, "Running"),
        ("Inqueue", {"bound": 2, "pending": 1}, "Inqueue"),
        ("Running", {"running": 2, "pending": 1, "verdict": FULL}, "Unknown"),
        ("Running", {"running": 3, "pending": 1, "verdict": FULL}, "Running"),
        ("Unknown", {"running": 3}, "Running"),
        ("Unknown", {}, "Inqueue"),
        ("Running", {"running": 1, "succeeded": 2}, "Running"),
        ("Running", {"succeeded": 2, "failed": 1}, "Completed"),
        ("Running", {"succeeded": 2, "terminating": 1}, "Running"),
        ("Running", {}, "Inqueue"),
        ("Running", {"pending": 3}, "Inqueue"),
        ("Running", {"pending": 3, "verdict": FULL}, "Inqueue"),
        ("Completed", {"pending": 3}, "Inqueue"),
        ("Completed", {}, "Completed"),
    ],
    ids=str,
)
def test_volcano_phase_is_derived_from_the_pods(current: str, situation: dict[str, Any], expected: str) -> None:
    assert phase(VOLCANO, current, **situation) == expected


def condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    (found,) = [entry for entry in status.get("conditions", []) if entry["type"] == kind]
    return dict(found)


def test_volcano_held_group_has_a_condition_with_the_reason() -> None:
    assert condition(written(VOLCANO, pending=3, verdict=FULL), "Unschedulable") == {
        "type": "Unschedulable",
        "status": "True",
        "reason": "NotEnoughResources",
        "message": FULL.message,
        "transitionID": str(NOW),
        "lastTransitionTime": NOW_TEXT,
    }


@pytest.mark.parametrize(
    ("situation", "reason"),
    [
        ({"pending": 2, "verdict": FULL}, "NotEnoughTasks"),
        ({"pending": 2, "gated": 1, "verdict": FULL}, "NotEnoughTasks"),
        (
            {
                "pending": 3,
                "verdict": FULL,
                "roles": {"ps": 1, "worker": 2},
                "role_counts": {"worker": GangCounts(pending=3)},
            },
            "NotEnoughPodsOfTask",
        ),
        ({"pending": 3, "verdict": FULL}, "NotEnoughResources"),
        ({"pending": 3, "problem": Problem("UnsupportedField", "no topology")}, "UnsupportedField"),
    ],
)
def test_volcano_reason_is_derived_from_the_verdict(situation: dict[str, Any], reason: str) -> None:
    assert condition(written(VOLCANO, **situation), "Unschedulable")["reason"] == reason


def test_volcano_ready_group_is_scheduled_and_no_longer_unschedulable() -> None:
    held = written(VOLCANO, pending=3, verdict=FULL)
    status = written(VOLCANO, held, bound=3, now=NOW + 60)
    scheduled = condition(status, "Scheduled")
    assert (scheduled["status"], scheduled["reason"]) == ("True", "tasks in gang are ready to be scheduled")
    assert condition(status, "Unschedulable")["status"] == "False"


def test_volcano_role_below_its_minimum_is_not_ready() -> None:
    roles: dict[str, Any] = {"roles": {"ps": 1}, "role_counts": {"worker": GangCounts(running=3)}}
    status = written(VOLCANO, running=3, verdict=FULL, **roles)
    assert status["phase"] == "Unknown"
    assert condition(status, "Unschedulable")["reason"] == "NotEnoughPodsOfTask"


def test_volcano_transition_time_changes_only_when_the_status_flips() -> None:
    held = written(VOLCANO, pending=3, verdict=FULL)
    other = written(VOLCANO, held, pending=2, verdict=FULL, now=NOW + 60)
    told = condition(other, "Unschedulable")
    assert (told["reason"], told["lastTransitionTime"], told["transitionID"]) == (
        "NotEnoughTasks",
        NOW_TEXT,
        str(NOW + 60),
    )
    ready = written(VOLCANO, other, bound=3, now=NOW + 120)
    assert condition(ready, "Unschedulable")["lastTransitionTime"] == "2030-03-17T17:48:40Z"


def test_volcano_conditions_of_other_writers_are_preserved() -> None:
    theirs = {"type": "Custom", "status": "True", "reason": "x"}
    assert written(VOLCANO, {"conditions": [theirs]}, pending=3, verdict=FULL)["conditions"][0] == theirs


def test_volcano_admission_is_one_step_from_pending() -> None:
    for current in ("", "Pending", "Inqueue"):
        assert phase(VOLCANO, current, admitted=True) == "Inqueue"
    assert phase(VOLCANO, "Pending", admitted=True, bound=3) == "Running"


def test_volcano_admitted_group_never_returns_to_pending() -> None:
    """Operators that wait for their group would create no replacements of lost pods."""
    for current in ("Inqueue", "Running", "Unknown", "Completed"):
        for counts in ({}, {"pending": 3}, {"running": 1}, {"failed": 1}, {"terminating": 1}, {"gated": 3}):
            for admitted in (False, True):
                assert phase(VOLCANO, current, admitted=admitted, **counts) != "Pending"


# kube-batch

FAMILY = [KUBE_BATCH, KUBE_BATCH_DESIGN, KUBE_BATCH_LAST]


@pytest.mark.parametrize("resource", FAMILY, ids=lambda resource: resource.group)
@pytest.mark.parametrize(
    ("current", "situation", "expected"),
    [
        ("", {}, "Pending"),
        ("Pending", {"pending": 3, "verdict": FULL}, "Pending"),
        ("Pending", {"bound": 3}, "Running"),
        ("Running", {"running": 2, "pending": 1, "verdict": FULL}, "Unknown"),
        ("Unknown", {"running": 3}, "Running"),
        ("Unknown", {}, "Pending"),
        ("Running", {"succeeded": 3}, "Running"),
    ],
    ids=str,
)
def test_kube_batch_phase_is_derived_from_the_pods(
    resource: ServedKind, current: str, situation: dict[str, Any], expected: str
) -> None:
    assert phase(resource, current, **situation) == expected


def test_kube_batch_has_the_condition_unschedulable_only() -> None:
    held = written(KUBE_BATCH, pending=2, verdict=FULL)
    assert condition(held, "Unschedulable")["reason"] == "NotEnoughTasks"
    ready = written(KUBE_BATCH, held, bound=3)
    told = [(entry["type"], entry["status"]) for entry in ready["conditions"] if entry["type"] != LAST_VERDICT]
    assert told == [("Unschedulable", "False")]
    assert "conditions" not in written(KUBE_BATCH, bound=3)


@pytest.mark.parametrize("resource", [KUBE_BATCH, KUBE_BATCH_DESIGN, KUBE_BATCH_LAST, VOLCANO], ids=str)
def test_group_below_its_quorum_has_a_condition_although_no_member_waits(resource: ServedKind) -> None:
    ready = written(resource, running=3)
    lost = written(resource, ready, running=2, failed=1)
    told = condition(lost, "Unschedulable")
    assert (lost["phase"], told["status"], told["reason"]) == ("Unknown", "True", "NotEnoughTasks")
    assert told["message"] == "only 2 of the 3 required pods of gang default/g exist (not counted: 1 failed)"
    healed = written(resource, lost, running=3)
    assert (healed["phase"], condition(healed, "Unschedulable")["status"]) == ("Running", "False")


@pytest.mark.parametrize("resource", [KUBE_BATCH, VOLCANO], ids=str)
@pytest.mark.parametrize(
    "situation",
    [{"running": 2, "succeeded": 1}, {"running": 2, "bound": 1, "failed": 1}, {"running": 2, "pending": 1}],
)
def test_group_with_enough_members_has_no_lost_condition(resource: ServedKind, situation: dict[str, Any]) -> None:
    status = written(resource, **situation)
    assert status["phase"] != "Unknown"
    assert [entry for entry in status.get("conditions", []) if entry["type"] == "Unschedulable"] == []


def test_group_that_lost_the_members_of_one_role_names_the_role() -> None:
    roles: dict[str, Any] = {"roles": {"ps": 1}, "role_counts": {"worker": GangCounts(running=3)}}
    told = condition(written(VOLCANO, running=3, failed=1, **roles), "Unschedulable")
    assert told["reason"] == "NotEnoughPodsOfTask"
    assert told["message"].endswith("has too few pods of role ps (not counted: 1 failed)")


def test_kube_batch_design_counts_admitted_pods() -> None:
    assert written(KUBE_BATCH_DESIGN, pending=1, bound=1, running=1, failed=1)["admitted"] == 3
    assert "admitted" not in written(KUBE_BATCH, bound=1)


# The native API


def native(current: dict[str, Any] | None = None, resource: ServedKind = NATIVE, **details: Any) -> Any:
    found = change(resource, current, **details)
    if found is None:
        return None
    assert found.strategic
    (told,) = (entry for entry in found.patch["status"]["conditions"] if entry["type"] != LAST_VERDICT)
    return told


@pytest.mark.parametrize(
    ("resource", "kind"), [(NATIVE_1_36, "PodGroupScheduled"), (NATIVE, "PodGroupInitiallyScheduled")]
)
def test_native_each_version_has_its_condition(resource: ServedKind, kind: str) -> None:
    assert native(resource=resource, running=3, generation=4) == {
        "type": kind,
        "status": "True",
        "reason": "Scheduled",
        "message": "the members that the policy asks for have been placed",
        "observedGeneration": 4,
        "lastTransitionTime": NOW_TEXT,
    }


@pytest.mark.parametrize(
    ("situation", "reason"),
    [
        ({"pending": 3, "verdict": FULL}, "Unschedulable"),
        ({"pending": 3, "problem": Problem("UnknownPolicy", "?")}, "Unschedulable"),
        ({"pending": 3, "problem": Problem("SchedulerNameMismatch", "?")}, "SchedulerError"),
    ],
)
def test_native_unplaceable_group_has_a_condition_with_the_reason(situation: dict[str, Any], reason: str) -> None:
    told = native(**situation)
    assert (told["status"], told["reason"]) == ("False", reason)


def test_native_no_condition_is_written_before_a_decision() -> None:
    assert native(pending=3) is None


def test_native_group_blocked_by_a_quota_has_our_condition_and_is_never_unschedulable() -> None:
    told = native(pending=3, verdict=QUOTA, generation=2)
    assert told == {
        "type": "phalanx.dev/Admitted",
        "status": "False",
        "reason": QUOTA.code,
        "message": QUOTA.message,
        "observedGeneration": 2,
        "lastTransitionTime": NOW_TEXT,
    }
    whole = change(NATIVE, pending=3, verdict=QUOTA, generation=2)
    assert whole is not None
    assert native(whole.patch["status"], pending=3, verdict=QUOTA, generation=2) is None


def test_native_unschedulable_group_that_a_quota_blocks_is_no_longer_unschedulable() -> None:
    lacking = native(pending=3, verdict=FULL)
    found = change(NATIVE, {"conditions": [lacking]}, pending=3, verdict=QUOTA)
    assert found is not None
    told = {entry["type"]: (entry["status"], entry["reason"]) for entry in found.patch["status"]["conditions"]}
    assert told == {
        "PodGroupInitiallyScheduled": ("False", QUOTA.code),
        "phalanx.dev/Admitted": ("False", QUOTA.code),
        LAST_VERDICT: ("True", QUOTA.code),
    }


@pytest.mark.parametrize("resource", [KUBE_BATCH, VOLCANO, NATIVE, NATIVE_1_36], ids=str)
def test_exact_code_is_written_beside_the_reason_of_each_kind_of_group(resource: ServedKind) -> None:
    found = change(resource, pending=3, verdict=Verdict("QueueNotFound", "x", needed=3))
    assert found is not None
    told = condition(found.patch["status"], LAST_VERDICT)
    assert (told["status"], told["reason"]) == ("True", "QueueNotFound")
    status = {**found.patch["status"]}
    assert change(resource, status, pending=3, verdict=Verdict("QueueNotFound", "x", needed=3)) is None


def test_native_admitted_group_has_our_condition_written_once() -> None:
    held = {"conditions": [native(pending=3, verdict=QUOTA)]}
    found = change(NATIVE, held, bound=3, now=NOW + 60)
    assert found is not None
    told = {entry["type"]: (entry["status"], entry["reason"]) for entry in found.patch["status"]["conditions"]}
    assert told == {
        "PodGroupInitiallyScheduled": ("True", "Scheduled"),
        "phalanx.dev/Admitted": ("True", "Admitted"),
    }
    assert change(NATIVE, {"conditions": found.patch["status"]["conditions"]}, bound=3) is None


def test_native_only_conditions_are_written() -> None:
    found = change(NATIVE, {"resourceClaimStatuses": [{"name": "a"}]}, pending=3, verdict=FULL)
    assert found is not None
    assert found.patch.keys() <= {"metadata", "status"}
    assert found.patch.get("metadata", {}).keys() <= {"uid"}
    assert found.patch["status"].keys() == {"conditions"}


@pytest.mark.parametrize("resource", [NATIVE, NATIVE_1_36])
def test_native_condition_true_is_final(resource: ServedKind) -> None:
    current = {"conditions": [native(resource=resource, running=3)]}
    assert native(current, resource=resource, pending=3, verdict=FULL) is None


def test_native_reached_quorum_counts_even_when_its_members_are_gone() -> None:
    assert native(ever_scheduled=True, pending=1)["status"] == "True"


def test_native_changed_text_preserves_the_time_and_a_flip_changes_it() -> None:
    current = {"conditions": [native(pending=3, verdict=FULL)]}
    other = native(current, pending=3, verdict=Verdict("X", "another text"), now=NOW + 60)
    assert (other["message"], other["lastTransitionTime"]) == ("another text", NOW_TEXT)
    assert native(current, bound=3, now=NOW + 60)["lastTransitionTime"] == "2030-03-17T17:47:40Z"


def test_native_workload_has_no_status() -> None:
    assert change(WORKLOAD, running=3) is None


# Once-satisfied writes nothing to the object


@pytest.mark.parametrize("resource", [SIGS, NATIVE])
def test_satisfied_once_is_not_written_where_other_writers_can_write(resource: ServedKind) -> None:
    found = change(resource, pending=1, policy=MatchPolicy.ONCE_SATISFIED, ever_scheduled=True)
    assert found is not None
    assert found.annotations == {}


def test_volcano_group_with_surplus_counts_its_members_on_nodes() -> None:
    grown = written(VOLCANO, running=4, pending=2)
    told = condition(grown, "AllMembersPlaced")
    assert (told["status"], told["message"]) == ("False", "4 of 6 members have nodes, 3 are the minimum")
    whole = condition(written(VOLCANO, grown, running=6, now=NOW + 60), "AllMembersPlaced")
    assert (whole["status"], whole["reason"]) == ("True", "Scheduled")
    assert "AllMembersPlaced" not in [entry["type"] for entry in written(VOLCANO, running=3)["conditions"]]


def test_volcano_waiting_surplus_makes_no_group_unschedulable() -> None:
    """E2.5 of elastic gangs: the group has its minimum."""
    status = written(VOLCANO, running=3, pending=2)
    assert status["phase"] == "Running"
    assert "Unschedulable" not in [entry["type"] for entry in status["conditions"]]

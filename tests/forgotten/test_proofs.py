"""Tests that prove each duty: the list is complete, and the tests exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
HERE = "forgotten/test_constraints.py"

# Duties that are forgotten most often, and the tests that prove them: file (under tests/), then their names.
DUTIES: dict[int, tuple[str, dict[str, tuple[str, ...]]]] = {
    1: (
        "the uid goes with every binding and deletion",
        {
            "execution/test_binder.py": ("test_created_binding_is_bound",),
            "execution/test_evictor.py": ("test_replacement_of_a_pod_is_not_evicted",),
            "execution/test_on_a_server.py": ("test_neither_a_replacement_nor_a_missing_pod_is_evicted",),
        },
    ),
    2: (
        "a conflict with our own try may be success: look",
        {"execution/test_binder.py": ("test_conflict_with_our_own_lost_request_counts_as_bound",)},
    ),
    3: ("the arithmetic of requests", {HERE: ("test_03",), "differential/test_tables.py": ("test_we_agree",)}),
    4: ("a resize arrives as a change of a bound pod", {HERE: ("test_04",)}),
    5: ("terminating pods hold what they have, and are not spread away from", {HERE: ("test_05",)}),
    6: ("anti-affinity is symmetric, whoever scheduled the other", {HERE: ("test_06",)}),
    7: ("host ports on every address", {HERE: ("test_07",)}),
    8: (
        "volumes are bound before their pods",
        {
            "execution/test_preparation.py": ("test_all_pods_are_prepared_before_any_is_bound",),
            "e2e/test_volumes.py": ("test_volumes_of_a_gang_are_there_before_any_of_its_pods_is_bound",),
        },
    ),
    9: ("ReadWriteOncePod", {HERE: ("test_09",)}),
    10: ("drivers attach so many volumes", {HERE: ("test_10",)}),
    11: ("nominated pods count", {HERE: ("test_11",)}),
    12: (
        "gated pods are not judged",
        {
            "execution/test_conditions.py": ("test_gated_pods_get_no_condition",),
            "e2e/test_gangs.py": ("test_gated_members_wait_for_their_gates_and_are_left_alone",),
        },
    ),
    13: (
        "who waits for a quota is not Unschedulable",
        {"execution/test_conditions.py": ("test_pod_blocked_by_queue_order_is_not_unschedulable",)},
    ),
    14: (
        "conditions of others survive ours",
        {
            "execution/test_conditions.py": ("test_conditions_of_other_writers_are_preserved",),
            "execution/test_evictor.py": ("test_conditions_of_other_writers_survive_an_eviction",),
        },
    ),
    15: (
        "messages are stable",
        {HERE: ("test_15",), "execution/test_conditions.py": ("test_unchanged_verdict_is_not_written",)},
    ),
    16: (
        "a victim is told before it is deleted",
        {
            "execution/test_evictor.py": (
                "test_pod_gets_the_eviction_condition_and_is_then_deleted",
                "test_pod_whose_condition_cannot_be_written_is_not_deleted",
            )
        },
    ),
    17: (
        "disruption budgets count over all victims, and what was granted is granted",
        {
            "scheduling/test_eviction_limits.py": (
                "test_disruption_budget_counts_the_whole_set_of_victims",
                "test_eviction_granted_by_the_api_server_is_not_counted_again",
            ),
            "scheduling/test_preempt.py": ("test_disruption_budget_counts_over_the_whole_set_of_victims",),
        },
    ),
    18: (
        "nobody is preempted again while victims leave",
        {"scheduling/test_preempt.py": ("test_no_second_preemption_starts_while_victims_terminate",)},
    ),
    19: (
        "a version that is too old is told within a watch",
        {"kube/test_reflector.py": ("test_expired_version_causes_a_new_list_whose_absences_are_deletions",)},
    ),
    20: (
        "a connection that is silent is dead",
        {"kube/test_reflector.py": ("test_silence_longer_than_allowed_is_a_dead_connection",)},
    ),
    21: (
        "what a list lacks is deleted, and a namesake is another",
        {
            "kube/test_reflector.py": (
                "test_expired_version_causes_a_new_list_whose_absences_are_deletions",
                "test_a_new_uid_in_a_watch_is_a_deletion_and_a_creation",
            ),
            "dialects/test_intake.py": ("test_same_name_with_a_new_uid_is_another_pod",),
        },
    ),
    22: (
        "lists are consistent, never of any version that is at hand",
        {"kube/test_reflector.py": ("test_lists_then_watches_from_the_lists_version",)},
    ),
    23: (
        "who takes over lists before it binds",
        {
            "e2e/test_leadership.py": (
                "test_standby_caches_the_cluster_and_lists_pods_again_when_it_becomes_leader",
                "test_a_standby_takes_over_when_the_leader_dies",
            )
        },
    ),
    24: (
        "the lease is renewed beside the cycle, by a clock that only goes forward",
        {
            "kube/test_lease.py": (
                "test_on_its_own_thread_it_leads_and_gives_back",
                "test_trust_counts_from_before_the_renewal_was_sent",
            )
        },
    ),
    25: ("a FlowSchema of our own", {"forgotten/test_priority.py": ("test_25",)}),
    26: (
        "who is asked to wait waits",
        {
            "execution/test_binder.py": ("test_too_many_requests_waits_for_the_stated_time",),
            "kube/test_reflector.py": ("test_retry_after_is_honoured",),
        },
    ),
    27: ("pods on nodes that are not known", {HERE: ("test_27",)}),
    28: ("less than nothing is free", {HERE: ("test_28",)}),
    29: ("nodes that are not initialised", {HERE: ("test_29",)}),
    30: (
        "groups that are missing, whose minimum changes, that go together",
        {
            "dialects/test_native.py": (
                "test_member_waits_for_its_group_whatever_the_policy",
                "test_unknown_disruption_mode_is_the_strictest",
            ),
            "dialects/test_intake.py": ("test_raised_minimum_of_a_native_group_is_read_again",),
        },
    ),
    31: (
        "a group that an API server dropped without a word",
        {"dialects/test_native.py": ("test_pod_that_lost_its_group_gets_one_event_with_the_reason",)},
    ),
    32: (
        "preemptionPolicy Never",
        {"scheduling/test_preempt.py": ("test_pod_with_preemption_policy_never_evicts_no_pod",)},
    ),
    33: ("matchFields", {HERE: ("test_33",)}),
    34: ("NotIn and absent keys", {HERE: ("test_34",)}),
    35: ("empty terms", {HERE: ("test_35",)}),
    36: ("the first of its kind", {HERE: ("test_36",)}),
    37: ("minDomains", {HERE: ("test_37",)}),
    38: ("nodeTaintsPolicy", {HERE: ("test_38",)}),
    39: ("claims of ephemeral volumes", {HERE: ("test_39",)}),
    40: (
        "the names and times of events",
        {
            "kube/test_events.py": (
                "test_an_event_as_the_api_wants_it",
                "test_two_events_of_one_moment_have_two_names",
            )
        },
    ),
    41: (
        "a node that refuses pods is left alone for a while",
        {"scheduling/test_rest.py": ("test_node_is_skipped_after_a_rejection_and_used_again_by_itself",)},
    ),
    42: (
        "a gang that is bound in part",
        {
            "daemon/test_partial_gangs.py": (
                "test_keep_leaves_the_members_and_says_so_once",
                "test_release_evicts_the_members",
            )
        },
    ),
    43: (
        "members that have finished",
        {
            "scheduling/test_quorum.py": (
                "test_member_that_joins_succeeded_members_starts_by_match_policy",
                "test_failed_members_never_count",
            )
        },
    ),
    44: (
        "kinds that are not served, or forbidden",
        {
            "kube/test_reflector.py": (
                "test_resource_that_disappears_and_returns_is_watched_again",
                "test_forbidden_resource_stays_cached_and_is_logged_once",
            ),
            "daemon/test_observer.py": ("test_scheduler_without_the_right_to_budgets_schedules_without_them",),
        },
    ),
    45: (
        "it is alive although the API server is away",
        {"e2e/test_process.py": ("test_probes_and_metrics", "test_scheduler_survives_a_restart_of_the_api_server")},
    ),
}


def test_every_duty_is_in_the_list() -> None:
    assert sorted(DUTIES) == list(range(1, 46))


@pytest.mark.parametrize("number", sorted(DUTIES))
def test_the_proof_is_there(number: int) -> None:
    _, proofs = DUTIES[number]
    assert proofs
    for path, names in proofs.items():
        there = functions_in(path)
        for name in names:
            pattern = re.compile(rf"{name}(_.*)?$" if re.fullmatch(r"test_\d\d", name) else rf"{name}$")
            assert any(map(pattern.match, there)), f"{path} has no {name}"


@cache
def functions_in(path: str) -> tuple[str, ...]:
    """The functions of a file that are tests, methods too."""
    tree = ast.parse((TESTS / path).read_text())
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return tuple(node.name for node in functions if node.name.startswith("test_"))

"""Clusters that MultiKueue shall try for a Workload, and the patch that nominates them beside Kueue."""

from __future__ import annotations

from typing import Any

from phalanx.hub.choice.assignment import Candidate
from phalanx.hub.multikueue.nominations import (
    ROUND_SECONDS,
    clusters_of,
    extracted,
    next_round,
    nomination,
    open_check,
    question,
)

Json = dict[str, Any]
NOW = 1_000_000
CHECKS: dict[str, Json] = {
    "many": {"spec": {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": {"name": "three"}}},
    "provision": {"spec": {"controllerName": "kueue.x-k8s.io/provisioning-request"}},
}


def workload(
    *, many: str = "Pending", provision: str = "", conditions: tuple[str, ...] = ("QuotaReserved",), **status: Any
) -> Json:
    checks = [{"name": "many", "state": many}] + ([{"name": "provision", "state": provision}] if provision else [])
    told = [{"type": each, "status": "True"} for each in conditions]
    template = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}}
    return {
        "metadata": {"name": "job-train", "namespace": "ml", "uid": "w1", "resourceVersion": "5"},
        "spec": {"podSets": [{"name": "main", "count": 3, "template": template}]},
        "status": {"conditions": told, "admissionChecks": checks, **status},
    }


def test_only_a_workload_that_waits_for_kueue_is_nominated() -> None:
    assert open_check(workload(), CHECKS) == "many"
    assert open_check(workload(provision="Ready"), CHECKS) == "many"
    for not_yet in (
        workload(conditions=()),
        workload(provision="Pending"),
        workload(many="Ready"),
        workload(many="Retry"),
        workload(clusterName="west"),
        workload(conditions=("QuotaReserved", "Finished")),
        workload(conditions=("QuotaReserved", "Evicted")),
    ):
        assert open_check(not_yet, CHECKS) == ""
    assert open_check(workload(), {}) == ""


def test_nominated_clusters_are_those_of_the_check() -> None:
    configs: dict[str, Json] = {"three": {"spec": {"clusters": ["east", "west"]}}}
    assert clusters_of(CHECKS["many"], configs) == ("east", "west")
    assert clusters_of(CHECKS["many"], {}) == ()


def test_the_earliest_is_tried_first_and_one_more_in_each_round() -> None:
    east, west = Candidate("east", NOW + 900), Candidate("west", NOW)
    first = next_round((), [east, west], NOW)
    assert (first.names, first.wait) == (("west",), ROUND_SECONDS)
    second = next_round(first.names, [east], NOW)
    # No other cluster is tried before the first one had time to start it.
    assert (second.names, second.wait) == (("west", "east"), 900 + ROUND_SECONDS)
    assert next_round(second.names, [], NOW).names == second.names


def test_cluster_without_a_forecast_is_tried_only_where_no_cluster_has_one_and_hopeless_ones_never() -> None:
    never, mute = Candidate("east", never=True, message="no node has 8 GPUs"), Candidate("north", message="is slow")
    assert next_round((), [never, mute, Candidate("west", NOW + 9999)], NOW).names == ("west",)
    assert next_round((), [never, mute, Candidate("west")], NOW).names == ("north", "west")
    alone = next_round((), [never], NOW)
    assert (alone.names, alone.message) == ((), "east: no node has 8 GPUs")


def test_a_workload_is_asked_about_as_a_gang() -> None:
    head, *pods = question(workload())
    assert (head["spec"]["minMember"], len(pods)) == (3, 3)
    huge = workload()
    huge["spec"]["podSets"][0]["count"] = 10**9
    assert question(huge) == []
    huge["spec"]["podSets"] = [7, {"count": "x"}]
    assert question(huge) == []


def test_fields_applied_by_kueue_are_applied_again_with_the_nominations() -> None:
    """Server-side apply of fewer fields by one manager removes the missing ones."""
    found = workload(accumulatedPastExecutionTimeSeconds=7, admission={"clusterQueue": "q"})
    fields = {
        "f:admission": {".": {}, "f:clusterQueue": {}},
        "f:conditions": {'k:{"type":"QuotaReserved"}': {".": {}, "f:type": {}, "f:status": {}}},
    }
    found["metadata"]["managedFields"] = [
        {
            "manager": "kueue-admission",
            "operation": "Apply",
            "fieldsV1": {"f:status": fields},
            "subresource": "status",
        }
    ]
    patch, applied = nomination(found, ["west"])
    assert applied
    assert patch["metadata"] == {"name": "job-train", "namespace": "ml", "resourceVersion": "5", "uid": "w1"}
    assert patch["status"] == {
        "admission": {"clusterQueue": "q"},
        "conditions": [{"type": "QuotaReserved", "status": "True"}],
        "nominatedClusterNames": ["west"],
    }


def test_where_kueue_merges_so_do_we() -> None:
    patch, applied = nomination(workload(), ["west"])
    assert not applied
    assert patch["status"] == {"nominatedClusterNames": ["west"]}


def test_fields_are_found_in_sets_and_lists() -> None:
    value = {"a": [1, 2, 3], "b": [{"k": "x", "v": 1}, {"k": "y", "v": 2}], "c": {"d": 1}}
    fields: Json = {"f:a": {"v:1": {}, "v:3": {}}, "f:b": {'k:{"k":"y"}': {}}, "f:c": {}, "f:gone": {}}
    assert extracted(value, fields) == {"a": [1, 3], "b": [{"k": "y", "v": 2}], "c": {"d": 1}}

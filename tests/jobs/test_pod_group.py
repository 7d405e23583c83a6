"""The PodGroup of a job as Volcano's controller creates it, and its fields that follow the job."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from phalanx.jobs.pod_group import changed, desired_pod_group
from phalanx.jobs.spec import Job
from tests.jobs.written import OWNER, Json, job, task


def asks(cpu: str, *, priority: str = "", limits: Json | None = None) -> Json:
    resources: Json = {"requests": {"cpu": cpu}}
    if limits:
        resources["limits"] = limits
    spec: Json = {"containers": [{"name": "a", "resources": resources}]}
    return {**spec, "priorityClassName": priority} if priority else spec


def spec_of(made: Job, **more: Any) -> Json:
    found = desired_pod_group(made, **more)["spec"]
    assert isinstance(found, dict)
    return found


def test_the_whole_group() -> None:
    made = job(
        task("ps", spec=asks("1")),
        task(replicas=3, minAvailable=2, spec=asks("500m")),
        metadata={"labels": {"team": "a"}, "annotations": {"volcano.sh/sla-waiting-time": "1h"}},
        status={"version": 4},
        queue="research",
        priorityClassName="high",
        networkTopology={"mode": "soft", "highestTierAllowed": 2},
    )
    assert desired_pod_group(made) == {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": "train-123",
            "namespace": "team",
            "labels": {"team": "a"},
            "annotations": {"volcano.sh/sla-waiting-time": "1h", "phalanx.dev/job-version": "4"},
            "ownerReferences": [OWNER],
        },
        "spec": {
            "minMember": 3,
            "minTaskMember": {"ps": 1, "worker": 2},
            "queue": "research",
            "priorityClassName": "high",
            "minResources": {"count/pods": "3", "cpu": "2", "pods": "3", "requests.cpu": "2"},
            "networkTopology": {"mode": "soft", "highestTierAllowed": 2},
        },
    }


def test_last_applied_annotation_of_the_job_is_not_copied_to_the_group() -> None:
    stated = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "a": "b"}
    annotations = desired_pod_group(job(metadata={"annotations": stated}))["metadata"]["annotations"]
    assert annotations == {"a": "b", "phalanx.dev/job-version": "0"}


@pytest.mark.parametrize(
    ("stated", "minimum"),
    [
        ({}, 4),
        ({"minAvailable": 3}, 3),
        ({"partitionPolicy": {"totalPartitions": 2, "partitionSize": 2}}, 4),
        ({"partitionPolicy": {"totalPartitions": 2, "partitionSize": 2, "minPartitions": 1}}, 2),
    ],
    ids=str,
)
def test_the_minimum_of_a_task(stated: Json, minimum: int) -> None:
    spec = spec_of(job(task(replicas=4, **stated)))
    assert (spec["minMember"], spec["minTaskMember"]) == (minimum, {"worker": minimum})


def test_a_tier_is_named_by_number_or_else_by_name() -> None:
    def topology(**stated: Any) -> Json:
        found = spec_of(job(networkTopology=stated))["networkTopology"]
        assert isinstance(found, dict)
        return found

    assert topology(highestTierName="rack") == {"mode": "hard", "highestTierName": "rack"}
    assert topology(highestTierName="rack", highestTierAllowed=0) == {"mode": "hard", "highestTierAllowed": 0}


def test_partitions_are_gangs_within_the_gang() -> None:
    policy = {
        "totalPartitions": 4,
        "partitionSize": 2,
        "minPartitions": 3,
        "networkTopology": {"highestTierAllowed": 1},
    }
    assert spec_of(job(task("ps"), task(replicas=8, partitionPolicy=policy)))["subGroupPolicy"] == [
        {
            "name": "worker",
            "labelSelector": {"matchLabels": {"volcano.sh/task-spec": "worker"}},
            "matchLabelKeys": ["volcano.sh/partition-id"],
            "subGroupSize": 2,
            "minSubGroups": 3,
            "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
        }
    ]
    assert "subGroupPolicy" not in spec_of(job())


# minResources


def cpu_of(made: Job, **priorities: int) -> str:
    found = spec_of(made, priorities=priorities)["minResources"]["cpu"]
    assert isinstance(found, str)
    return found


def test_the_least_resources_have_the_names_that_quotas_use() -> None:
    each = asks("1", limits={"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "4"})
    assert spec_of(job(task(replicas=2, spec=each)))["minResources"] == {
        "count/pods": "2",
        "pods": "2",
        "cpu": "2",
        "requests.cpu": "2",
        "limits.cpu": "4",
        # The API server uses limits as requests where these are missing.
        "memory": "2Gi",
        "requests.memory": "2Gi",
        "limits.memory": "2Gi",
        "nvidia.com/gpu": "8",
        "requests.nvidia.com/gpu": "8",
    }


def test_a_job_that_starts_with_fewer_takes_the_tasks_with_the_highest_priority_first() -> None:
    tasks = task("a", 2, asks("1", priority="low")), task("b", 2, asks("10", priority="high"))
    assert cpu_of(job(*tasks, minAvailable=1), low=1, high=2) == "10"
    assert cpu_of(job(*tasks, minAvailable=3), low=1, high=2) == "21"
    # Unknown classes do not count: the order of the tasks decides.
    assert cpu_of(job(*tasks, minAvailable=3)) == "12"


def test_a_job_that_starts_with_more_than_its_tasks_minima_fills_up_by_priority() -> None:
    tasks = task("a", 4, asks("1"), minAvailable=1), task("b", 4, asks("10", priority="high"), minAvailable=2)
    assert cpu_of(job(*tasks, minAvailable=3)) == "21"
    assert cpu_of(job(*tasks, minAvailable=4), high=5) == "31"
    assert cpu_of(job(*tasks, minAvailable=6), high=5) == "42"
    assert cpu_of(job(*tasks, minAvailable=4)) == "22"


# dependsOn: tasks that have no pods yet


def least(held: list[str], *tasks: Json, **spec: Any) -> tuple[int, dict[str, int], str]:
    found = spec_of(job(*tasks, **spec), held_back=held)
    return found["minMember"], found["minTaskMember"], found["minResources"].get("pods", "0")


def test_the_group_does_not_wait_for_tasks_that_have_no_pods_yet() -> None:
    tasks = task("master"), task("worker", 9)
    assert least([], *tasks) == (10, {"master": 1, "worker": 9}, "10")
    assert least(["worker"], *tasks) == (1, {"master": 1}, "1")
    # A job may start with fewer than its tasks' minima; it still does.
    assert least(["worker"], *tasks, minAvailable=1) == (1, {"master": 1}, "1")


def test_pods_that_a_task_does_not_need_stay_surplus_while_another_waits() -> None:
    tasks = task("a", 8, minAvailable=2), task("b", 4)
    assert least(["b"], *tasks) == (2, {"a": 2}, "2")
    assert least(["b"], *tasks, minAvailable=8) == (4, {"a": 2}, "4")
    assert least(["b"], *tasks, minAvailable=3) == (2, {"a": 2}, "2")
    assert least(["a"], *tasks) == (4, {"b": 4}, "4")


# A group that exists


def existing(made: Job) -> Json:
    return copy.deepcopy(desired_pod_group(made)) | {"status": {"phase": "Running"}}


def test_nothing_changes_while_nothing_changes() -> None:
    made = job(task(replicas=4, spec=asks("1"), partitionPolicy={"totalPartitions": 2, "partitionSize": 2}))
    assert changed(existing(made), desired_pod_group(made)) is None


def test_a_job_that_grows_takes_its_group_along() -> None:
    before, after = job(task("ps"), task(spec=asks("1"))), job(task("ps"), task(replicas=3, spec=asks("1")))
    assert changed(existing(before), desired_pod_group(after)) == {
        "spec": {
            "minMember": 4,
            "minTaskMember": {"ps": 1, "worker": 3},
            "minResources": {"count/pods": "4", "pods": "4", "cpu": "3", "requests.cpu": "3"},
        }
    }


def test_removed_tasks_and_resources_are_deleted_from_the_group() -> None:
    before, after = job(task("old"), task(spec=asks("1"))), job(task())
    patch = changed(existing(before), desired_pod_group(after))
    assert patch is not None
    assert patch["spec"]["minTaskMember"] == {"old": None, "worker": 1}
    assert patch["spec"]["minResources"]["cpu"] is None


def test_the_priority_follows_and_may_be_taken_away() -> None:
    high = existing(job(priorityClassName="high"))
    assert changed(high, desired_pod_group(job(priorityClassName="low"))) == {"spec": {"priorityClassName": "low"}}
    assert changed(high, desired_pod_group(job())) == {"spec": {"priorityClassName": None}}


def test_fields_of_other_clients_are_preserved() -> None:
    made = job(metadata={"labels": {"a": "b"}}, networkTopology={"mode": "soft"})
    group = existing(made)
    group["spec"] |= {"queue": "moved", "networkTopology": {"mode": "hard"}}
    group["metadata"]["labels"] = {}
    group["metadata"]["annotations"] |= {"volcano.sh/job-allocated-hypernode": "s1", "a": "changed"}
    assert changed(group, desired_pod_group(made)) is None


def test_group_created_by_volcano_gets_the_run_of_its_job() -> None:
    made = job(status={"version": 2})
    group = existing(made)
    group["metadata"]["name"] = "train"
    del group["metadata"]["annotations"]
    assert changed(group, desired_pod_group(made)) == {
        "metadata": {"annotations": {"phalanx.dev/job-version": "2"}}
    }

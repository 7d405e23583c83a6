"""`phalanx job describe`: for how long a job runs, from its own objects."""

from __future__ import annotations

from phalanx.reports.jobs.job_run_time import documented_run_time
from phalanx.reports.run_times import RunTimeEntry
from tests.dialects.objects import group, pod_document

JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "default", "uid": "uid-train"},
    "spec": {"activeDeadlineSeconds": 3600},
}


def test_a_job_a_group_and_pods_speak_for_it() -> None:
    labels = {"scheduling.x-k8s.io/pod-group": "g"}
    declared = group(annotations={"phalanx.dev/expected-run-time": "20m"}, minMember=1)
    declared |= {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"}
    pods = [pod_document(name, owner="train", labels=labels) for name in ("a", "b")]
    assert documented_run_time(JOB, [declared], pods) == RunTimeEntry(
        limit="1h",
        limit_source="Job train: spec.activeDeadlineSeconds",
        estimate="20m",
        estimate_source="PodGroup g: annotation phalanx.dev/expected-run-time",
    )


def test_job_without_a_run_time_has_no_end() -> None:
    found = documented_run_time({"kind": "Gang"}, [], [pod_document("a")])
    assert found is not None
    assert found.lines() == ["Runs: no end known"]
    assert documented_run_time(JOB, [], []) is None


def test_estimate_above_the_limit_is_shown_at_most_as_the_limit() -> None:
    labels = {"scheduling.x-k8s.io/pod-group": "g"}
    declared = group(annotations={"phalanx.dev/expected-run-time": "2h"}, minMember=1)
    declared |= {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"}
    found = documented_run_time(JOB, [declared], [pod_document("a", owner="train", labels=labels)])
    assert found is not None
    assert (found.estimate, found.stated_estimate) == ("1h", "2h")
    assert found.lines()[1] == (
        "Expected to run: 1h (PodGroup g: annotation phalanx.dev/expected-run-time, 2h, is above the limit)"
    )

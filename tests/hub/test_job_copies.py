"""Copies of jobs are suspended, and marked down to their pods; answers of members become a valid status."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.hub.jobs.copies import TooManyPodsError, job_copy, job_question, job_view
from phalanx.hub.jobs.kinds import JOB, JOB_KINDS, JOB_SET, MULTIKUEUE, JobKind, is_left, job_end, refusal
from phalanx.hub.jobs.status import has_news, lost_status, mirrored_status
from phalanx.hub.observed import LostPolicy
from phalanx_local.validation.errors import FieldError
from phalanx_local.validation.job_status import check_job_status
from tests.hub.played_jobs import a_job, a_job_set

Json = dict[str, Any]


def kind_of(name: str) -> JobKind:
    return next(kind for kind in JOB_KINDS if kind.name == name)


def at_the_hub(job: Json, **status: Any) -> Json:
    metadata = {"namespace": "ml", "uid": "u1", "resourceVersion": "7", **job["metadata"]}
    return {**job, "metadata": metadata, "status": status}


def copied(kind: JobKind, job: Json) -> Json:
    return job_copy(kind, job, "hub-1", "d-1", 3, LostPolicy.STOP)


def refused(old: Json, status: Json) -> list[FieldError]:
    """Return the API server's objections to this status of a job of the hub."""
    errors: list[FieldError] = []
    check_job_status(errors, {**old, "status": status}, old)
    return errors


def true(*types: str) -> list[Json]:
    moment = "2026-11-23T12:00:00Z"
    return [{"type": each, "status": "True", "lastTransitionTime": moment} for each in types]


COMPLETE = {
    "startTime": "2026-11-23T11:00:00Z",
    "completionTime": "2026-11-23T12:00:00Z",
    "succeeded": 2,
    "completedIndexes": "0,1",
    "uncountedTerminatedPods": {},
    "conditions": true("SuccessCriteriaMet", "Complete"),
}


def test_a_copy_is_suspended_for_its_own_controller_and_its_pods_are_known_as_the_hubs() -> None:
    job = at_the_hub(
        a_job("train", ownerReferences=[{"kind": "CronJob"}], labels={"controller-uid": "u1", "a": "b"})
    )
    generated = {"batch.kubernetes.io/controller-uid": "u1", "job-name": "train", "mine": "x"}
    job["spec"] |= {"selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u1"}}}
    job["spec"] |= {"manualSelector": False, "ttlSecondsAfterFinished": 60}
    job["spec"]["template"]["metadata"] = {"labels": generated}
    made = copied(JOB, job)
    assert made["spec"]["suspend"] is True
    assert not {"managedBy", "selector", "manualSelector", "ttlSecondsAfterFinished"} & set(made["spec"])
    assert made["metadata"]["finalizers"] == ["phalanx.dev/result"]
    assert "ownerReferences" not in made["metadata"]
    assert "controller-uid" not in made["metadata"]["labels"]
    pods = made["spec"]["template"]["metadata"]
    assert pods["labels"] == {
        "mine": "x",
        "app.kubernetes.io/managed-by": "phalanx",
        "phalanx.dev/origin": "hub-1",
        "phalanx.dev/dispatch-uid": "d-1",
    }
    assert pods["annotations"]["phalanx.dev/when-lost"] == "Stop"
    assert job["spec"]["managedBy"] == "phalanx.dev/hub"  # nothing of the hub's own was changed


@pytest.mark.parametrize("name", [kind.name for kind in JOB_KINDS])
def test_every_kind_is_gated_and_marked_in_all_its_pods(name: str) -> None:
    kind = kind_of(name)
    template: Json = {"spec": {"containers": [{"name": "main"}]}}
    group = {"replicas": 2, "template": template}
    specs: dict[str, Json] = {
        "Job": {"template": template},
        "JobSet": {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": template}}}]},
        "RayJob": {
            "rayClusterSpec": {"headGroupSpec": {"template": template}, "workerGroupSpecs": [group]},
            "submitterPodTemplate": template,
            "shutdownAfterJobFinishes": True,
        },
        "RayCluster": {"headGroupSpec": {"template": template}, "workerGroupSpecs": [group]},
    }
    names = {"MPIJob": "mpi", "PyTorchJob": "pytorch", "TFJob": "tf", "XGBoostJob": "xgb"}
    field = f"{names.get(name, name.removesuffix('Job').lower())}ReplicaSpecs"
    spec = specs.get(name, {field: {"Worker": group}, "runPolicy": {"ttlSecondsAfterFinished": 1}})
    job = at_the_hub({"metadata": {"name": "t", "annotations": {"phalanx.dev/dispatch": "true"}}, "spec": spec})
    where = job["spec"].setdefault("runPolicy", {}) if "runPolicy" in kind.managed_by else job["spec"]
    where["managedBy"] = kind.accepts
    assert is_left(kind, job), refusal(kind, job)
    made = copied(kind, job)
    view = job_view(kind, {**made, "metadata": {**made["metadata"], "uid": "c1"}}, job)
    assert (view.gated, view.epoch, view.origin_uid, view.news) == (True, 3, "u1", False)
    assert "managedBy" not in str(made["spec"])
    assert "ttlSeconds" not in str(made["spec"])
    assert str(made["spec"]).count("phalanx.dev/dispatch-uid") == str(spec).count("containers")


def test_job_not_managed_by_the_hub_gets_the_fix_in_its_message() -> None:
    meant = {"annotations": {"phalanx.dev/dispatch": "true"}}
    assert refusal(JOB, at_the_hub(a_job("t", managed_by=None))) == ""
    assert "write spec.managedBy: phalanx.dev/hub" in refusal(JOB, at_the_hub(a_job("t", managed_by=None, **meant)))
    ray: Json = {"metadata": {"name": "r", **meant}, "spec": {"managedBy": MULTIKUEUE}}
    assert "shutdownAfterJobFinishes" in refusal(kind_of("RayJob"), ray)
    # Kueue's own: with its label, and without our annotation.
    mpi: Json = {"metadata": {"name": "m", **meant}, "spec": {"runPolicy": {"managedBy": MULTIKUEUE}}}
    assert is_left(kind_of("MPIJob"), mpi)
    mpi["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    assert "managed by Kueue" in refusal(kind_of("MPIJob"), mpi)
    del mpi["metadata"]["annotations"]
    assert refusal(kind_of("MPIJob"), mpi) == ""
    assert not is_left(kind_of("MPIJob"), mpi)


def test_a_status_is_taken_by_an_api_server_and_writing_it_again_changes_nothing() -> None:
    origin = at_the_hub(a_job("train"))
    status = mirrored_status(JOB, {"status": COMPLETE}, origin)
    assert refused(origin, status) == []
    assert (status["succeeded"], status["completedIndexes"]) == (2, "0,1")
    assert not has_news(JOB, {"status": COMPLETE}, at_the_hub(a_job("train"), **status), None)


def test_job_restarted_elsewhere_preserves_its_first_start_and_its_counts() -> None:
    job = a_job("train")
    job["spec"] |= {"completionMode": "NonIndexed"}
    origin = at_the_hub(job, startTime="2026-11-23T09:00:00Z", succeeded=1, failed=1, active=1)
    elsewhere = {"startTime": "2026-11-23T11:00:00Z", "active": 2, "ready": 2}
    status = mirrored_status(JOB, {"status": elsewhere}, origin)
    assert refused(origin, status) == []
    assert (status["startTime"], status["succeeded"], status["failed"]) == ("2026-11-23T09:00:00Z", 1, 1)
    # Conditions that announce an end wait for it: a recalled copy would announce it permanently.
    failing = {**elsewhere, "conditions": true("FailureTarget")}
    assert mirrored_status(JOB, {"status": failing}, origin)["conditions"] == []


@pytest.mark.parametrize(
    "answer",
    [
        {"conditions": true("Complete")},
        {"conditions": true("Complete", "Failed", "SuccessCriteriaMet")},
        {"conditions": true("Failed"), "active": 3, "ready": 9, "completionTime": "2026-11-23T12:00:00Z"},
        {
            "conditions": true("Complete"),
            "startTime": "x",
            "completionTime": "2001-01-01T00:00:00Z",
            "failedIndexes": "0",
        },
        {"conditions": [7, {"type": "a" * 9999, "status": "True"}, {"type": "\x1b[31m", "status": "True"}]},
        {"active": -1, "ready": True, "succeeded": "many", "failed": 2**70, "completedIndexes": "<script>"},
        {"active": 1, "ready": 5, "terminating": 2},
        {"conditions": {"type": "Complete"}, "startTime": {}},
    ],
)
def test_any_answer_of_a_member_becomes_a_valid_status(answer: Json) -> None:
    for before in ({}, {"startTime": "2026-11-23T09:00:00Z", "failed": 1}):
        origin = at_the_hub(a_job("train"), **before)
        status = mirrored_status(JOB, {"status": answer}, origin)
        assert refused(origin, status) == []
        assert "\x1b" not in str(status)
        again = {**origin, "status": status}
        assert not has_news(JOB, {"status": answer}, again, None)


def test_oversized_status_is_cut_to_the_result() -> None:
    huge = {"conditions": true("Completed"), "note": "x" * 2**20}
    status = mirrored_status(JOB_SET, {"status": huge}, at_the_hub(a_job_set("s")))
    assert [each["type"] for each in status["conditions"]] == ["Completed"]
    assert "note" not in status


@pytest.mark.parametrize("name", [kind.name for kind in JOB_KINDS])
def test_job_whose_copy_was_deleted_has_failed(name: str) -> None:
    kind = kind_of(name)
    origin = at_the_hub(a_job("train") if kind is JOB else {"metadata": {"name": "train"}, "spec": {}})
    status = lost_status(kind, origin, "its copy in west is gone")
    assert job_end(kind, {**origin, "status": status}) == job_end(JOB, {"status": {"conditions": true("Failed")}})
    if kind is JOB:
        assert refused(origin, status) == []


def test_a_forecast_is_asked_for_all_pods_of_a_job_at_once() -> None:
    head, *pods = job_question(JOB_SET, at_the_hub(a_job_set("s")))
    assert (head["spec"]["minMember"], len(pods)) == (2, 2)
    job = at_the_hub(a_job("wide"))
    job["spec"]["parallelism"] = 10**9
    with pytest.raises(TooManyPodsError):
        job_question(JOB, job)

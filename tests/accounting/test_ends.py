"""Outcome of pods that are deleted while they run, and the queue of pods whose group is gone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from phalanx.accounting.database import Database
from phalanx.accounting.facts import PodOutcome, deleted_fact, pod_fact, read_pod
from phalanx.dialects.core import Metadata, OwnerReference
from phalanx.dialects.gangs.declaration import job_queue
from phalanx.dialects.times import parse_time
from phalanx.model.pod import Pod, PodClass, PodPhase
from phalanx.model.run_time import RunTime
from tests.accounting.world import a_pod, only, tell

STARTED, REQUESTED, EXITED = "2026-11-23T08:00:00Z", "2026-11-23T08:10:00Z", "2026-11-23T08:10:02Z"
GRACE = 30
PHASES = {"Succeeded": PodPhase.SUCCEEDED, "Failed": PodPhase.FAILED, "Running": PodPhase.RUNNING}


def outcome_of(
    phase: str, *, finished: str = "", deleted: bool = True, limit: int = 0, **status: Any
) -> tuple[str, str]:
    """Return outcome and reason of a pod that is deleted at REQUESTED, with a grace period of GRACE seconds."""
    ends = [{"state": {"terminated": {"finishedAt": finished}}}] if finished else []
    metadata: dict[str, Any] = {"name": "a", "namespace": "ml", "uid": "u"}
    leaves = parse_time(REQUESTED) + GRACE
    if deleted:
        metadata |= {"deletionTimestamp": "2026-11-23T08:10:30Z", "deletionGracePeriodSeconds": GRACE}
    raw = msgspec.json.encode(
        {"metadata": metadata, "spec": {}, "status": {"phase": phase, "containerStatuses": ends, **status}}
    )
    spec = Pod(
        "ml",
        "a",
        "u",
        PodClass(()),
        node="n1",
        phase=PHASES[phase],
        started=parse_time(STARTED),
        terminating=deleted,
        leaves=leaves if deleted else 0,
        run_time=RunTime(limit=limit),
    )
    fact = pod_fact(read_pod(raw), spec, "default")
    return fact.outcome, fact.reason


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
@pytest.mark.parametrize("finished", [EXITED, REQUESTED, ""])
def test_pod_that_ends_because_of_its_deletion_counts_as_deleted(phase: str, finished: str) -> None:
    assert outcome_of(phase, finished=finished) == (PodOutcome.DELETED, "")


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_pod_that_ended_before_its_deletion_keeps_its_outcome(phase: str) -> None:
    assert outcome_of(phase, finished="2026-11-23T08:09:59Z") == (phase, "")
    assert outcome_of(phase, finished=EXITED, deleted=False) == (phase, "")


def test_evicted_pod_stays_evicted_while_it_is_deleted() -> None:
    target = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    target["lastTransitionTime"] = REQUESTED
    assert outcome_of("Failed", finished=EXITED, conditions=[target])[0] == PodOutcome.EVICTED


def test_pod_that_is_deleted_at_its_run_time_limit_has_a_timeout() -> None:
    assert outcome_of("Failed", finished=EXITED, limit=600) == (PodOutcome.FAILED, "DeadlineExceeded")
    assert outcome_of("Failed", finished=EXITED, limit=601) == (PodOutcome.DELETED, "")


def test_removed_pod_without_an_observed_end_has_a_timeout_at_its_limit() -> None:
    pod = a_pod("a", limit=100)
    assert deleted_fact(pod, 100).reason == "DeadlineExceeded"
    assert deleted_fact(pod, 99).outcome == PodOutcome.DELETED


def test_run_whose_pods_are_deleted_is_cancelled(database: Database) -> None:
    ends = (deleted_fact(a_pod(uid, bound=1), 2**31) for uid in ("a", "b"))
    tell(database, 60, *ends)
    assert only(database)["state"] == "CANCELLED"


@pytest.mark.parametrize(
    ("owner", "queue"),
    [
        (OwnerReference("batch.volcano.sh/v1alpha1", "Job", "j", "u", True), "research"),
        (OwnerReference("batch.volcano.sh/v1alpha1", "Job", "j", "u", False), ""),
        (OwnerReference("batch/v1", "Job", "j", "u", True), ""),
    ],
    ids=["volcano-job", "no-controller", "other-job"],
)
def test_job_queue_is_read_from_pods_of_volcano_jobs_only(owner: OwnerReference, queue: str) -> None:
    key = {"volcano.sh/queue-name": "research"}
    assert job_queue(Metadata("a", owner_references=[owner], labels=key)) == queue
    assert job_queue(Metadata("a", owner_references=[owner], annotations=key)) == queue

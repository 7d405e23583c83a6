"""State of a gang from the documents of its job, PodGroup and pods."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.cli.jobs.job_tables import description, job_table
from phalanx.jobs.suspended import HOLD, QUEUE_LABEL
from phalanx.reports.jobs.document_facts import document_facts
from phalanx.reports.jobs.entries import JobDescription
from phalanx.reports.jobs.read_documents import job_entry, read_pod
from phalanx.views.gang_state import GangState, gang_state

NOW = 1795392000.0
EVICTED = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]}

Json = dict[str, Any]


def pod(name: str, phase: str = "Pending", node: str = "", **what: Any) -> Json:
    metadata = {"name": name, "deletionTimestamp": "2026-11-23T00:00:00Z"} if what.pop("leaves", False) else {}
    status = {"phase": phase, **what.pop("status", {})}
    return {"metadata": {"name": name, **metadata}, "spec": {"nodeName": node, **what}, "status": status}


def document(spec: Json, status: Json | None = None, **metadata: Any) -> Json:
    return {"metadata": {"name": "j", "namespace": "ns", **metadata}, "spec": spec, "status": status or {}}


def indexed(status: Json | None = None, *, suspend: bool = False, **metadata: Any) -> Json:
    spec = {"parallelism": 3, "completions": 3, "completionMode": "Indexed", "suspend": suspend}
    return document(spec, status, **metadata)


def volcano(phase: str, **counts: int) -> Json:
    tasks = [{"name": "worker", "replicas": 3, "template": {}}]
    return document({"minAvailable": 3, "tasks": tasks}, {"state": {"phase": phase}, **counts})


def state(kind: str, job: Json, *pods: Json) -> GangState:
    read = [read_pod(each) for each in pods]
    return gang_state(document_facts(job_entry(kind, job, read, (), NOW), job, read))


RUNS = [pod(f"p{number}", "Running", "n") for number in range(3)]
WAITS = [pod(f"p{number}") for number in range(3)]
ENDS = [pod(f"p{number}", "Succeeded", "n") for number in range(3)]
FAILED = {"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]}
COMPLETE = {"conditions": [{"type": "Complete", "status": "True"}]}
GROUP = document({"minMember": 3})


@pytest.mark.parametrize(
    ("kind", "job", "pods", "expected"),
    [
        ("job", indexed(), WAITS, GangState.PENDING),
        ("job", indexed(), [], GangState.PENDING),
        ("job", indexed(), [pod("p0", schedulingGates=[{"name": "g"}])], GangState.GATED),
        ("job", indexed(), [*RUNS[:2], WAITS[2]], GangState.PARTIAL),
        ("job", indexed(), [*RUNS[:2], pod("p2", "Pending", "n")], GangState.STARTING),
        ("job", indexed(), RUNS, GangState.RUNNING),
        ("job", indexed({"succeeded": 2}), [RUNS[0], *ENDS[1:]], GangState.RUNNING),
        ("job", indexed({"succeeded": 2}), [RUNS[0]], GangState.RUNNING),
        ("job", indexed(), [*RUNS, *WAITS], GangState.RUNNING),
        ("job", indexed(), [pod("p0", "Running", "n", leaves=True, status=EVICTED)], GangState.EVICTING),
        ("job", indexed(), [pod("p0", "Running", "n", leaves=True)], GangState.COMPLETING),
        ("job", indexed(FAILED), RUNS, GangState.FAILED),
        ("job", indexed(FAILED), [], GangState.FAILED),
        ("job", indexed(COMPLETE), ENDS, GangState.COMPLETED),
        ("job", indexed({"failed": 1}), [pod("p0", "Failed", "n")], GangState.PENDING),
        ("job", indexed(suspend=True), [], GangState.SUSPENDED),
        ("job", indexed(COMPLETE, suspend=True), [], GangState.COMPLETED),
        ("job", indexed({"succeeded": 2}, suspend=True), [], GangState.SUSPENDED),
        ("job", indexed(suspend=True, labels={QUEUE_LABEL: "q"}), [], GangState.PENDING),
        (
            "job",
            indexed(suspend=True, labels={QUEUE_LABEL: "q"}, annotations={HOLD: "true"}),
            [],
            GangState.SUSPENDED,
        ),
        ("vcjob", volcano("Pending"), WAITS, GangState.PENDING),
        ("vcjob", volcano(""), [], GangState.PENDING),
        ("vcjob", volcano("Running", running=3), RUNS, GangState.RUNNING),
        ("vcjob", volcano("Running", running=3), [], GangState.RUNNING),  # pods that may not be read
        ("vcjob", volcano("Running", running=2, succeeded=1), [*RUNS[:2], ENDS[2]], GangState.RUNNING),
        ("vcjob", volcano("Aborting"), RUNS, GangState.COMPLETING),
        ("vcjob", volcano("Aborted"), [], GangState.SUSPENDED),
        ("vcjob", volcano("Failed", failed=3), [], GangState.FAILED),
        ("vcjob", volcano("Terminated"), [], GangState.CANCELLED),
        ("vcjob", volcano("Completed", succeeded=3), ENDS, GangState.COMPLETED),
        ("gang", GROUP, WAITS, GangState.PENDING),
        ("gang", document({"minMember": 3}, {"phase": "Scheduling"}), RUNS, GangState.RUNNING),
        ("gang", document({"minMember": 3}, {"phase": "Failed"}), RUNS, GangState.RUNNING),
        ("gang", document({"minMember": 3}, {"phase": "Finished"}), [], GangState.COMPLETED),
        ("gang", GROUP, ENDS, GangState.COMPLETED),
        ("gang", GROUP, [*ENDS[:2], pod("p2", "Failed", "n")], GangState.FAILED),
    ],
)
def test_state_follows_from_the_documents(kind: str, job: Json, pods: list[Json], expected: GangState) -> None:
    assert state(kind, job, *pods) is expected


def test_queued_job_shows_why_its_group_is_not_admitted() -> None:
    told = {"type": "Unschedulable", "status": "True", "reason": "AwaitingAdmission", "message": "gang waits"}
    group = document({"minMember": 3}, {"conditions": [told]})
    job = indexed(suspend=True, labels={QUEUE_LABEL: "q"})
    assert job_entry("job", job, (), [group], NOW).reason == "AwaitingAdmission"
    assert job_entry("job", indexed(suspend=True), (), [group], NOW).reason == ""


def test_job_list_and_describe_show_the_state_and_the_phase_beside_it() -> None:
    job, pods = volcano("Inqueue"), [read_pod(each) for each in WAITS]
    entry = job_entry("vcjob", job, pods, (), NOW)
    header, row = job_table([entry], NOW, wide=True, namespaces=False)
    cells = dict(zip(header.split(), row.split(), strict=True))
    assert (cells["STATUS"], cells["PHASE"]) == ("Pending", "Inqueue")
    lines = description(JobDescription(job=entry), NOW)
    assert [line.split() for line in lines if line.startswith(("Status", "Phase"))] == [
        ["Status:", "Pending"],
        ["Phase:", "Inqueue"],
    ]

"""Jobs of all kinds in `phalanx job`, and the results of waiting for them."""

from __future__ import annotations

from typing import Any

import click
import pytest

from phalanx.cli.jobs.job_tables import job_table, next_steps
from phalanx.cli.jobs.selector import matches, parse_selector
from phalanx.cli.jobs.target import parse_job
from phalanx.cli.jobs.volcano_commands import short_job, volcano_job_lines
from phalanx.cli.listing.ages import age
from phalanx.dialects.options import DialectOptions
from phalanx.orders.job_wait import ENDED_OTHERWISE, REACHED, outcome
from phalanx.reports.gangs.gang_list import gang_entries
from phalanx.reports.jobs.entries import JobEntry, PodEntry
from phalanx.reports.jobs.job_report import found_job
from phalanx.reports.jobs.kinds import VOLCANO_JOBS
from phalanx.reports.jobs.read_documents import job_entry, minimum_of, policy_lines, read_pod
from phalanx.views.gang_state import GangState
from phalanx.views.promises import Promises

CREATED = "2026-11-23T00:00:00Z"
NOW = 1795392000.0  # that moment


def entry(**what: Any) -> JobEntry:
    return JobEntry(**{"kind": "vcjob", "namespace": "default", "name": "train", **what})


def document(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "train", "namespace": "default", "uid": "u", "creationTimestamp": CREATED}
    tasks = [{"name": "worker", "replicas": 2, "template": {}}]
    return {"metadata": metadata, "spec": {"tasks": tasks, **spec}, "status": status or {}}


def volcano(
    status: dict[str, Any] | None = None, *, pods: Any = (), groups: Any = (), after: float = 0
) -> JobEntry:
    return job_entry("vcjob", document(status), pods, groups, NOW + after)


def test_a_new_job_says_nothing_until_a_controller_had_time_and_then_that_there_is_none() -> None:
    assert volcano(after=9).reason == ""
    assert volcano(after=11).reason == "NoController"
    assert "phalanx controllers" in volcano(after=11).message


def test_pending_job_shows_the_waiting_reason_of_its_group() -> None:
    condition = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources", "message": "2 of 4 fit"}
    group = {"metadata": {"name": "train-u"}, "status": {"conditions": [condition]}}
    told = volcano({"state": {"phase": "Pending"}, "pending": 2}, groups=[group])
    assert (told.reason, told.message, told.group) == ("NotEnoughResources", "2 of 4 fit", "train-u")
    assert volcano({"state": {"phase": "Running"}, "running": 2}, groups=[group]).reason == ""


def test_job_without_a_reason_of_its_group_shows_the_reason_of_a_pod() -> None:
    pod = PodEntry(name="a", reason="ImagePullBackOff", message="no such image")
    assert volcano({"state": {"phase": "Pending"}}, pods=[pod]).reason == "ImagePullBackOff"


def container_waits(reason: str, message: str = "", *, init: bool = False) -> dict[str, Any]:
    """Return the status of a pod on a node, one of whose containers waits."""
    state = {"name": "main", "state": {"waiting": {"reason": reason, "message": message}}}
    scheduled = {"type": "PodScheduled", "status": "True"}
    return {
        "phase": "Running" if reason == "CrashLoopBackOff" and not init else "Pending",
        "conditions": [scheduled],
        "initContainerStatuses" if init else "containerStatuses": [state],
    }


def pod_with(name: str, status: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name}, "spec": {"nodeName": "n1"}, "status": status}


@pytest.mark.parametrize("init", [False, True])
@pytest.mark.parametrize("reason", ["CrashLoopBackOff", "ImagePullBackOff", "CreateContainerConfigError"])
def test_job_on_nodes_shows_the_reason_why_a_container_does_not_run(reason: str, init: bool) -> None:
    status = container_waits(reason, "back-off 5m0s", init=init)
    pods = [pod_with("train-worker-0", status), pod_with("train-worker-1", {"phase": "Running"})]
    for phase in ("Pending", "Running"):
        shown = volcano({"state": {"phase": phase}}, pods=[read_pod(pod) for pod in pods])
        assert (shown.reason, shown.message) == (reason, "container main: back-off 5m0s")


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing", ""])
def test_job_whose_containers_are_about_to_start_has_no_reason(reason: str) -> None:
    pod = read_pod(pod_with("train-worker-0", container_waits(reason)))
    assert volcano({"state": {"phase": "Running"}}, pods=[pod]).reason == ""


@pytest.mark.parametrize("reason", ["CrashLoopBackOff", "ImagePullBackOff"])
def test_list_of_gangs_counts_the_pods_whose_containers_do_not_run(reason: str) -> None:
    pods = [pod_with(f"train-worker-{index}", container_waits(reason, "why")) for index in range(2)]
    found = found_job("vcjob", document({"state": {"phase": "Running"}}), VOLCANO_JOBS, pods, [], NOW)
    (listed,) = gang_entries([found], DialectOptions(), Promises())
    assert (listed.reason, listed.message) == (reason, "2 of 2 pods: container main: why")


@pytest.mark.parametrize("spelling", ["minMember", "minMembers", "numMember"])
def test_minimum_of_a_group_is_read_in_each_spelling_of_kube_batch(spelling: str) -> None:
    group = {"metadata": {"name": "g", "namespace": "default", "uid": "u"}, "spec": {spelling: 3}}
    assert minimum_of(group) == 3
    assert job_entry("gang", group, [], [], NOW).minimum == 3


def test_suspended_job_has_no_waiting_reason() -> None:
    assert volcano({"state": {"phase": "Aborted"}}, pods=[PodEntry(name="a", reason="Unschedulable")]).reason == ""


@pytest.mark.parametrize(
    ("conditions", "spec", "phase"),
    [
        ([{"type": "Complete", "status": "True"}], {}, "Completed"),
        ([{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}], {}, "Failed"),
        ([{"type": "Failed", "status": "False"}], {}, "Running"),
        ([], {"suspend": True}, "Suspended"),
    ],
)
def test_native_jobs_have_phases_too(conditions: list[dict[str, str]], spec: dict[str, Any], phase: str) -> None:
    job = document({"conditions": conditions}, parallelism=2, completions=2, completionMode="Indexed", **spec)
    told = job_entry("job", job, [PodEntry(name="a", phase="Running")], (), NOW)
    assert (told.phase, told.minimum, told.total) == (phase, 2, 2)


def test_a_native_job_of_independent_pods_is_no_gang() -> None:
    assert job_entry("job", document({}, parallelism=4, completions=9), (), (), NOW).minimum == 1


@pytest.mark.parametrize(
    "group", [{"minMember": 3}, {"schedulingPolicy": {"gang": {"minCount": 3}}}], ids=["minMember", "native"]
)
def test_a_gang_without_a_job_has_the_minimum_of_its_group(group: dict[str, Any]) -> None:
    pods = [PodEntry(name="a", phase="Running", ready=True), PodEntry(name="b", phase="Running")]
    told = job_entry("gang", {"metadata": {"name": "g"}, "spec": group}, pods, (), NOW)
    assert (told.phase, told.minimum, told.total, told.running, told.ready) == ("Running", 3, 2, 2, 1)
    assert told.group == "g"


def test_fields_of_the_wrong_type_are_as_if_they_were_absent() -> None:
    bad = {"metadata": {"name": "train", "labels": 7}, "spec": {"tasks": "x", "queue": 5}, "status": {"state": []}}
    told = job_entry("vcjob", bad, (), (), NOW)
    assert (told.name, told.total) == ("train", 0)
    assert read_pod({"metadata": {"name": "p"}, "spec": 3, "status": {"conditions": "x"}}).phase == "Pending"


def test_a_pod_says_its_task_its_exit_code_and_why_it_does_not_run() -> None:
    ended = {"state": {"terminated": {"exitCode": 3, "reason": "Error"}}, "restartCount": 2}
    pod = read_pod(
        {
            "metadata": {
                "name": "p",
                "annotations": {"volcano.sh/task-spec": "worker", "volcano.sh/task-index": "4"},
            },
            "status": {"phase": "Failed", "containerStatuses": [ended]},
        }
    )
    assert (pod.task, pod.index, pod.exit_code, pod.restarts, pod.reason) == ("worker", 4, 3, 2, "Error")


def test_policies_are_listed_as_event_and_action() -> None:
    policies = [{"events": ["PodFailed", "PodEvicted"], "action": "RestartJob", "timeout": "5m"}]
    task = {"name": "master", "policies": [{"exitCode": 3, "action": "AbortJob"}]}
    assert policy_lines(document(policies=policies, tasks=[task])) == [
        "PodFailed, PodEvicted -> RestartJob after 5m",
        "task master: exit code 3 -> AbortJob",
    ]


def test_the_table_has_the_reason_last() -> None:
    jobs = [
        entry(
            queue="q",
            state=GangState.RUNNING,
            minimum=2,
            total=4,
            running=3,
            ready=2,
            retry_limit=3,
            created=CREATED,
        ),
        entry(name="stopped", state=GangState.SUSPENDED, reason="x"),
        entry(name="fresh"),
    ]
    assert job_table(jobs, NOW + 200, wide=False, namespaces=False) == [
        "NAME      KIND    QUEUE   STATUS      MIN   RUN/READY/ALL   RETRIES   AGE     REASON",
        "train     vcjob   q       Running     2     3/2/4           0/3       3m20s   -",
        "stopped   vcjob   -       Suspended   0     0/0/0           -         -       x",
        "fresh     vcjob   -       Pending     0     0/0/0           -         -       -",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59, "59s"), (60, "1m"), (3725, "1h2m"), (3605, "1h"), (200_000, "2d7h")]
)
def test_ages_have_two_units(seconds: float, text: str) -> None:
    assert age(CREATED, NOW + seconds) == text


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (entry(phase="Pending", minimum=2, group="train-u"), "phalanx why vcjob/train -n default"),
        (entry(state=GangState.SUSPENDED), "phalanx job resume train -n default"),
        (entry(phase="Failed", kind="job"), "phalanx job logs job/train -n default"),
        (entry(phase="Running", running=2, minimum=2, group="train-u"), ""),
    ],
)
def test_description_ends_with_the_next_commands(job: JobEntry, words: str) -> None:
    assert words in "\n".join(next_steps(job))
    assert bool(words) is bool(next_steps(job))


@pytest.mark.parametrize(
    ("state", "job", "code"),
    [
        ("running", entry(state=GangState.RUNNING), REACHED),
        ("running", entry(state=GangState.STARTING, phase="Running"), None),
        ("running", entry(state=GangState.PARTIAL, phase="Running"), None),
        ("running", entry(state=GangState.PENDING), None),
        ("running", entry(state=GangState.COMPLETED), REACHED),
        ("running", entry(state=GangState.FAILED), ENDED_OTHERWISE),
        ("completed", entry(state=GangState.RUNNING), None),
        ("completed", entry(state=GangState.COMPLETED), REACHED),
        ("completed", entry(state=GangState.CANCELLED), ENDED_OTHERWISE),
        ("completed", entry(state=GangState.SUSPENDED), None),
        ("failed", entry(state=GangState.FAILED), REACHED),
        ("failed", entry(state=GangState.COMPLETED), ENDED_OTHERWISE),
        ("finished", entry(state=GangState.FAILED), REACHED),
        ("finished", entry(state=GangState.COMPLETED, phase=""), REACHED),
        ("suspended", entry(state=GangState.SUSPENDED), REACHED),
        ("suspended", entry(state=GangState.COMPLETING), None),
        ("deleted", entry(state=GangState.COMPLETED), None),
        ("deleted", None, REACHED),
        ("completed", None, ENDED_OTHERWISE),
    ],
)
def test_waiting_ends_where_the_state_is_reached_or_cannot_be_any_more(
    state: str, job: JobEntry | None, code: int | None
) -> None:
    assert outcome(job, state) == code


def test_a_job_is_named_alone_or_with_its_kind() -> None:
    assert parse_job("train") == ("", "train")
    assert parse_job("vj/train") == ("vcjob", "train")
    assert parse_job("job.batch.volcano.sh/train") == ("vcjob", "train")
    assert parse_job("pg/train") == ("gang", "train")
    for bad in ("pod/train", "train/", "/"):
        with pytest.raises(click.UsageError, match="such as vcjob/train"):
            parse_job(bad)


@pytest.mark.parametrize(
    ("selector", "found"),
    [("", True), ("a=1", True), ("a==1,b", True), ("a!=1", False), ("c", False), ("!c", True), ("c!=1", True)],
)
def test_selectors_are_kubectls(selector: str, found: bool) -> None:
    assert matches(parse_selector(selector), {"a": "1", "b": ""}) is found


def test_volcanos_list_has_volcanos_columns() -> None:
    assert volcano_job_lines(
        [entry(created=CREATED, phase="Running", total=2, minimum=1, running=2)], namespaces=False
    ) == [
        "Name    Creation       Phase       JobType     Replicas    Min   Pending   Running   "
        "Succeeded   Failed    Unknown     RetryCount",
        "train   2026-11-23     Running     Batch       2           1     0         2         "
        "0           0         0           0",
    ]


def test_vsub_makes_the_job_that_volcanos_makes() -> None:
    made = short_job(
        name="a", image="busybox", command="sh -c 'echo hi'", replicas=3, minimum=2,
        requests="cpu=1", limits="", scheduler="phalanx",
    )  # fmt: skip
    (task,) = made["spec"]["tasks"]
    assert (made["spec"]["minAvailable"], task["replicas"]) == (2, 3)
    assert task["template"]["spec"]["containers"][0]["command"] == ["sh", "-c", "echo hi"]
    assert task["template"]["metadata"]["labels"] == {"job.volcano.sh": "a"}

"""Names on the command line that do not exist: each error lists the known names."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import click
import click.testing
import pytest

from phalanx.cli.connection import ClientOptions
from phalanx.cli.invocation import Invocation
from phalanx.cli.jobs.job_kinds import parse_kinds
from phalanx.cli.jobs.served_names import warn_of_unserved_names
from phalanx.cli.listing.known_names import refuse_unknown_scope
from phalanx.cli.main import cli
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.auth.credentials import ClientIdentity
from phalanx.kube.errors import ApiError
from phalanx.orders.errors import OrderError
from phalanx.orders.known_names import known_names
from phalanx.orders.submission.known_references import refuse_unknown_names, unserved_scheduler_names
from phalanx.reports.jobs.entries import JobEntry
from phalanx.reports.jobs.job_names import kinds_of
from phalanx.reports.jobs.job_report import FoundJob
from phalanx.reports.jobs.kinds import group_kinds

OBJECTS = {
    "/api/v1/namespaces": ("default", "team-a"),
    "/apis/scheduling.volcano.sh/v1beta1/queues": ("default", "research"),
    "/apis/scheduling.k8s.io/v1/priorityclasses": ("high",),
}


def run(*arguments: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(cli, arguments)


class Cluster:
    """Client that lists named objects; the paths in `forbidden` answer 403."""

    def __init__(self, *forbidden: str) -> None:
        self._forbidden = forbidden

    async def list_all(self, path: str) -> dict[str, Any]:
        if path in self._forbidden:
            raise ApiError(403, "Forbidden", "forbidden")
        items = [{"metadata": {"name": name}, "status": {"state": "Open"}} for name in OBJECTS[path]]
        return {"items": items}


def vcjob(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "a"}, "spec": spec}


def submitted(*documents: dict[str, Any], namespace: str = "default", forbidden: tuple[str, ...] = ()) -> str:
    """Return the error of the checks, "" if they pass."""
    client: Any = Cluster(*forbidden)
    try:
        asyncio.run(refuse_unknown_names(client, list(documents), [namespace]))
    except OrderError as error:
        return error.message
    return ""


def test_submit_refuses_an_unknown_namespace_priority_class_and_queue_with_the_known_names() -> None:
    assert submitted(vcjob(), namespace="nosuch") == 'no namespace "nosuch"; expected one of default, team-a'
    assert submitted(vcjob(priorityClassName="nosuch")) == 'no PriorityClass "nosuch"; expected one of high'
    assert submitted(vcjob(queue="nosuch")) == 'no queue "nosuch"; expected one of default, research'
    assert submitted(vcjob(priorityClassName="high", queue="research")) == ""


@pytest.mark.parametrize(
    "job",
    [
        {"metadata": {"name": "a", "labels": {"phalanx.dev/queue": "nosuch"}}},
        {
            "metadata": {"name": "a"},
            "spec": {"template": {"metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "nosuch"}}}},
        },
    ],
    ids=["label", "annotation-of-template"],
)
def test_submit_refuses_a_native_job_in_an_unknown_queue(job: dict[str, Any]) -> None:
    document = {"apiVersion": "batch/v1", "kind": "Job", **job}
    assert submitted(document) == 'no queue "nosuch"; expected one of default, research'


def test_submit_refuses_the_unknown_priority_class_of_a_pod_template() -> None:
    template = {"spec": {"priorityClassName": "nosuch", "containers": []}}
    assert 'no PriorityClass "nosuch"' in submitted(vcjob(tasks=[{"name": "w", "template": template}]))


def test_submit_accepts_names_of_objects_in_the_same_file_and_built_in_classes() -> None:
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "new"}}
    level = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "top"}}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-b"}}
    assert submitted(queue, level, space, vcjob(queue="new", priorityClassName="top"), namespace="team-b") == ""
    assert submitted(vcjob(priorityClassName="system-node-critical")) == ""


def test_submit_does_not_check_names_that_the_user_cannot_list() -> None:
    job = vcjob(queue="nosuch", priorityClassName="nosuch")
    assert submitted(job, namespace="nosuch", forbidden=tuple(OBJECTS)) == ""


def test_an_empty_list_names_the_known_namespaces_and_queues() -> None:
    client: Any = Cluster()
    with pytest.raises(click.ClickException, match='no namespace "nosuch"; expected one of default, team-a'):
        asyncio.run(refuse_unknown_scope(client, "nosuch"))
    with pytest.raises(click.ClickException, match='no queue "nosuch"; expected one of default, research'):
        asyncio.run(refuse_unknown_scope(client, None, ["research", "nosuch"]))
    asyncio.run(refuse_unknown_scope(client, "", []))


def test_known_names_are_sorted_and_at_most_twenty() -> None:
    assert known_names({f"q{number:02}" for number in range(22)}).endswith("q18, q19 and 2 more")
    assert known_names(()) == "there are none"


def test_job_list_refuses_an_unknown_state_with_the_known_states() -> None:
    refused = run("job", "list", "--state", "banana")
    assert refused.exit_code == 2
    assert 'unknown --state "banana"; expected one of Pending, Gated' in refused.output


@pytest.mark.parametrize(("command", "kind"), [(["job", "list"], "pytorchjob"), (["reservations"], "promise")])
def test_lists_refuse_an_unknown_kind_with_the_known_kinds(command: list[str], kind: str) -> None:
    refused = run(*command, "--kind", "banana")
    assert refused.exit_code == 2
    assert "banana" in refused.output
    assert kind in refused.output


@pytest.mark.parametrize(
    ("text", "kind"),
    [("pg", "gang"), ("vj", "vcjob"), ("PyTorchJobs", "pytorchjob"), ("lws", "leaderworkerset"), ("x", "x")],
)
def test_kind_of_a_list_is_selected_by_kind_plural_and_short_name(text: str, kind: str) -> None:
    assert parse_kinds([text]) == {kind}


def test_pod_group_of_an_operator_is_selected_by_the_kind_of_its_job() -> None:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "train", "uid": "u", "controller": True}
    document = {"metadata": {"name": "train", "namespace": "a", "ownerReferences": [owner]}}
    entry = JobEntry(kind="gang", namespace="a", name="train")
    assert kinds_of(FoundJob(entry, document, (document,), (), group_kinds()[0])) == {"gang", "pytorchjob"}


@pytest.mark.parametrize(
    ("name", "served", "unserved"),
    [
        ("phalanx", {"phalanx", "gangs"}, []),
        ("gangs", {"phalanx", "gangs"}, []),
        ("nosuch", {"phalanx", "gangs"}, ["nosuch"]),
        ("phalanx", {"gangs"}, ["phalanx"]),
        ("default-scheduler", {"phalanx"}, []),
    ],
)
def test_scheduler_name_without_a_scheduler_is_found_in_jobs_and_pods(
    name: str, served: set[str], unserved: list[str]
) -> None:
    template = {"spec": {"schedulerName": name}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {"template": template}}
    assert unserved_scheduler_names([vcjob(schedulerName=name)], served) == unserved
    assert unserved_scheduler_names([job, vcjob(schedulerName=name)], served) == unserved
    assert unserved_scheduler_names([vcjob()], served) == []


class Publishing:
    """Client of a cluster whose schedulers publish these names; None: the user cannot read them. The user has a
    token, and the cluster no server."""

    namespace = "default"
    config = ClusterConfig("https://cluster.example")

    def __init__(self, names: tuple[str, ...] | None) -> None:
        self._names = names

    async def identity(self) -> ClientIdentity:
        return ClientIdentity("Bearer token")

    async def get(self, path: str) -> dict[str, Any]:
        if self._names is None or "kube-public" in path:
            raise ApiError(403, "Forbidden", "forbidden")
        return {"data": {"a": json.dumps({"schedulerNames": self._names, "policy": ""})} if self._names else {}}


@pytest.mark.parametrize(
    ("published", "warning"),
    [(("phalanx",), True), (("phalanx", "nosuch"), False), ((), False), (None, False)],
)
def test_submit_warns_of_an_unserved_scheduler_name_where_names_are_published(
    published: tuple[str, ...] | None, warning: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    client: Any = Publishing(published)
    invocation = Invocation(client=ClientOptions())
    asyncio.run(warn_of_unserved_names(invocation, client, [vcjob(schedulerName="nosuch")]))
    expected = 'warning: no Phalanx scheduler serves schedulerName "nosuch"; expected one of phalanx.'
    assert (expected in capsys.readouterr().err) is warning

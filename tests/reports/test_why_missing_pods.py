"""`phalanx why` about pods that do not exist: it names the quota that keeps their owner from creating them."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.cli.explanation.why import parse_target
from phalanx.cluster.state import ClusterState
from phalanx.dialects.intake import Intake
from phalanx.model.events import GangUpdated, NodeUpdated, PodUpdated
from phalanx.model.gang import Gang, GangKey, GroupRef
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass, PodPhase
from phalanx.model.resources import requests_of
from phalanx.reports.missing_pods import add_missing_pods, why_owner
from phalanx.reports.snapshot import Snapshot
from phalanx.reports.why import WhyReport
from phalanx.reports.why_answer import WhyAnswer
from phalanx.reports.why_target import DryRunAnswers
from phalanx.scheduling.policy.loader import load_policy
from tests.controllers.api import Json, MemoryApi
from tests.controllers.quotas import Quotas

JOBS, VCJOBS, SETS = "batch/v1/jobs", "batch.volcano.sh/v1alpha1/jobs", "apps/v1/replicasets"
ONE = PodClass(requests=requests_of({"cpu": 1000}))
TEMPLATE = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}


class Cluster:
    def __init__(self, **hard: str) -> None:
        self.api = MemoryApi()
        if hard:
            Quotas(self.api).set("team", hard)
        self.snapshot = Snapshot(ClusterState(), Intake(("phalanx",)))
        self.snapshot.state.apply(NodeUpdated(Node("n", allocatable=requests_of({"cpu": 1000, "pods": 110}))))

    def owner(self, collection: str, **spec: Any) -> None:
        metadata: Json = {"name": "o", "uid": "owner", **spec.pop("metadata", {})}
        self.api.apply(collection, {"metadata": metadata, "spec": spec})

    def pods(self, count: int, gang: str = "") -> None:
        for number in range(count):
            owner = {"kind": "Job", "apiVersion": "batch/v1", "name": "o", "uid": "owner", "controller": True}
            metadata = {"name": f"p-{number}", "uid": f"u{number}", "ownerReferences": [owner]}
            body = {"metadata": metadata, "spec": TEMPLATE["spec"], "status": {"phase": "Pending"}}
            self.api.apply("v1/pods", body)
            pod = Pod(
                "default",
                f"p-{number}",
                f"u{number}",
                ONE,
                ONE.requests,
                "phalanx",
                "",
                PodPhase.PENDING,
                gang=gang,
            )
            self.snapshot.state.apply(PodUpdated(pod))

    def event(self, message: str) -> None:
        body = {
            "metadata": {"name": f"e{len(self.api.objects)}"},
            "reason": "FailedCreate",
            "message": message,
            "involvedObject": {"uid": "owner"},
        }
        self.api.apply("v1/events", body)

    def report(self) -> WhyReport:
        return WhyReport(self.snapshot, load_policy(), 1e9)

    async def ask(self, kind: str = "job") -> WhyAnswer:
        answer = await why_owner(self.api, DryRunAnswers(self.report()), kind, "default", "o")  # type: ignore[arg-type]
        assert answer is not None
        assert not self.api.writes
        return answer


async def test_job_whose_quota_has_no_room_for_its_pods_names_the_quota() -> None:
    cluster = Cluster(pods="3")
    cluster.owner(JOBS, parallelism=4, template=TEMPLATE)
    answer = await cluster.ask()
    assert (answer.state, answer.reason, answer.missing) == ("Pending", "QuotaExceeded", 4)
    assert answer.message == (
        "0 of its 4 pods exist: quota team lacks 1 pods: 4 new pods request 4, 3 left (limit 3)"
    )
    assert answer.change == "raise quota default/team to 4 pods"


async def test_a_part_of_the_pods_is_missing() -> None:
    cluster = Cluster(pods="10", **{"requests.cpu": "3"})
    cluster.pods(2)
    Quotas(cluster.api).recount()
    cluster.owner(JOBS, parallelism=3, completions=3, template=TEMPLATE)
    cluster.api.update("v1/resourcequotas", "team", lambda it: it["status"]["used"].update({"requests.cpu": "3"}))
    answer = await cluster.ask()
    assert answer.message.startswith("only 2 of its 3 pods exist: quota team lacks 1 requests.cpu")
    assert (
        answer.change == "free 1 requests.cpu in namespace default, or raise quota default/team by 1 requests.cpu"
    )


async def test_last_message_of_the_api_server_is_shown_where_the_quota_is_hidden() -> None:
    cluster = Cluster()
    cluster.owner(SETS, replicas=2, template=TEMPLATE)
    cluster.event('Error creating: pods "o-x" is forbidden: exceeded quota: hidden, requested: pods=1')
    answer = await cluster.ask("replicaset")
    assert answer.reason == "QuotaExceeded"
    assert answer.message == (
        '0 of its 2 pods exist: pods "o-x" is forbidden: exceeded quota: hidden, requested: pods=1'
    )


async def test_a_volcano_job_says_it_itself() -> None:
    cluster = Cluster()
    cluster.owner(VCJOBS, tasks=[{"name": "w", "replicas": 2, "template": TEMPLATE}])
    state = {"phase": "Pending", "reason": "QuotaExceeded", "message": "older is older and waits"}
    cluster.api.update(VCJOBS, "o", lambda job: job.update(status={"state": state}))
    answer = await cluster.ask()
    assert (answer.reason, answer.message) == (
        "QuotaExceeded",
        "0 of its 2 pods exist: older is older and waits",
    )


async def test_job_without_pods_suggests_a_fix_for_its_group() -> None:
    cluster = Cluster()
    source = GroupRef("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups", "default", "o-owner", "gu")
    wanted = requests_of({"cpu": 4000})
    group = Gang(
        GangKey("default", "o-owner"),
        min_member=2,
        source=source,
        min_resources=wanted,
        generated=True,
        admission=True,
        admitted=False,
    )
    cluster.snapshot.state.apply(GangUpdated(group))
    cluster.owner(VCJOBS, tasks=[{"name": "w", "replicas": 2, "template": TEMPLATE}])
    state = {"phase": "Pending", "reason": "Unschedulable", "message": "it waits to be admitted"}
    cluster.api.update(VCJOBS, "o", lambda job: job.update(status={"state": state}))
    answer = await cluster.ask()
    assert (answer.gang, answer.message) == (
        "default/o-owner",
        "0 of its 2 pods exist: it waits to be admitted",
    )
    assert answer.change == "request at most 1 cpu per pod, or add nodes that offer at least 2 cpu each"


async def test_job_whose_pods_all_exist_shows_its_gang() -> None:
    cluster = Cluster()
    cluster.snapshot.state.apply(GangUpdated(Gang(GangKey("default", "g"), min_member=2)))
    cluster.pods(2, "g")
    cluster.owner(JOBS, parallelism=2, template=TEMPLATE)
    answer = await cluster.ask()
    assert (answer.kind, answer.reason) == ("Gang", "NotEnoughResources")


async def test_suspended_job_in_a_queue_shows_the_waiting_reason_of_its_group() -> None:
    cluster = Cluster(pods="1")
    labels = {"phalanx.dev/queue": "research"}
    cluster.owner(JOBS, metadata={"labels": labels}, suspend=True, parallelism=2, template=TEMPLATE)
    answer = await cluster.ask()
    assert answer.reason == "QuotaExceeded"
    assert answer.message.startswith(
        "0 of its 2 pods exist: it is suspended, in queue research: quota team lacks 1 pods"
    )
    group = Gang(GangKey("default", "job-o-owner-1"), min_member=2)
    cluster.snapshot.state.apply(GangUpdated(group))
    answer = await cluster.ask()
    assert "it is suspended, in queue research; " in answer.message
    assert "job-o-owner-1" not in answer.message


async def test_a_job_that_has_ended_lacks_nothing() -> None:
    cluster = Cluster(pods="0")
    cluster.owner(JOBS, parallelism=2, template=TEMPLATE)
    cluster.api.update(
        JOBS, "o", lambda it: it.update(status={"conditions": [{"type": "Complete", "status": "True"}]})
    )
    answer = await cluster.ask()
    assert (answer.state, answer.message) == ("Completed", "the job has ended: Completed")


async def test_failed_job_shows_its_failure_reason_for_any_state_of_its_pods() -> None:
    cluster = Cluster(pods="9")
    cluster.owner(JOBS, parallelism=2, template=TEMPLATE)
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too many retries"}
    cluster.api.update(JOBS, "o", lambda it: it.update(status={"conditions": [failed]}))
    answer = await cluster.ask()
    assert (answer.state, answer.reason) == ("Failed", "BackoffLimitExceeded")
    assert answer.message == "the job has ended: too many retries"


@pytest.mark.parametrize("parallelism", [0, 2])
async def test_suspended_job_is_suspended_and_not_finished(parallelism: int) -> None:
    cluster = Cluster(pods="9")
    cluster.owner(JOBS, parallelism=parallelism, suspend=True, template=TEMPLATE)
    answer = await cluster.ask()
    assert (answer.state, answer.reason, answer.change) == (
        "Suspended",
        "Suspended",
        "resume it (spec.suspend: false)",
    )


@pytest.mark.parametrize("there", [0, 1])
async def test_gang_whose_owner_cannot_create_more_pods_names_the_quota(there: int) -> None:
    cluster = Cluster(pods="2")
    source = GroupRef("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups", "default", "g", "gu")
    cluster.snapshot.state.apply(GangUpdated(Gang(GangKey("default", "g"), min_member=4, source=source)))
    cluster.pods(there, "g")
    Quotas(cluster.api).recount()
    cluster.owner(JOBS, parallelism=4, template=TEMPLATE)
    owner = {"kind": "Job", "apiVersion": "batch/v1", "name": "o", "uid": "owner", "controller": True}
    cluster.api.apply(
        "scheduling.volcano.sh/v1beta1/podgroups", {"metadata": {"name": "g", "ownerReferences": [owner]}}
    )
    report, key = cluster.report(), GangKey("default", "g")
    path, members = report.object_path(key), report.member_uids(key)
    answer = await add_missing_pods(cluster.api, report.gang(key), path, members)  # type: ignore[arg-type]
    assert answer is not None
    assert answer.reason == "QuotaExceeded"
    assert "Job o: " in answer.message
    assert f"quota team lacks 2 pods: {4 - there} new pods request" in answer.message


async def test_missing_object_has_no_answer() -> None:
    cluster = Cluster()
    assert await why_owner(cluster.api, DryRunAnswers(cluster.report()), "job", "default", "o") is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("job/x", "job"),
        ("vcjob/x", "vcjob"),
        ("jobs.batch.volcano.sh/x", "vcjob"),
        ("jobs.v1alpha1.batch.volcano.sh/x", "vcjob"),
        ("rs/x", "replicaset"),
        ("statefulset.apps/x", "statefulset"),
    ],
)
def test_the_words_for_owners(words: str, kind: str) -> None:
    assert parse_target((words,)) == (kind, "x")

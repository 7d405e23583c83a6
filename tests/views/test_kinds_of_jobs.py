"""Gangs of every kind of job have one name, which every view shows and every command takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import msgspec
import pytest

from phalanx.cluster.state import ClusterState
from phalanx.daemon.gang_entries import ListedGangs
from phalanx.daemon.gang_list import GangList
from phalanx.dashboard.rows.gangs import gang_row
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.reports.jobs.job_names import with_shown_names
from phalanx.reports.jobs.job_report import found_job
from phalanx.reports.jobs.kinds import GANG, group_kinds
from phalanx.reports.snapshot import Snapshot
from phalanx.reports.start_times import start_entries
from phalanx.reports.turn_order import turn_order
from phalanx.reports.why import WhyReport
from phalanx.views.gang_names import gangs_named
from phalanx.views.promises import Promises, promises_of_scheduler
from tests.dialects.objects import VOLCANO, X_K8S
from tests.scheduling.scenario import NAMESPACE
from tests.workloads import test_applications as applications
from tests.workloads import test_jobsets as jobsets
from tests.workloads import test_leader_workers as leader_workers
from tests.workloads import test_ray as ray
from tests.workloads import test_training as training
from tests.workloads.played import JOB, Played

Build = Callable[[Played], Any]
GROUP_NAME = "scheduling.k8s.io/group-name"
POD_GROUP = "scheduling.x-k8s.io/pod-group"
VOLCANO_JOB = "batch.volcano.sh/v1alpha1/Job"


def indexed(play: Played, name: str = "train", **labels: str) -> None:
    spec: dict[str, Any] = {"parallelism": 2, "completions": 2, "completionMode": "Indexed"}
    play.owner(JOB, name, **spec)
    for index in range(2):
        annotations = {"batch.kubernetes.io/job-completion-index": str(index)}
        play.create(f"{name}-{index}", of=f"batch/v1/Job/{name}", annotations=annotations, labels=labels)


def grouped(
    play: Played, group: str, of: str, *, pods: str = "", kind: Any = VOLCANO, labels: Mapping[str, str] = {}
) -> None:
    """A PodGroup that the controller `of` makes for two pods of the controller `pods`."""
    play.pod_group(kind, group, of, minMember=2, labels=dict(labels))
    where: dict[str, Any] = {"annotations": {GROUP_NAME: group}}
    if kind is X_K8S:
        where = {"labels": {POD_GROUP: group}}
    for _ in range(2):
        play.create(f"pod-{len(play.state.pods)}", of=pods or of, **where)


def training_job(kind: str) -> Build:
    def build(play: Played) -> None:
        served, spec = training.made(kind)
        play.owner(served, "t", **spec)
        for name, role in training.pods_of(kind):
            training.create(play, kind, name, role)

    return build


def leader_worker_set(play: Played) -> None:
    leader_workers.lws(play, size=2)
    for group in range(2):
        for worker in range(2):
            leader_workers.member(play, group, worker, size=2)


def groups_of_leader_worker_set(play: Played) -> None:
    for number in range(2):
        labels = {"leaderworkerset.sigs.k8s.io/name": "serve"}
        grouped(play, f"serve-{number}-r1", f"v1/Pod/serve-{number}", labels=labels)


def jobset(play: Played) -> None:
    jobsets.jobset(play, jobsets.part("data", 1), jobsets.part("node", 1, after="data"))
    jobsets.created(play, "data", 1)
    jobsets.created(play, "node", 1)


def ray_cluster(play: Played) -> None:
    ray.head(ray.cluster(play, ray.workers(replicas=1, maxReplicas=1)))
    ray.worker(play, "w1")


def ray_job(play: Played) -> None:
    ray.head(ray.cluster(play, ray.workers(replicas=1, maxReplicas=1), of="ray.io/v1/RayJob/sub"))
    ray.worker(play, "w1")


def train_job(play: Played) -> None:
    jobsets.jobset(play, jobsets.part("node", 1), of="trainer.kubeflow.org/v1alpha1/TrainJob/js")
    jobsets.created(play, "node", 1)


def mpi(play: Played) -> None:
    play.owner(training.MPI, "t", mpiReplicaSpecs={"Launcher": {"replicas": 1}, "Worker": {"replicas": 1}})
    for role in ("launcher", "worker"):
        labels = {
            "training.kubeflow.org/job-name": "t",
            "training.kubeflow.org/job-role": role,
            "training.kubeflow.org/operator-name": "mpi-operator",
        }
        play.create(f"t-{role}", of="kubeflow.org/v2beta1/MPIJob/t", labels=labels)


def spark_application(play: Played) -> None:
    for role in ("driver", "executor"):
        of = "v1/Pod/driver" if role == "executor" else "sparkoperator.k8s.io/v1beta2/SparkApplication/pi"
        labels = {"spark-app-selector": "spark-1f", "spark-role": role, "sparkoperator.k8s.io/app-name": "pi"}
        play.create(role, of=of, labels=labels)


def group_of_two_jobs(play: Played) -> None:
    grouped(play, "lab", "", pods="batch/v1/Job/a")
    play.create("b", of="batch/v1/Job/b", annotations={GROUP_NAME: "lab"})


def three_of_one_name(play: Played) -> None:
    indexed(play)
    grouped(play, "train-uid", f"{VOLCANO_JOB}/train")
    grouped(play, "train", "")


# Played jobs, and KIND/NAME of each gang that they create.
KINDS: dict[str, tuple[Build, set[str]]] = {
    "Job": (indexed, {"job/train"}),
    "Job with a group in its template": (
        lambda play: indexed(play.pod_group(X_K8S, "lab", minMember=2), **{POD_GROUP: "lab"}),
        {"job/train"},
    ),
    "Volcano Job": (lambda play: grouped(play, "train-train", f"{VOLCANO_JOB}/train"), {"vcjob/train"}),
    "PodGroup": (lambda play: grouped(play, "train", ""), {"podgroup/train"}),
    "PodGroup of scheduler-plugins": (lambda play: grouped(play, "train", "", kind=X_K8S), {"podgroup/train"}),
    "PodGroup of two jobs": (
        group_of_two_jobs,
        {"podgroup/lab"},
    ),
    "PodGroup of a ReplicaSet": (
        lambda play: grouped(play, "podgroup-web-5f", "apps/v1/ReplicaSet/web-5f"),
        {"replicaset/web-5f"},
    ),
    **{kind: (training_job(kind), {f"{kind.lower()}/t"}) for kind in training.KINDS},
    "PyTorchJob with the group of its operator": (
        lambda play: grouped(play, "t", "kubeflow.org/v1/PyTorchJob/t", kind=X_K8S),
        {"pytorchjob/t"},
    ),
    "MPIJob": (mpi, {"mpijob/t/launcher", "mpijob/t/worker"}),
    "RayCluster": (ray_cluster, {"raycluster/ray"}),
    "RayCluster with the group of its operator": (
        lambda play: grouped(play, "ray-demo-pg", "ray.io/v1/RayCluster/demo"),
        {"raycluster/demo"},
    ),
    "RayJob": (ray_job, {"rayjob/sub"}),
    "TrainJob": (train_job, {"trainjob/js/node/0"}),
    "RayJob with the group of its operator": (
        lambda play: grouped(play, "ray-demo-pg", "ray.io/v1/RayJob/demo", pods="ray.io/v1/RayCluster/demo-x7"),
        {"rayjob/demo"},
    ),
    "Spark": (lambda play: applications.spark(play, "driver", "driver"), {"podgroup/spark-1"}),
    "SparkApplication": (spark_application, {"sparkapplication/pi"}),
    "SparkApplication with the group of its operator": (
        lambda play: grouped(play, "spark-pi-pg", "sparkoperator.k8s.io/v1beta2/SparkApplication/pi"),
        {"sparkapplication/pi"},
    ),
    "LeaderWorkerSet": (
        leader_worker_set,
        {f"lws/serve/{part}/{number}.r1.2" for part in ("leader", "workers") for number in range(2)},
    ),
    "LeaderWorkerSet with the groups of its controller": (
        groups_of_leader_worker_set,
        {"lws/serve/0-r1", "lws/serve/1-r1"},
    ),
    "JobSet": (jobset, {"jobset/js/data/0", "jobset/js/node/0"}),
    "TrainJob with the group of its operator": (
        lambda play: grouped(play, "tune", "trainer.kubeflow.org/v1alpha1/TrainJob/tune", kind=X_K8S),
        {"trainjob/tune"},
    ),
    "three of one name": (three_of_one_name, {"job/train", "vcjob/train", "podgroup/train"}),
}
# Where gangs share a name, their kind is shown.
WITH_KIND = {"three of one name"}


class Documents(Played):
    """Keeps the PodGroups as documents."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[dict[str, Any]] = []

    def pod_group(self, kind: ServedKind, name: str, of: str = "", **spec: Any) -> Self:
        metadata: dict[str, Any] = {
            "name": name,
            "namespace": NAMESPACE,
            "uid": name,
            "labels": spec.get("labels", {}),
        }
        version, _, owner = of.rpartition("/")
        version, _, owner_kind = version.rpartition("/")
        reference = {"apiVersion": version, "kind": owner_kind, "name": owner, "uid": owner, "controller": True}
        self.groups.append({"metadata": metadata | {"ownerReferences": [reference] if of else []}, "spec": {}})
        return super().pod_group(kind, name, of, **spec)


@pytest.fixture(params=KINDS)
def case(request: pytest.FixtureRequest) -> tuple[Documents, dict[str, str]]:
    """The cluster, without room, after one cycle; and the shown name of each gang by KIND/NAME."""
    build, targets = KINDS[request.param]
    play = Documents().room(0)
    build(play)
    play.run()
    names = {each: each if request.param in WITH_KIND else each.partition("/")[2] for each in targets}
    return play, names


def snapshot(play: Played) -> Snapshot:
    made = Snapshot(ClusterState(), Intake(("phalanx",)))
    made.apply_events(play.events)
    return made


async def test_every_view_shows_the_one_name(case: tuple[Documents, dict[str, str]]) -> None:
    play, names = case
    listed = GangList(play.state, lambda: promises_of_scheduler(play.scheduler), lambda key: None, lambda: play.now)
    answer = msgspec.json.decode(await listed.answer(), type=ListedGangs)
    entries = [each for each in answer.items if each.kind != "pod"]
    assert {each.target: each.name for each in entries} == names

    rows = [gang_row(record, None, None) for record in play.state.gangs.values()]
    assert {row.title or row.name for row in rows} == set(names.values())

    turns = [each for each in turn_order(snapshot(play), play.policy, play.now).entries if each.kind == "gang"]
    assert {each.target: each.name for each in turns} == names

    starts = start_entries(snapshot(play), play.policy, Promises(), float(play.now))
    assert {each.target: each.name for each in starts if each.kind == "gang"} == names


def test_why_and_verdicts_name_the_gang_as_lists_do(case: tuple[Documents, dict[str, str]]) -> None:
    play, names = case
    report = WhyReport(snapshot(play), play.policy, float(play.now))
    for key in play.state.gangs:
        answer = report.gang(key)
        assert answer is not None
        assert answer.name == answer.gang_name
        assert answer.name.removeprefix(f"{NAMESPACE}/") in names.values()
        assert f"gang {answer.name} " in answer.message
        assert f"gang {key.path} " not in answer.message or key.path == answer.name


def test_every_shown_name_and_every_target_finds_its_gang(case: tuple[Documents, dict[str, str]]) -> None:
    play, names = case
    gangs = play.state.gangs
    keys = {gangs[key].title: key for key in gangs}
    for target, name in names.items():
        key = keys[f"{NAMESPACE}/{name}"]
        for typed in (target, name):
            assert gangs_named(gangs, NAMESPACE, typed) == [key], typed
        assert gangs_named(gangs, NAMESPACE, key.name, "podgroup") == [key]


def test_lists_of_documents_show_podgroups_by_equal_names(case: tuple[Documents, dict[str, str]]) -> None:
    play, names = case
    if len(play.groups) < len(names):
        pytest.skip("its gangs have no PodGroups")
    found = [found_job(GANG, each, group_kinds()[0], (), [each], float(play.now)) for each in play.groups]
    listed = {each.target: each.entry.shown for each in with_shown_names(found)}
    if names != {"job/train": "train"}:  # there its pods are rows of the job
        assert listed == names

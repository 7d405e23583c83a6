"""PodGroups of operators that count future pods: a gang waits for all of its existing pods, and not for future
ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from phalanx.dialects.kinds import ServedKind
from phalanx.model.gang import GangCounts, GroupRef
from tests.dialects.objects import VOLCANO, X_K8S, desired_status
from tests.workloads.played import JOBSET, RAY_CLUSTER, Played
from tests.workloads.test_jobsets import EXCLUSIVE, part, words_of
from tests.workloads.test_training import KEY, mpi

GROUP_KINDS = [X_K8S, VOLCANO]
TRAIN_JOB = "trainer.kubeflow.org/v1alpha1/TrainJob/t"


def in_group(kind: ServedKind, words: dict[str, Any], group: str) -> dict[str, Any]:
    """The words of a pod, and the way in which the kind's members name their group."""
    labels, annotations = dict(words["labels"]), dict(words.get("annotations", {}))
    if kind is VOLCANO:
        annotations["scheduling.k8s.io/group-name"] = group
    else:
        labels["scheduling.x-k8s.io/pod-group"] = group
    return {"labels": labels, "annotations": annotations}


def stage(play: Played, kind: ServedKind, name: str, pods: int, job: int = 0, **details: Any) -> Played:
    for number in range(pods):
        words = in_group(kind, words_of(name, number, job), "js")
        play.create(f"{name}-{job}-{number}", of=f"batch/v1/Job/js-{name}-{job}", **words, **details)
    return play


def jobset(play: Played, *parts: dict[str, Any], of: str = TRAIN_JOB, **status: dict[str, int]) -> Played:
    """`status` has the counts of Jobs of each replicatedJob."""
    told = [{"name": name.replace("_", "-"), **counts} for name, counts in status.items()]
    return play.owner(JOBSET, "js", of=of, replicatedJobs=list(parts), status={"replicatedJobsStatus": told})


TRAINING = (part("data", 1), part("model", 1), part("node", 4, after="data", status="Complete"))


@pytest.mark.parametrize("kind", GROUP_KINDS, ids=lambda kind: kind.group)
def test_a_train_job_with_initializers_starts_stage_by_stage(kind: ServedKind) -> None:
    """Its group counts all six pods, of which never more than four exist at the same time."""
    play = Played().room(16).pod_group(kind, "js", TRAIN_JOB, minMember=6)
    jobset(play, *TRAINING)
    stage(play, kind, "data", 1).run()
    assert play.placed() == []
    assert play.why_of("data-0-0").endswith("4 pods of node are created only after data")
    stage(play, kind, "model", 1).run()
    assert play.placed() == ["data-0-0", "model-0-0"]

    stage(play, kind, "data", 1, node="n1", phase="Succeeded")
    stage(play, kind, "model", 1, node="n1", phase="Succeeded")
    jobset(play, *TRAINING, data={"succeeded": 1}, model={"succeeded": 1})
    stage(play, kind, "node", 3).run()
    assert play.placed("node") == []
    stage(play, kind, "node", 4).run()
    assert len(play.placed("node")) == 4


@pytest.mark.parametrize("kind", GROUP_KINDS, ids=lambda kind: kind.group)
def test_pods_of_the_next_stage_start_together_despite_an_outdated_status(
    kind: ServedKind,
) -> None:
    play = Played().room(16).pod_group(kind, "js", TRAIN_JOB, minMember=6)
    jobset(play, *TRAINING)
    stage(play, kind, "data", 1)
    stage(play, kind, "model", 1).run()
    stage(play, kind, "data", 1, node="n1", phase="Succeeded")
    stage(play, kind, "model", 1, node="n1", phase="Succeeded")
    stage(play, kind, "node", 2).run()
    assert play.placed("node") == []
    jobset(play, *TRAINING, data={"succeeded": 1}, model={"succeeded": 1}).run()
    assert play.placed("node") == []
    stage(play, kind, "node", 4).run()
    assert len(play.placed("node")) == 4


def test_a_launcher_that_waits_until_its_nodes_are_ready_is_not_counted_before() -> None:
    parts = (part("node", 2), part("launcher", 1, after="node", status="Ready"))
    play = jobset(Played().room(16).pod_group(X_K8S, "js", TRAIN_JOB, minMember=3), *parts)
    stage(play, X_K8S, "node", 1).run()
    assert play.placed() == []
    stage(play, X_K8S, "node", 2).run()
    assert len(play.placed()) == 2
    jobset(play, *parts, node={"ready": 1})
    stage(play, X_K8S, "launcher", 1).run()
    assert len(play.placed()) == 3


def test_leaders_of_an_exclusive_topology_start_first_and_then_all_followers() -> None:
    held = part("node", 3, jobs=2)
    held["template"]["metadata"] = {"annotations": {EXCLUSIVE: "rack"}}
    play = jobset(Played().room(16).pod_group(X_K8S, "js", "jobset.x-k8s.io/v1alpha2/JobSet/js", minMember=6), held)

    def pod(number: int, job: int) -> None:
        words = in_group(X_K8S, words_of("node", number, job, exclusive="rack"), "js")
        play.create(f"node-{job}-{number}", of=f"batch/v1/Job/js-node-{job}", **words)

    pod(0, 0)
    play.run()
    assert play.placed() == []
    pod(0, 1)
    play.run()
    assert play.placed() == ["node-0-0", "node-1-0"]
    for job, number in ((0, 1), (0, 2), (1, 1)):
        pod(number, job)
    play.run()
    assert len(play.placed()) == 2
    pod(2, 1)
    play.run()
    assert len(play.placed()) == 6


def mpi_pod(play: Played, kind: ServedKind, name: str, role: str) -> Played:
    words = {f"{KEY}job-name": "t", f"{KEY}job-role": role, f"{KEY}operator-name": "mpi-operator"}
    of = "batch/v1/Job/t-launcher" if role == "launcher" else "kubeflow.org/v2beta1/MPIJob/t"
    return play.create(name, of=of, **in_group(kind, {"labels": words}, "t"))


@pytest.mark.parametrize("kind", GROUP_KINDS, ids=lambda kind: kind.group)
@pytest.mark.parametrize(("room", "launcher"), [(2, 1), (3, 2)])
def test_workers_do_not_start_where_their_launcher_would_find_no_room(
    kind: ServedKind, room: int, launcher: int
) -> None:
    """All would wait for it, and none would ever end. Its requests are the remainder of minResources."""
    play = Played().room(room)
    play.pod_group(kind, "t", "kubeflow.org/v2beta1/MPIJob/t", minMember=3, minResources={"cpu": 2 + launcher})
    mpi(play, launcherCreationPolicy="WaitForWorkersReady")
    for name in ("w0", "w1"):
        mpi_pod(play, kind, name, "worker").run()
    assert play.placed() == []
    play.room(room + 1).run()
    assert play.placed() == ["w0", "w1"]
    # A pod that arrives in between does not get the room.
    play.create("other", of="").run()
    assert "other" not in play.placed()


@pytest.mark.parametrize("kind", GROUP_KINDS, ids=lambda kind: kind.group)
def test_parts_that_run_after_earlier_ones_complete_need_no_reserved_room(kind: ServedKind) -> None:
    play = Played().room(2).pod_group(kind, "js", TRAIN_JOB, minMember=6, minResources={"cpu": 6})
    jobset(play, *TRAINING)
    stage(play, kind, "data", 1)
    stage(play, kind, "model", 1).run()
    assert play.placed() == ["data-0-0", "model-0-0"]


@pytest.mark.parametrize("kind", GROUP_KINDS, ids=lambda kind: kind.group)
def test_the_workers_of_an_mpi_job_do_not_wait_for_a_launcher_that_waits_for_them(kind: ServedKind) -> None:
    play = Played().room(8).pod_group(kind, "t", "kubeflow.org/v2beta1/MPIJob/t", minMember=3)
    mpi(play, launcherCreationPolicy="WaitForWorkersReady")
    mpi_pod(play, kind, "w0", "worker").run()
    assert play.placed() == []
    assert play.why_of("w0").endswith("the launcher is created only after all workers are ready")
    mpi_pod(play, kind, "w1", "worker").run()
    assert play.placed() == ["w0", "w1"]
    assert len(mpi_pod(play, kind, "launcher", "launcher").run().placed()) == 3


@pytest.mark.parametrize("kind", GROUP_KINDS, ids=lambda kind: kind.group)
def test_a_launcher_that_may_exist_is_waited_for(kind: ServedKind) -> None:
    play = Played().room(8).pod_group(kind, "t", "kubeflow.org/v2beta1/MPIJob/t", minMember=3)
    mpi(play)
    mpi_pod(play, kind, "w0", "worker")
    mpi_pod(play, kind, "w1", "worker").run()
    assert play.placed() == []


@pytest.mark.parametrize(
    ("of", "tell"),
    [
        ("", lambda play: jobset(play, *TRAINING)),
        ("example.com/v1/TrainJob/js", lambda play: jobset(play, *TRAINING)),
        ("trainer.kubeflow.org/v1alpha1/TrainJob/other", lambda play: jobset(play, *TRAINING)),
        (TRAIN_JOB, lambda play: jobset(play, *TRAINING, of="")),
        (TRAIN_JOB, lambda play: jobset(play, part("data", 1), part("model", 1), part("node", 4))),
        (TRAIN_JOB, lambda play: play.not_readable(JOBSET)),
    ],
    ids=["made by hand", "another kind", "another owner", "a JobSet of nobody", "no stages", "owners not readable"],
)
def test_group_minimum_counts_where_its_owner_declares_no_later_pods(
    of: str, tell: Callable[[Played], Played]
) -> None:
    play = tell(Played().room(16).pod_group(X_K8S, "js", of, minMember=6))
    stage(play, X_K8S, "data", 1)
    stage(play, X_K8S, "model", 1).run()
    assert play.placed() == []


def test_less_than_a_stage_is_enough_where_the_group_says_so() -> None:
    play = jobset(Played().room(16).pod_group(X_K8S, "js", TRAIN_JOB, minMember=1), *TRAINING)
    assert stage(play, X_K8S, "data", 1).run().placed() == ["data-0-0"]


def test_owner_and_group_can_arrive_and_be_deleted_in_any_order() -> None:
    play = jobset(stage(stage(Played().room(16), X_K8S, "data", 1), X_K8S, "model", 1), *TRAINING).run()
    assert play.placed() == []
    play.pod_group(X_K8S, "js", TRAIN_JOB, minMember=6)
    assert play.gang_of("data-0-0").min_member == 2
    assert ("jobset.x-k8s.io", "jobsets") in play.intake.workloads.wanted
    play.no_owner(JOBSET, "js")
    assert play.gang_of("data-0-0").min_member == 2, "what was said last holds for those that are left"
    play.pod_group(X_K8S, "js", "", minMember=6)
    assert play.gang_of("data-0-0").min_member == 6
    play.pod_group(X_K8S, "js", TRAIN_JOB, minMember=6)
    assert play.gang_of("data-0-0").min_member == 6, "nobody says anything any more"


@pytest.mark.parametrize("kind", GROUP_KINDS, ids=lambda kind: kind.group)
def test_a_group_is_over_when_all_have_done_their_work_and_not_between_two_stages(kind: ServedKind) -> None:
    play = Played().room(16).pod_group(kind, "js", TRAIN_JOB, minMember=6)
    jobset(play, *TRAINING)

    def phase(**counts: int) -> str:
        about = GroupRef(kind.group, kind.version, kind.kind, kind.plural, "default", "js", "js")
        change = desired_status(about, {"phase": "Running"}, play.gang_of("data-0-0"), GangCounts(**counts))
        return "Running" if change is None else change.patch["status"].get("phase", "Running")

    stage(play, kind, "data", 1)
    stage(play, kind, "model", 1).run()
    stage(play, kind, "data", 1, node="n1", phase="Succeeded")
    stage(play, kind, "model", 1, node="n1", phase="Succeeded")
    assert phase(succeeded=2) == "Running"
    jobset(play, *TRAINING, data={"succeeded": 1}, model={"succeeded": 1})
    stage(play, kind, "node", 4).run()
    assert phase(succeeded=4, running=2) == "Running"
    assert phase(succeeded=6) == ("Finished" if kind is X_K8S else "Completed")


@pytest.mark.parametrize("room", [3, 4])
def test_a_ray_cluster_does_not_start_where_its_jobs_submitter_would_find_no_room(room: int) -> None:
    """KubeRay does not count the submitter, but includes its requests in minResources."""
    play = Played().room(room).pod_group(VOLCANO, "r", "ray.io/v1/RayJob/r", minMember=3, minResources={"cpu": 4})
    words = {"annotations": {"scheduling.k8s.io/group-name": "r"}}
    for name in ("head", "w0", "w1"):
        play.create(name, of="ray.io/v1/RayCluster/r-abcde", **words).run()
    assert play.placed() == ([] if room == 3 else ["head", "w0", "w1"])
    if room == 4:
        play.create("other").run()
        assert "other" not in play.placed()
        play.create("submitter", of="batch/v1/Job/r", **words).run()
        assert "submitter" in play.placed()


@pytest.mark.parametrize(("room", "started"), [(3, []), (4, ["leader"])])
def test_a_leader_does_not_start_where_its_workers_would_find_no_room(room: int, started: list[str]) -> None:
    """LeaderWorkerSet's provider for Volcano creates the group of a replica with `startupPolicy: LeaderReady`."""
    key = "leaderworkerset.sigs.k8s.io/"
    play = Played().room(room).pod_group(VOLCANO, "l-0", "v1/Pod/leader", minMember=1, minResources={"cpu": 4})

    def pod(name: str, number: int) -> None:
        labels = {f"{key}name": "l", f"{key}group-index": "0", f"{key}worker-index": str(number)}
        annotations = {f"{key}size": "4", "scheduling.k8s.io/group-name": "l-0"}
        play.create(name, of="apps/v1/StatefulSet/l", labels=labels, annotations=annotations)
        play.run()

    pod("leader", 0)
    assert play.placed() == started
    if started:
        play.create("other").run()
        assert play.placed() == ["leader"]
        for number in (1, 2, 3):
            pod(f"w{number}", number)
        assert play.placed() == ["leader", "w1", "w2", "w3"]


def test_ray_cluster_that_was_scaled_down_waits_only_for_its_desired_workers() -> None:
    """KubeRay writes a group of scheduler-plugins once, and never again."""
    play = Played().room(9).pod_group(X_K8S, "r", "ray.io/v1/RayCluster/r", minMember=5)
    groups = [{"groupName": "w", "replicas": 4, "minReplicas": 0, "maxReplicas": 9}]
    play.owner(RAY_CLUSTER, "r", workerGroupSpecs=groups)
    words = {"labels": {"scheduling.x-k8s.io/pod-group": "r"}}
    for name in ("head", "w0", "w1"):
        play.create(name, of="ray.io/v1/RayCluster/r", **words).run()
    assert play.placed() == []
    play.owner(RAY_CLUSTER, "r", workerGroupSpecs=[{**groups[0], "replicas": 2}]).run()
    assert play.placed() == ["head", "w0", "w1"]

"""Run times of pods: every spelling, precedence, and unreadable values."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.run_times.enricher import RunTimes
from phalanx.dialects.status import desired_status as status_of_kind
from phalanx.dialects.times import format_time
from phalanx.model.events import ClusterEvent, PodUpdated
from phalanx.model.gang import Gang, GangCounts, GangKey, GroupRef
from phalanx.model.pod import Pod
from phalanx.model.run_time import NO_RUN_TIME, RunTime
from tests.dialects.objects import (
    DIALECTS,
    EPOCH,
    KUBE_BATCH,
    SIGS,
    VOLCANO,
    VOLCANO_QUEUE,
    X_K8S,
    decode,
    group,
    pod_document,
)

JOB = ServedKind("batch", "v1", "jobs", "Job")
JOBSET = ServedKind("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
TRAIN_JOB = ServedKind("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob")
RAY_CLUSTER = ServedKind("ray.io", "v1", "rayclusters", "RayCluster")
RAY_JOB = ServedKind("ray.io", "v1", "rayjobs", "RayJob")
MPI_JOB = ServedKind("kubeflow.org", "v2beta1", "mpijobs", "MPIJob")
PYTORCH_JOB = ServedKind("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
KUEUE = ServedKind("kueue.x-k8s.io", "v1beta2", "workloads", "Workload")

MAX, EXPECTED = "phalanx.dev/max-run-time", "phalanx.dev/expected-run-time"
KAI, SLURM = "kai.scheduler/expected-runtime", "slurmjob.slinky.slurm.net/timelimit"
ESTIMATE = "phalanx.dev/job-running-estimate"
KUEUE_LABEL = "kueue.x-k8s.io/max-exec-time-seconds"
GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
START = EPOCH + 100
GROUPS = {each.kind.group: each for each in DIALECTS.groups.values()}


class Door:
    """An intake that records the last state of each pod."""

    def __init__(self, **options: Any) -> None:
        self.intake = Intake({"phalanx"}, DialectOptions(**options))
        self.pods: dict[str, Pod] = {}

    def pod(self, name: str = "p", owner: tuple[ServedKind, str] | None = None, **details: Any) -> RunTime:
        document = pod_document(name, **details)
        if owner is not None:
            document["metadata"]["ownerReferences"] = [reference(*owner)]
        self.see(self.intake.pod(decode(document)))
        return self.pods[name].run_time

    def owner(
        self, kind: ServedKind, name: str, above: tuple[ServedKind, str] | None = None, **fields: Any
    ) -> None:
        metadata: dict[str, Any] = {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{kind.kind}-{name}",
            "creationTimestamp": format_time(EPOCH),
            "labels": fields.pop("labels", {}),
        }
        if above is not None:
            metadata["ownerReferences"] = [reference(*above)]
        self.see(self.intake.apply(self.intake.enrichers.updated(kind, {"metadata": metadata, **fields})))

    def queue(self, name: str, most: str = "", parent: str = "") -> None:
        annotations = {MAX: most} if most else {}
        document = {"metadata": {"name": name, "annotations": annotations}, "spec": {"parent": parent}}
        self.see(self.intake.account(VOLCANO_QUEUE, document))

    def see(self, events: list[ClusterEvent]) -> None:
        for event in events:
            if isinstance(event, PodUpdated):
                self.pods[event.pod.name] = event.pod

    @property
    def told(self) -> list[str]:
        return [f"{each.about.kind} {each.about.name}: {each.message}" for each in self.intake.drain_warnings()]

    @property
    def wanted(self) -> list[str]:
        return [kind.kind for kind in self.intake.run_times.wanted]


def reference(kind: ServedKind, name: str) -> dict[str, Any]:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": name,
        "uid": f"uid-{kind.kind}-{name}",
        "controller": True,
    }


# -- statements of pods


def test_pod_without_a_run_time_has_no_end_and_keeps_its_class() -> None:
    door = Door()
    assert door.pod() is NO_RUN_TIME
    assert door.pods["p"].pod_class.run_limit == 0


def test_deadline_of_a_pod_is_a_limit_from_its_start() -> None:
    door = Door()
    assert door.pod(activeDeadlineSeconds=600) == RunTime(600, "spec.activeDeadlineSeconds")
    assert door.pods["p"].pod_class.run_limit == 630  # with its grace period of 30 s


def test_pods_of_one_template_share_their_class() -> None:
    door = Door()
    door.pod("a", activeDeadlineSeconds=600)
    door.pod("b", activeDeadlineSeconds=600)
    door.pod("c", activeDeadlineSeconds=600, terminationGracePeriodSeconds=5)
    assert door.pods["a"].pod_class is door.pods["b"].pod_class
    assert door.pods["c"].pod_class.run_limit == 605


@pytest.mark.parametrize(
    ("annotations", "seconds", "source"),
    [
        ({EXPECTED: "1h30m"}, 5400, f"annotation {EXPECTED}"),
        ({KAI: "45m"}, 2700, f"annotation {KAI}"),
        ({ESTIMATE: "2h"}, 7200, "the Job's spec.runningEstimate"),
        ({SLURM: "90"}, 5400, f"annotation {SLURM}"),
        ({SLURM: "0"}, 0, ""),
        # Our own key comes first, then KAI's, then the Job's, then Slurm's.
        ({EXPECTED: "1m", KAI: "2m", ESTIMATE: "3m", SLURM: "4"}, 60, f"annotation {EXPECTED}"),
        ({KAI: "2m", ESTIMATE: "3m", SLURM: "4"}, 120, f"annotation {KAI}"),
        ({ESTIMATE: "3m", SLURM: "4"}, 180, "the Job's spec.runningEstimate"),
        # An unreadable value yields to the next source.
        ({EXPECTED: "soon", KAI: "2m"}, 120, f"annotation {KAI}"),
    ],
)
def test_expected_run_time_is_an_estimate_and_no_limit(
    annotations: dict[str, str], seconds: int, source: str
) -> None:
    door = Door()
    assert door.pod(annotations=annotations) == RunTime(estimate=seconds, estimate_source=source)
    assert door.pods["p"].pod_class.run_limit == 0


@pytest.mark.parametrize(
    ("annotation", "text", "advice"),
    [
        (MAX, "3 days", "write a duration above 0, such as 90m or 36h; the value is ignored"),
        (EXPECTED, "-5m", "write a duration above 0, such as 90m or 36h; the value is ignored"),
        (EXPECTED, "0", "write a duration above 0, such as 90m or 36h; the value is ignored"),
        (KAI, "9999999h", "write a duration above 0, such as 90m or 36h; the value is ignored"),
        (SLURM, "1h", 'write whole minutes, such as "90"; the value is ignored'),
        (SLURM, "9" * 400, 'write whole minutes, such as "90"; the value is ignored'),
    ],
)
def test_invalid_run_time_is_reported_once_and_blocks_nothing(annotation: str, text: str, advice: str) -> None:
    door = Door()
    assert door.pod(annotations={annotation: text}) is NO_RUN_TIME
    (told,) = door.told
    assert told.startswith(f"Pod p: metadata.annotations[{annotation}]: '")
    assert told.endswith(f": {advice}")
    assert not door.pods["p"].problem
    door.pod(annotations={annotation: text}, labels={"any": "change"})
    assert door.told == []


def test_invalid_deadline_blocks_nothing() -> None:
    door = Door()
    assert door.pod(activeDeadlineSeconds="soon") is NO_RUN_TIME
    assert door.told == [
        'Pod p: spec.activeDeadlineSeconds: "soon": write whole seconds above 0; the value is ignored'
    ]
    assert not door.pods["p"].problem


def test_removed_run_time_of_a_pod_does_not_count() -> None:
    door = Door()
    door.pod(activeDeadlineSeconds=600)
    assert door.pod() is NO_RUN_TIME
    assert door.pods["p"].pod_class.run_limit == 0


# -- statements of groups


@pytest.mark.parametrize("kind", [X_K8S, SIGS, VOLCANO])
def test_run_time_of_a_group_applies_to_all_its_members(kind: ServedKind) -> None:
    label = {X_K8S: GROUP_LABEL, SIGS: "pod-group.scheduling.sigs.k8s.io"}.get(kind)
    marks: dict[str, Any] = {"annotations": {"scheduling.k8s.io/group-name": "g"}}
    if label:
        marks = {"labels": {label: "g"}}
    door = Door()
    door.see(door.intake.group(kind, group(annotations={EXPECTED: "1h", MAX: "2h"}, minMember=2)))
    for name in ("a", "b"):
        assert door.pod(name, **marks) == RunTime(
            estimate=3600,
            estimate_source=f"PodGroup g: annotation {EXPECTED}",
            allowed=7200,
            allowed_source=f"PodGroup g: annotation {MAX}",
        )
    door.see(door.intake.group(kind, group(annotations={EXPECTED: "5m"}, minMember=2)))
    assert door.pods["a"].run_time.estimate == 300
    door.see(door.intake.group_removed(kind, "default", "g"))
    assert door.pods["b"].run_time is NO_RUN_TIME


def test_kind_of_source_precedes_its_place() -> None:
    door = Door()
    door.see(door.intake.group(X_K8S, group(annotations={KAI: "1h"}, minMember=1)))
    labels = {GROUP_LABEL: "g"}
    assert door.pod("a", labels=labels, annotations={SLURM: "5"}).estimate == 3600
    assert door.pod("b", labels=labels, annotations={KAI: "5m"}).estimate == 300


def test_invalid_run_time_of_a_group_is_reported_and_blocks_nothing() -> None:
    door = Door()
    door.see(door.intake.group(X_K8S, group(annotations={EXPECTED: "soon"}, minMember=1)))
    assert door.pod(labels={GROUP_LABEL: "g"}) is NO_RUN_TIME
    assert any("soon" in told and "PodGroup" in told for told in door.told)


# -- statements of owners


def test_job_ends_its_pods_by_its_own_clock() -> None:
    door = Door()
    assert door.pod(owner=(JOB, "train")) is NO_RUN_TIME
    door.owner(JOB, "train", spec={"activeDeadlineSeconds": 3600})
    source = "Job train: spec.activeDeadlineSeconds"
    assert door.pods["p"].run_time == RunTime(3600, source)
    door.owner(JOB, "train", spec={"activeDeadlineSeconds": 3600}, status={"startTime": format_time(START)})
    assert door.pods["p"].run_time == RunTime(3600, source, START + 3600, deadline_source=source)
    assert door.pods["p"].run_time.latest_end(START + 1000, 30) == START + 3630
    # Later pods (a retry) are under the same clock.
    assert door.pod("q", owner=(JOB, "train")).deadline == START + 3600
    assert door.pods["p"].pod_class is door.pods["q"].pod_class
    # A changed or removed limit reaches them.
    door.owner(JOB, "train", spec={"activeDeadlineSeconds": 60})
    assert door.pods["p"].run_time.limit == 60
    door.owner(JOB, "train", spec={})
    assert door.pods["p"].run_time is NO_RUN_TIME


def test_run_time_of_a_namesake_of_the_owner_does_not_apply() -> None:
    door = Door()
    door.pod(owner=(JOB, "train"))
    metadata = {"name": "train", "namespace": "default", "uid": "another"}
    document = {"metadata": metadata, "spec": {"activeDeadlineSeconds": 60}}
    door.see(door.intake.apply(door.intake.enrichers.updated(JOB, document)))
    assert door.pods["p"].run_time is NO_RUN_TIME


def test_owner_that_released_its_pod_does_not_end_it() -> None:
    door = Door()
    door.owner(JOB, "train", spec={"activeDeadlineSeconds": 60})
    door.owner(JOB, "other", spec={"activeDeadlineSeconds": 90})
    assert door.pod(owner=(JOB, "train")).limit == 60
    assert door.pod(owner=(JOB, "other")).limit == 90
    assert door.pod() is NO_RUN_TIME


def test_earliest_of_all_limits_applies() -> None:
    door = Door()
    door.owner(JOB, "train", spec={"activeDeadlineSeconds": 3600})
    assert door.pod("a", owner=(JOB, "train"), activeDeadlineSeconds=60).limit == 60
    assert door.pod("b", owner=(JOB, "train"), activeDeadlineSeconds=7200) == RunTime(
        3600, "Job train: spec.activeDeadlineSeconds"
    )


def test_train_job_counts_from_its_creation_and_again_from_its_resumption() -> None:
    door = Door()
    door.pod(owner=(JOB, "t-node-0"))
    door.owner(JOB, "t-node-0", above=(JOBSET, "t"), spec={})
    door.owner(JOBSET, "t", above=(TRAIN_JOB, "t"), spec={})
    spec = {"activeDeadlineSeconds": 500}
    door.owner(TRAIN_JOB, "t", spec=spec)
    source = "TrainJob t: spec.activeDeadlineSeconds"
    assert door.pods["p"].run_time == RunTime(500, source, EPOCH + 500, deadline_source=source)
    resumed = {"type": "Suspended", "status": "False", "lastTransitionTime": format_time(START)}
    door.owner(TRAIN_JOB, "t", spec=spec, status={"conditions": [resumed]})
    assert door.pods["p"].run_time.deadline == START + 500


@pytest.mark.parametrize(
    ("spec", "limit"),
    [
        ({"shutdownAfterJobFinishes": True}, 500),
        ({"shutdownAfterJobFinishes": True, "ttlSecondsAfterFinished": 60}, 560),
        # The job fails, and the cluster remains.
        ({}, 0),
    ],
)
def test_ray_job_ends_its_pods_only_if_it_shuts_its_cluster_down(spec: dict[str, Any], limit: int) -> None:
    door = Door()
    door.pod(owner=(RAY_CLUSTER, "r-abc"))
    door.owner(RAY_CLUSTER, "r-abc", above=(RAY_JOB, "r"), spec={})
    status = {"startTime": format_time(START)}
    door.owner(RAY_JOB, "r", spec={"activeDeadlineSeconds": 500, **spec}, status=status)
    found = door.pods["p"].run_time
    assert (found.limit, found.deadline) == (limit, START + limit if limit else 0)


@pytest.mark.parametrize("kind", [MPI_JOB, PYTORCH_JOB])
@pytest.mark.parametrize(("cleans", "limit"), [("Running", 500), ("All", 500), ("None", 0), (None, 0)])
def test_training_job_ends_its_pods_only_if_it_cleans_up(kind: ServedKind, cleans: str | None, limit: int) -> None:
    door = Door()
    door.pod(owner=(kind, "t"))
    door.owner(kind, "t", spec={"runPolicy": {"activeDeadlineSeconds": 500, "cleanPodPolicy": cleans}})
    found = door.pods["p"].run_time
    assert (found.limit, found.limit_source) == (
        limit,
        f"{kind.kind} t: spec.runPolicy.activeDeadlineSeconds" if limit else "",
    )


def test_kueue_ends_admitted_workloads_and_counts_earlier_run_times() -> None:
    door = Door()
    door.pod(owner=(JOB, "train"))
    assert "Workload" not in door.wanted
    door.owner(JOB, "train", labels={KUEUE_LABEL: "600"}, spec={})
    assert "Workload" in door.wanted
    admitted = {"type": "Admitted", "status": "True", "lastTransitionTime": format_time(START)}
    door.owner(
        KUEUE,
        "job-train",
        above=(JOB, "train"),
        spec={"maximumExecutionTimeSeconds": 600},
        status={"accumulatedPastExecutionTimeSeconds": 100, "conditions": [admitted]},
    )
    source = f"label {KUEUE_LABEL}"
    assert door.pods["p"].run_time == RunTime(500, source, START + 500, deadline_source=source)


def test_label_of_kueue_without_a_workload_is_no_limit() -> None:
    assert Door().pod(labels={KUEUE_LABEL: "600"}) is NO_RUN_TIME


def test_limit_of_a_kueue_workload_applies_to_its_plain_pod() -> None:
    door = Door()
    door.pod(labels={KUEUE_LABEL: "600"})
    metadata = {"name": "w", "namespace": "default", "uid": "w", "ownerReferences": [{"uid": "uid-p"}]}
    document = {"metadata": metadata, "spec": {"maximumExecutionTimeSeconds": 600}}
    door.see(door.intake.apply(door.intake.enrichers.updated(KUEUE, document)))
    assert door.pods["p"].run_time.limit == 600
    door.see(door.intake.apply(door.intake.enrichers.removed(KUEUE, "default", "w")))
    assert door.pods["p"].run_time is NO_RUN_TIME


@pytest.mark.parametrize("stated", ["soon", -5, 0, 2**40, True, [1]])
def test_invalid_deadline_of_an_owner_is_reported_on_the_owner(stated: object) -> None:
    door = Door()
    door.pod(owner=(JOB, "train"))
    door.owner(JOB, "train", spec={"activeDeadlineSeconds": stated})
    (told,) = door.told
    assert told.startswith("Job train: spec.activeDeadlineSeconds is ")
    assert told.endswith("; write whole seconds above 0; the value is ignored")
    assert door.pods["p"].run_time is NO_RUN_TIME


def test_owners_in_a_cycle_apply_their_own_limits() -> None:
    door = Door()
    door.pod(owner=(JOB, "a"))
    door.owner(JOB, "a", above=(JOBSET, "b"), spec={"activeDeadlineSeconds": 60})
    door.owner(JOBSET, "b", above=(JOB, "a"), spec={})
    assert door.pods["p"].run_time.limit == 60


def test_kinds_of_owners_are_watched_only_once_a_pod_needs_them() -> None:
    door = Door()
    asked: list[None] = []
    door.intake.run_times.on_wanted = lambda: asked.append(None)
    door.pod()
    assert door.wanted == []
    door.pod("q", owner=(JOB, "train"))
    door.pod("r", owner=(JOB, "other"))
    assert (door.wanted, len(asked)) == (["Job"], 1)
    door.owner(JOB, "train", above=(JOBSET, "t"), spec={})
    assert (door.wanted, len(asked)) == (["Job", "JobSet"], 2)


def test_kind_that_is_no_longer_served_sets_no_limit() -> None:
    door = Door()
    door.pod(owner=(JOB, "train"))
    door.owner(JOB, "train", spec={"activeDeadlineSeconds": 60})
    door.see(door.intake.apply(door.intake.enrichers.unserved(JOB)))
    assert door.pods["p"].run_time is NO_RUN_TIME


def test_deleted_pods_and_owners_leave_no_state() -> None:
    door = Door()
    door.pod(owner=(JOB, "train"), activeDeadlineSeconds=60)
    door.owner(JOB, "train", above=(JOBSET, "t"), spec={"activeDeadlineSeconds": 60})
    door.see(door.intake.apply(door.intake.enrichers.removed(JOB, "default", "train")))
    door.see(door.intake.pod_removed("default", "p", "uid-p"))
    found: RunTimes = door.intake.run_times
    kept = (
        found._pod_times,
        found._controllers,
        found._pods_of_owner,
        found._owners,
        found._children,
        found._attached,
        found._uids,
    )
    assert not any(kept)


# -- statements of queues


def test_run_time_limit_of_a_queue_applies_to_the_queues_below() -> None:
    door = Door()
    queue = "scheduling.volcano.sh/queue-name"
    for name, most in (("root", ""), ("lab", "10h"), ("other", "")):
        door.queue(name, most)
    door.queue("vision", parent="lab")
    door.queue("speech", "2h", parent="lab")
    door.queue("sound", "20h", parent="lab")
    found = {name: door.pod(name, annotations={queue: name}) for name in ("vision", "speech", "sound", "other")}
    lab = f"Queue lab: annotation {MAX}"
    assert found == {
        "vision": RunTime(allowed=36000, allowed_source=lab),
        "speech": RunTime(allowed=7200, allowed_source=f"Queue speech: annotation {MAX}"),
        "sound": RunTime(allowed=36000, allowed_source=lab),
        "other": NO_RUN_TIME,
    }
    door.queue("lab")
    assert door.pods["vision"].run_time is NO_RUN_TIME
    assert door.pods["sound"].run_time.allowed == 72000
    door.queue("root", "1h")
    assert {name: door.pods[name].run_time.allowed for name in found} == dict.fromkeys(found, 3600)


def test_pod_can_have_a_shorter_limit_than_its_queue_and_no_longer_one() -> None:
    door = Door()
    door.queue("default", "1h")
    assert door.pod("a", annotations={MAX: "30m"}).allowed == 1800
    assert door.pod("b", annotations={MAX: "2h"}).allowed_source == f"Queue default: annotation {MAX}"


def test_limit_that_only_we_enforce_counts_only_where_we_do() -> None:
    source = f"annotation {MAX}"
    door = Door()
    assert door.pod(annotations={MAX: "10m"}) == RunTime(allowed=600, allowed_source=source)
    assert door.pods["p"].pod_class.run_limit == 0
    door.see(door.intake.enforce_run_times(True))
    assert door.pods["p"].run_time == RunTime(600, source, allowed=600, allowed_source=source)
    assert door.pods["p"].run_time == Door(enforces_run_times=True).pod(annotations={MAX: "10m"})
    assert door.pods["p"].pod_class.run_limit == 630
    # We end no pods of other schedulers.
    assert door.pod("q", annotations={MAX: "10m"}, schedulerName="default-scheduler").limit == 0


def test_invalid_run_time_of_a_queue_is_reported_and_ignored() -> None:
    door = Door()
    door.queue("default", "long")
    assert door.pod() is NO_RUN_TIME
    assert any(MAX in told and "long" in told for told in door.told)


def test_pod_beyond_its_run_time_is_reported() -> None:
    assert RunTime(allowed=60).exceeded(started=100, now=160)
    assert not RunTime(allowed=60).exceeded(started=100, now=159)
    assert not RunTime(allowed=60).exceeded(started=0, now=159)
    assert not RunTime(limit=60).exceeded(started=100, now=1000)


@pytest.mark.parametrize("kind", [VOLCANO, KUBE_BATCH])
def test_group_beyond_its_run_time_has_a_condition_until_it_is_not(kind: ServedKind) -> None:
    gang, counts = Gang(GangKey("default", "g"), min_member=1), GangCounts(running=1)
    ref = GroupRef(kind.group, kind.version, kind.kind, kind.plural, "default", "g", "u")
    status: dict[str, Any] = {}
    told = []
    for exceeded in ("", "it runs longer than it may", ""):
        change = status_of_kind(GROUPS[kind.group], ref, status, gang, counts, now=START, exceeded=exceeded)
        status |= change.patch["status"] if change is not None else {}
        found = [each for each in status.get("conditions", ()) if each["type"] == "RunTimeExceeded"]
        told.append([(each["status"], each["message"]) for each in found])
    assert told == [[], [("True", "it runs longer than it may")], [("False", "")]]

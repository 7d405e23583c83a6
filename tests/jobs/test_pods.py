"""Names, labels and annotations of a job's pods, key by key as Volcano 1.16 writes them."""

from __future__ import annotations

import copy

import pytest

from phalanx.jobs.pods import desired_pod
from tests.jobs.written import OWNER, Json, job, pod, task


def test_the_whole_pod() -> None:
    made = job(task(), schedulerName="volcano", queue="research")
    assert desired_pod(made, made.spec.tasks[0], 3, version=2, retry_count=5) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "train-worker-3",
            "namespace": "team",
            "ownerReferences": [OWNER],
            "labels": {
                "volcano.sh/task-index": "3",
                "volcano.sh/task-spec": "worker",
                "volcano.sh/job-name": "train",
                "volcano.sh/job-namespace": "team",
                "volcano.sh/queue-name": "research",
            },
            "annotations": {
                "volcano.sh/task-index": "3",
                "volcano.sh/task-spec": "worker",
                "volcano.sh/job-name": "train",
                "volcano.sh/queue-name": "research",
                "volcano.sh/job-version": "2",
                "volcano.sh/job-retry-count": "5",
                "volcano.sh/template-uid": "train-worker",
                "scheduling.k8s.io/group-name": "train-123",
            },
        },
        "spec": {"containers": [{"name": "main", "image": "i"}], "schedulerName": "volcano"},
    }


def test_pod_is_deterministic_and_the_template_is_not_changed() -> None:
    made = job(
        task(spec={"containers": [{"name": "main"}]}), plugins={"svc": [], "ssh": [], "mpi": ["--worker=worker"]}
    )
    before = copy.deepcopy(made.spec.tasks[0].template)
    assert pod(made) == pod(made)
    assert made.spec.tasks[0].template == before


def test_job_without_scheduler_and_queue_gets_the_defaults() -> None:
    made = job()
    assert pod(made)["spec"]["schedulerName"] == "phalanx"
    assert pod(made)["metadata"]["labels"]["volcano.sh/queue-name"] == "default"
    named = desired_pod(made, made.spec.tasks[0], 0, version=0, retry_count=0, scheduler_name="gpu")
    assert named["spec"]["schedulerName"] == "gpu"


def test_the_template_comes_before_the_job() -> None:
    own = {"schedulerName": "other", "priorityClassName": "low", "containers": []}
    made = job(task(spec=own), schedulerName="volcano", priorityClassName="high")
    assert pod(made)["spec"] == own
    assert pod(job(priorityClassName="high"))["spec"]["priorityClassName"] == "high"


def test_metadata_of_the_template_is_preserved_except_for_the_jobs_own_keys() -> None:
    own = {
        "name": "ignored",
        "labels": {"app": "a", "volcano.sh/task-spec": "liar"},
        "annotations": {"note": "n", "scheduling.k8s.io/group-name": "liar"},
    }
    each = task()
    each["template"]["metadata"] = own
    metadata = pod(job(each))["metadata"]
    assert metadata["name"] == "train-worker-0"
    assert metadata["labels"]["app"] == "a"
    assert metadata["labels"]["volcano.sh/task-spec"] == "worker"
    assert metadata["annotations"]["note"] == "n"
    assert metadata["annotations"]["scheduling.k8s.io/group-name"] == "train-123"


@pytest.mark.parametrize(
    "template", [{}, {"metadata": None, "spec": None}, {"metadata": [], "spec": "odd"}], ids=str
)
def test_a_template_that_says_nothing_readable_makes_a_pod_that_the_api_server_judges(template: Json) -> None:
    made = job({"name": "worker", "replicas": 1, "template": template}, plugins={"svc": [], "ssh": [], "env": []})
    assert pod(made)["metadata"]["labels"]["volcano.sh/job-name"] == "train"


def test_containers_that_are_none_are_handed_on() -> None:
    odd = {"containers": "many", "initContainers": [7, {"name": "first", "env": "odd"}], "volumes": {}}
    made = job(
        task(spec=odd), plugins={"svc": [], "env": []}, volumes=[{"mountPath": "/d", "volumeClaimName": "c"}]
    )
    spec = pod(made)["spec"]
    assert (spec["containers"], spec["initContainers"][0], spec["volumes"]) == ("many", 7, {})


def test_nameless_tasks_are_named_by_position() -> None:
    made = job({"replicas": 1, "template": {}}, {"replicas": 1, "template": {}})
    names = [
        desired_pod(made, each, 0, version=0, retry_count=0)["metadata"]["name"] for each in made.spec.named_tasks()
    ]
    assert names == ["train-default0-0", "train-default1-0"]


def test_labels_and_annotations_that_a_job_hands_to_its_pods() -> None:
    keys = {
        "volcano.sh/preemptable": "true",
        "volcano.sh/cooldown-time": "600s",
        "volcano.sh/revocable-zone": "*",
        "volcano.sh/jdb-min-available": "2",
        "volcano.sh/jdb-max-unavailable": "3",
        "other": "x",
    }
    metadata = pod(job(metadata={"labels": keys, "annotations": keys}))["metadata"]
    own = ("task-", "job-name", "job-namespace", "queue-name", "job-version", "job-retry-count", "template-uid")

    def copied(part: str) -> dict[str, str]:
        return {
            key: value
            for key, value in metadata[part].items()
            if not key.removeprefix("volcano.sh/").startswith((*own, "scheduling.k8s.io/"))
        }

    assert copied("labels") == {"volcano.sh/preemptable": "true", "volcano.sh/cooldown-time": "600s"}
    assert copied("annotations") == {
        "volcano.sh/preemptable": "true",
        "volcano.sh/cooldown-time": "600s",
        "volcano.sh/revocable-zone": "*",
        "volcano.sh/jdb-min-available": "2",
    }
    only = pod(job(metadata={"annotations": {"volcano.sh/jdb-max-unavailable": "3"}}))["metadata"]["annotations"]
    assert only["volcano.sh/jdb-max-unavailable"] == "3"


@pytest.mark.parametrize(("index", "partition"), [(0, "0"), (3, "0"), (4, "1"), (7, "1")])
def test_partitions_are_numbered_by_index(index: int, partition: str) -> None:
    made = job(task(replicas=8, partitionPolicy={"totalPartitions": 2, "partitionSize": 4}))
    assert pod(made, index=index)["metadata"]["labels"]["volcano.sh/partition-id"] == partition


def test_partitions_without_a_size_are_one() -> None:
    made = job(task(replicas=8, partitionPolicy={"totalPartitions": 2}))
    assert pod(made, index=7)["metadata"]["labels"]["volcano.sh/partition-id"] == "0"


def test_the_numa_policy_of_a_task() -> None:
    annotations = pod(job(task(topologyPolicy="single-numa-node")))["metadata"]["annotations"]
    assert annotations["volcano.sh/numa-topology-policy"] == "single-numa-node"


def test_pods_in_the_hosts_network_still_find_each_other() -> None:
    made = job(task(spec={"hostNetwork": True, "containers": []}))
    assert pod(made)["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
    stated = job(task(spec={"hostNetwork": True, "dnsPolicy": "Default", "containers": []}))
    assert pod(stated)["spec"]["dnsPolicy"] == "Default"
    assert "dnsPolicy" not in pod(job())["spec"]


def test_a_group_with_the_name_that_volcano_gave_before_1_5() -> None:
    made = job()
    old = desired_pod(made, made.spec.tasks[0], 0, version=0, retry_count=0, group="train")
    assert old["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "train"


def test_pods_carry_the_declared_run_time_of_their_job() -> None:
    made = pod(job(task(), runningEstimate="2h", metadata={"annotations": {"phalanx.dev/max-run-time": "5h"}}))
    notes = made["metadata"]["annotations"]
    assert notes["phalanx.dev/job-running-estimate"] == "2h"
    assert notes["phalanx.dev/max-run-time"] == "5h"
    assert "phalanx.dev/job-running-estimate" not in pod(job(task()))["metadata"]["annotations"]

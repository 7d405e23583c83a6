"""Clusters that a placement of Karmada allows, and the patch of a binding."""

from __future__ import annotations

from typing import Any

from phalanx.hub.choice.assignment import Candidate
from phalanx.hub.karmada.bindings import Step, confirmation, next_step, result, upkeep
from phalanx.hub.karmada.placement import cluster_groups, obstacle, refusal
from phalanx.hub.karmada.templates import VOLCANO_JOB, question, template_kind
from phalanx.hub.objects import Json, StoredObject

NOW = 1_000_000.0


def cluster(name: str, **spec: Any) -> Json:
    served = [{"groupVersion": "batch/v1", "resources": [{"kind": "Job"}]}]
    labels = {"tier": "gpu"} if name == "east" else {}
    metadata = {"name": name, "uid": name, "resourceVersion": "1", "labels": labels}
    return {"metadata": metadata, "spec": spec, "status": {"apiEnablements": served}}


CLUSTERS = {name: StoredObject(cluster(name)) for name in ("east", "north", "west")}


def binding(placement: Json | None = None, **spec: Any) -> Json:
    whole = {
        "schedulerName": "phalanx",
        "resource": {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "j1"},
        "replicas": 2,
        "placement": placement or {},
        **spec,
    }
    metadata = {"name": "train-job", "namespace": "ml", "uid": "b1", "resourceVersion": "5", "generation": 1}
    return {"metadata": metadata, "spec": whole, "status": {}}


def sent(made: Json, answer: Json) -> Json:
    """Merge a patch as an API server does."""
    notes = {**made["metadata"].get("annotations", {}), **answer["metadata"].get("annotations", {})}
    metadata = {**made["metadata"], "annotations": notes}
    merged = {part: {**made[part], **answer.get(part, {})} for part in ("spec", "status")}
    return {"metadata": metadata, **merged}


def test_only_bindings_whose_policy_names_this_scheduler_are_scheduled() -> None:
    assert next_step(binding(), CLUSTERS) is Step.CHOOSE
    for others in ("default-scheduler", "", None):
        assert next_step(binding(schedulerName=others), CLUSTERS) is Step.LEAVE
    assert next_step(binding(suspension={"scheduling": True}), CLUSTERS) is Step.LEAVE


def test_assigned_cluster_stays_until_karmada_evicts_it_or_the_policy_forbids_it() -> None:
    there = sent(binding(), result(binding(), "east", [Candidate("east", 5)], ""))
    assert next_step(there, CLUSTERS) is Step.CONFIRM
    assert next_step(there, {"west": CLUSTERS["west"]}) is Step.CHOOSE
    there["spec"]["placement"] = {"clusterAffinity": {"clusterNames": ["west"]}}
    assert next_step(there, CLUSTERS) is Step.CHOOSE
    evicted = binding(gracefulEvictionTasks=[{"fromCluster": "east", "reason": "TaintUntolerated"}])
    assert next_step(evicted, CLUSTERS) is Step.CHOOSE
    assert "evicted" in obstacle(evicted["spec"], cluster("east"))
    assert obstacle(evicted["spec"], cluster("west")) == ""


def test_a_result_is_written_once_and_follows_the_number_of_replicas() -> None:
    there = sent(binding(), result(binding(), "east", [Candidate("east", 5)], ""))
    assert there["spec"]["clusters"] == [{"name": "east", "replicas": 2}]
    assert upkeep(there) is None
    said = confirmation(there, CLUSTERS, NOW)
    assert said is not None
    there = sent(there, said)
    assert confirmation(there, CLUSTERS, NOW + 60) is None
    there["spec"]["replicas"] = 3
    again = upkeep(there)
    assert again is not None
    assert again["spec"]["clusters"] == [{"name": "east", "replicas": 3}]
    components = binding(components=[{"name": "master", "replicas": 1}, {"name": "worker", "replicas": 4}])
    assert result(components, "east", [], "")["spec"]["clusters"] == [{"name": "east"}]


def test_placement_that_divides_or_spreads_a_gang_is_refused_with_a_message() -> None:
    assert "divides replicas" in refusal(binding({"replicaScheduling": {}})["spec"])
    assert "divides replicas" in refusal(
        binding({"replicaScheduling": {"replicaSchedulingType": "Divided"}})["spec"]
    )
    assert refusal(binding({"replicaScheduling": {"replicaSchedulingType": "Duplicated"}})["spec"]) == ""
    assert "at least 2 groups" in refusal(binding({"spreadConstraints": [{"minGroups": 2}]})["spec"])
    assert refusal(binding()["spec"]) == ""


def allows(placement: Json, *clusters: Json) -> list[list[str]]:
    return [
        [each["metadata"]["name"] for each in clusters if group.has(each)] for group in cluster_groups(placement)
    ]


def test_affinities_are_read_as_karmada_reads_them() -> None:
    east, west = cluster("east", zones=["a", "b"], region="eu"), cluster("west")
    assert allows({}, east, west) == [["east", "west"]]
    assert allows({"clusterAffinity": {"clusterNames": ["west"]}}, east, west) == [["west"]]
    assert allows({"clusterAffinity": {"exclude": ["west"]}}, east, west) == [["east"]]
    labelled = {"clusterAffinity": {"labelSelector": {"matchLabels": {"tier": "gpu"}}}}
    assert allows(labelled, east, west) == [["east"]]
    for field, operator, values, found in (
        ("zone", "In", ["b"], ["east"]),
        ("zone", "NotIn", ["b"], ["west"]),
        ("region", "In", ["eu"], ["east"]),
        ("region", "In", ["us"], []),
    ):
        expression = {"key": field, "operator": operator, "values": values}
        affinity = {"clusterAffinity": {"fieldSelector": {"matchExpressions": [expression]}}}
        assert allows(affinity, east, west) == [found]
    terms = [{"affinityName": "own", "clusterNames": ["west"]}, {"affinityName": "rented"}]
    assert allows({"clusterAffinities": terms}, east, west) == [["west"], ["east", "west"]]
    assert allows({"clusterAffinity": {"labelSelector": {"matchLabels": 7}}}, east) == [[]]


def test_taints_and_missing_kinds_keep_a_binding_away() -> None:
    tainted = cluster("east", taints=[{"key": "down", "effect": "NoExecute"}])
    assert "down:NoExecute" in obstacle(binding()["spec"], tainted)
    tolerating = binding({"clusterTolerations": [{"key": "down", "operator": "Exists"}]})
    assert obstacle(tolerating["spec"], tainted) == ""
    other = binding(resource={"apiVersion": "ray.io/v1", "kind": "RayJob"})
    assert "does not serve RayJob of ray.io/v1" in obstacle(other["spec"], cluster("east"))


def test_a_volcano_job_is_asked_about_as_the_gang_that_volcano_makes_of_it() -> None:
    kind = template_kind({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"})
    assert kind is VOLCANO_JOB
    pod = {"spec": {"containers": [{"name": "main"}]}}
    tasks = [{"name": "ps", "replicas": 1, "template": pod}, {"name": "worker", "replicas": 3, "template": pod}]
    job = {
        "metadata": {"name": "train", "namespace": "ml", "uid": "j1"},
        "spec": {"minAvailable": 3, "queue": "research", "tasks": tasks},
    }
    head, *pods = question(VOLCANO_JOB, job)
    assert head["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    assert head["spec"] == {"minMember": 3, "queue": "research"}
    assert len(pods) == 4
    assert all(each["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "train" for each in pods)

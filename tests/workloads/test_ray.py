"""Ray clusters: the head and its initial workers."""

from __future__ import annotations

from typing import Any

from tests.workloads.played import RAY_CLUSTER, Played

OF = "ray.io/v1/RayCluster/ray"


def workers(name: str = "gpu", **fields: Any) -> dict[str, Any]:
    return {"groupName": name, **fields}


def cluster(play: Played, *groups: dict[str, Any], **spec: Any) -> Played:
    return play.owner(RAY_CLUSTER, "ray", headGroupSpec={}, workerGroupSpecs=list(groups), **spec)


def head(play: Played) -> Played:
    return play.create("head", of=OF, labels={"ray.io/node-type": "head", "ray.io/group": "headgroup"})


def worker(play: Played, *names: str, group: str = "gpu", replica: str = "") -> Played:
    labels = {"ray.io/node-type": "worker", "ray.io/group": group}
    if replica:
        labels["ray.io/worker-group-replica-name"] = replica
    return play.create(*names, of=OF, labels=labels)


def test_head_and_workers_start_together() -> None:
    play = head(cluster(Played().room(8), workers(replicas=2, minReplicas=0, maxReplicas=4)))
    worker(play, "w1").run()
    assert play.placed() == []
    worker(play, "w2").run()
    assert len(play.placed()) == 3


def test_workers_cannot_take_the_place_of_the_head() -> None:
    play = cluster(Played().room(8), workers(replicas=2, maxReplicas=4))
    worker(play, "w1", "w2", "w3").run()
    assert play.placed() == []
    assert len(head(play).run().placed()) == 4


def test_workers_added_by_the_autoscaler_are_surplus() -> None:
    groups = workers(replicas=4, minReplicas=1, maxReplicas=8)
    play = head(cluster(Played().room(3), groups, enableInTreeAutoscaling=True))
    worker(play, "w1", "w2", "w3", "w4").run()
    assert len(play.placed()) == 3
    assert play.gang_of("head").min_member == 2


def test_a_worker_that_the_autoscaler_deletes_breaks_nothing() -> None:
    play = head(cluster(Played().room(4), workers(replicas=3, maxReplicas=4)))
    worker(play, "w1", "w2", "w3").run()
    cluster(play, workers(replicas=2, maxReplicas=4)).gone("w2").run()
    assert play.placed() == ["head", "w1", "w3"]
    assert play.gang_of("head").problem is None


def test_replicas_are_kept_within_their_bounds_and_suspended_groups_do_not_count() -> None:
    play = cluster(Played(), workers(replicas=9, maxReplicas=3), workers("cpu", replicas=5, suspend=True))
    assert head(play).gang_of("head").roles == (("gpu", 3), ("headgroup", 1))


def test_a_replica_of_several_hosts_starts_whole() -> None:
    groups = workers(replicas=4, minReplicas=1, maxReplicas=8, numOfHosts=2)
    play = head(cluster(Played().room(6), groups, enableInTreeAutoscaling=True))
    for replica in ("a", "b", "c"):
        worker(play, f"{replica}1", f"{replica}2", replica=replica)
    play.run()
    assert play.gang_of("head").min_member == 3
    assert sorted(len(play.placed(replica)) for replica in ("a", "b", "c")) == [0, 2, 2]


def test_hosts_without_labels_start_by_number() -> None:
    """Older operators do not say which replica a host belongs to."""
    play = head(cluster(Played().room(8), workers(replicas=1, maxReplicas=1, numOfHosts=2)))
    worker(play, "w1").run()
    assert play.placed() == []
    assert len(worker(play, "w2").run().placed()) == 3


def test_the_submitter_of_a_ray_job_is_on_its_own() -> None:
    """It is created when the cluster is ready: a cluster that waited for it would wait for ever."""
    play = head(cluster(Played().room(8), workers(replicas=1, maxReplicas=1)))
    worker(play, "w1").run()
    assert play.placed() == ["head", "w1"]
    play.create("submit", of="batch/v1/Job/ray-job", labels={"batch.kubernetes.io/job-name": "ray-job"}).run()
    assert play.alone() == ["submit"]
    assert "submit" in play.placed()

"""Operators that create no group: their jobs are read only where necessary, from a real API."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.model.run_time import RunTime
from tests.e2e.world import World, resource_of

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

Object = dict[str, Any]


def job(parallelism: int = 3) -> Object:
    container = {"name": "main", "image": "example/main", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"schedulerName": "phalanx", "restartPolicy": "Never", "containers": [container]}}
    spec = {
        "completionMode": "Indexed",
        "parallelism": parallelism,
        "completions": parallelism,
        "template": template,
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec}


def member(job: Object, index: int) -> Object:
    """A pod as the Job's controller makes it."""
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    words = {"batch.kubernetes.io/job-completion-index": str(index)}
    metadata = {"name": f"train-{index}", "labels": words, "annotations": words, "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": job["spec"]["template"]["spec"]}


async def test_an_indexed_job_starts_whole(world: World) -> None:
    await world.node("n1")
    scheduler = await world.scheduler()
    made = await world.make(job())
    await world.make(member(made, 0))
    await world.make(member(made, 1))
    await world.until_held("train-0", "train-1", words="2 of the 3 required pods")
    await world.make(member(made, 2))
    await world.until_bound("train-0", "train-1", "train-2")
    await world.settled(scheduler, quiet=0.3)
    assert scheduler.wire.count(lambda write: write.endswith("/binding")) == 3


async def test_pods_created_before_the_scheduler_starts_wait_until_their_job_is_read(world: World) -> None:
    await world.node("n1", cpu="2")
    made = await world.make(job())
    for index in range(3):
        await world.make(member(made, index))
    await world.scheduler()
    await world.until_held("train-0", "train-1", "train-2", words="2 of the 3 required pods .* fit")


async def test_jobs_are_not_watched_before_a_pod_needs_them(world: World) -> None:
    await world.node("n1")
    scheduler = await world.scheduler()
    await world.make(job())
    await world.pod("single")
    await world.until_bound("single")
    watched = {kind.plural for kind in scheduler.service.observer.kinds._kinds}
    assert "jobs" not in watched


MPI_JOBS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "mpijobs.kubeflow.org"},
    "spec": {
        "group": "kubeflow.org",
        "scope": "Namespaced",
        "names": {"plural": "mpijobs", "kind": "MPIJob"},
        "versions": [
            {
                "name": "v2beta1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        ],
    },
}


async def test_a_group_that_counts_a_launcher_which_comes_later_starts(world: World) -> None:
    """The job of the MPI operator with `launcherCreationPolicy: WaitForWorkersReady`."""
    await world.node("n1")
    await world.make(MPI_JOBS)
    await world.scheduler()
    mpi = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "mpi"}}
    spec = {"launcherCreationPolicy": "WaitForWorkersReady", "mpiReplicaSpecs": {"Worker": {"replicas": 2}}}
    made = await world.make({**mpi, "spec": spec})
    owner = {key: mpi[key] for key in ("apiVersion", "kind")} | {
        "name": "mpi",
        "uid": made["metadata"]["uid"],
        "controller": True,
    }
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "spec": {"minMember": 3}}
    await world.make({**group, "metadata": {"name": "mpi", "ownerReferences": [owner]}})
    labels = {"scheduling.x-k8s.io/pod-group": "mpi", "training.kubeflow.org/job-name": "mpi"}
    for index in range(2):
        words = {**labels, "training.kubeflow.org/job-role": "worker"}
        metadata = {"name": f"worker-{index}", "labels": words, "ownerReferences": [owner]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": job()["spec"]["template"]["spec"]}
        await world.make(pod)
        if not index:
            await world.until_held("worker-0", words="launcher is created only after all workers are ready")
    await world.until_bound("worker-0", "worker-1")


async def test_the_deadline_of_a_job_reaches_its_pods_and_its_clock_when_it_runs(world: World) -> None:
    await world.node("n1")
    scheduler = await world.scheduler()
    document = job(1)
    document["spec"] |= {"completionMode": "NonIndexed", "activeDeadlineSeconds": 3600}
    made = await world.make(document)
    body = member(made, 0)
    del body["metadata"]["annotations"]
    await world.make(body)
    await world.until_bound("train-0")

    def run_time() -> RunTime:
        pods = scheduler.service.state.pods.values()
        return next(each.pod.run_time for each in pods if each.pod.name.endswith("train-0"))

    async def limited() -> bool:
        return run_time().limit == 3600

    async def under_its_clock() -> bool:
        return run_time().deadline == 1_795_413_600

    await world.until(limited, "the limit of the Job is known")
    assert run_time().limit_source == "Job train: spec.activeDeadlineSeconds"
    start = {"status": {"startTime": "2026-11-23T05:00:00Z"}}
    await world.patch(resource_of(made), "train", start, status=True)
    await world.until(under_its_clock, "the clock of the Job is known")

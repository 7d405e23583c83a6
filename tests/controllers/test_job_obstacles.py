"""Jobs whose objects cannot be created: other objects have their names, or the API refuses them."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.kube.errors import ApiError
from tests.controllers.jobs import GROUPS, PODS, JobWorld

SERVICES, CLAIMS = "v1/services", "v1/persistentvolumeclaims"


async def pass_time(world: JobWorld, seconds: int) -> None:
    world.api.now += seconds
    await world.settle()


def foreign(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "spec": {}, "status": {"phase": "Running"}}


@pytest.mark.parametrize("labelled", [True, False], ids=["of-an-earlier-job", "of-a-user"])
async def test_job_waits_for_pods_that_have_the_names_of_its_pods(labelled: bool) -> None:
    world = JobWorld()
    metadata: dict[str, Any] = {}
    if labelled:
        labels = {"volcano.sh/job-name": "j", "volcano.sh/task-spec": "w", "volcano.sh/task-index": "0"}
        owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "earlier"}
        metadata = {"labels": labels, "ownerReferences": [{**owner, "controller": True}]}
    world.api.apply(PODS, foreign("j-w-0", **metadata))
    world.submit()
    await world.settle()
    state = world.status()["state"]
    assert (state["phase"], state["reason"]) == ("Pending", "NameOccupied")
    assert state["message"].endswith("names of its pods: j-w-0")
    world.api.erase(PODS, "j-w-0")
    await pass_time(world, 6)
    assert world.pods() == {"j-w-0": "Running", "j-w-1": "Running"}
    assert world.status()["state"].get("reason", "") == ""


async def test_service_that_the_api_refuses_is_the_reason_of_the_job() -> None:
    world = JobWorld()

    def refuse(collection: str, body: dict[str, Any]) -> None:
        if collection == SERVICES:
            raise ApiError(403, "Forbidden", "exceeded quota: objects, limited: services=0")

    world.api.refuse = refuse
    world.submit(plugins={"svc": []})
    await world.rounds(5)
    state = world.status()["state"]
    assert (state["phase"], state["reason"]) == ("Pending", "FailedCreate")
    assert state["message"] == "Service j was refused: exceeded quota: objects, limited: services=0"
    assert ("j", "FailedCreate", state["message"]) in world.api.events
    world.api.refuse = lambda collection, body: None
    await pass_time(world, 31)
    assert set(world.pods().values()) == {"Running"}


@pytest.mark.parametrize("kind", ["service", "claim", "group"])
async def test_job_waits_for_the_end_of_objects_that_are_being_deleted(kind: str) -> None:
    world = JobWorld(runs=False)
    world.submit(
        plugins={"svc": []},
        volumes=[{"mountPath": "/data", "volumeClaim": {"resources": {"requests": {"storage": "1Gi"}}}}],
    )
    await world.settle()
    collection = {"service": SERVICES, "claim": CLAIMS, "group": GROUPS}[kind]
    (existing,) = world.api.all(collection)
    name = existing["metadata"]["name"]
    for pod in list(world.pods()):
        world.api.erase(PODS, pod)
    world.api.update(collection, name, lambda it: it["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))
    # A new process checks all objects of the job.
    world.restart()
    await world.rounds(5)
    state = world.status()["state"]
    assert state["reason"] == "NameOccupied"
    assert name in state["message"]
    world.api.erase(collection, name)
    world.runs = True
    await pass_time(world, 31)
    assert set(world.pods().values()) == {"Running"}


async def test_job_of_a_scheduler_that_is_not_there_names_it_and_the_way_to_serve_it() -> None:
    world = JobWorld()
    world.admits = False
    world.submit(schedulerName="volcano")
    await world.settle()
    assert "reason" not in world.status()["state"]
    await pass_time(world, 16)
    state = world.status()["state"]
    assert (state["phase"], state["reason"]) == ("Pending", "NoScheduler")
    assert 'no scheduler named "volcano"' in state["message"]
    assert "--scheduler-name phalanx --scheduler-name volcano" in state["message"]
    world.admits = True
    await world.settle()
    assert set(world.pods().values()) == {"Running"}
    assert world.status()["state"].get("reason", "") == ""


async def test_job_whose_name_phalanx_serves_waits_for_its_admission_without_that_reason() -> None:
    world = JobWorld()
    world.admits = False
    world.submit(schedulerName="phalanx")
    await world.settle()
    await pass_time(world, 60)
    assert world.status()["state"].get("reason", "") == ""


async def test_job_with_the_disabled_ssh_plugin_waits_and_no_secret_is_read() -> None:
    world = JobWorld(ssh=False)
    world.submit(plugins={"ssh": [], "svc": []})
    await world.rounds(5)
    state = world.status()["state"]
    assert (state["reason"], state["message"]) == ("PluginError", "job plugin ssh is disabled in this cluster")
    assert world.pods() == {}

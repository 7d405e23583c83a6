"""Names of generated claims in the spec of a job, as upstream writes them."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.kube.errors import ApiError
from tests.controllers.jobs import JOBS, JobWorld

CLAIMS = "v1/persistentvolumeclaims"
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
VOLUMES: list[dict[str, Any]] = [
    {"mountPath": "/data", "volumeClaimName": "own"},
    {"mountPath": "/scratch", "volumeClaim": CLAIM},
]


def world_with_job() -> JobWorld:
    world = JobWorld()
    world.api.apply(CLAIMS, {"metadata": {"name": "own"}, "spec": CLAIM})
    world.submit(volumes=VOLUMES)
    return world


def volumes(world: JobWorld) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = world.api.get_object(JOBS, "j")["spec"]["volumes"]
    return found


def spec_writes(world: JobWorld) -> int:
    return sum(1 for verb, path in world.api.writes if verb == "patch" and path.endswith("/jobs/j"))


async def test_generated_claim_name_is_written_into_the_spec_once_and_is_the_mounted_one() -> None:
    world = world_with_job()
    await world.settle()
    (generated,) = {claim["metadata"]["name"] for claim in world.api.all(CLAIMS)} - {"own"}
    assert volumes(world) == [VOLUMES[0], {**VOLUMES[1], "volumeClaimName": generated}]
    mounted = [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in world.api.get_object("v1/pods", "j-w-0")["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    ]
    assert mounted == ["own", generated]
    world.restart()
    await world.settle()
    assert spec_writes(world) == 1
    assert len(world.api.all(CLAIMS)) == 2


async def test_name_that_an_apply_removes_is_not_written_again() -> None:
    world = world_with_job()
    await world.settle()
    world.api.update(JOBS, "j", lambda job: job["spec"].update(volumes=VOLUMES))
    await world.settle()
    assert volumes(world) == VOLUMES
    assert len(world.api.all(CLAIMS)) == 2


async def test_list_that_another_client_applies_as_a_whole_is_not_changed() -> None:
    world = world_with_job()
    entry = {"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {"f:volumes": {}}}}
    world.api.update(JOBS, "j", lambda job: job["metadata"].update(managedFields=[entry]))
    await world.settle()
    assert volumes(world) == VOLUMES
    assert len(world.api.all(CLAIMS)) == 2
    assert world.phase() == "Running"


@pytest.mark.parametrize("after", [False, True], ids=["before-the-write", "after-the-write"])
async def test_controller_that_dies_while_it_writes_the_name_completes_it(after: bool) -> None:
    world = world_with_job()
    world.api.dies_at = (2, after)
    await world.settle()
    assert world.deaths == 1
    assert "volumeClaimName" in volumes(world)[1]
    assert len(world.api.all(CLAIMS)) == 2


async def test_job_whose_spec_cannot_be_changed_gets_its_claim_anyway() -> None:
    world = world_with_job()

    async def refused(path: str, patch: Any, patch_type: Any, **more: Any) -> Any:
        raise ApiError(403, "Forbidden", "no right to change jobs")

    patch, world.api.patch = world.api.patch, refused  # type: ignore[method-assign]
    await world.rounds(3)
    world.api.patch = patch  # type: ignore[method-assign]
    await world.settle()
    assert len(world.api.all(CLAIMS)) == 2
    assert world.phase() == "Running"

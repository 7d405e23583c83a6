"""The controller dies at every single write, before it and after it, and the end is the same as if it had not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from phalanx.kube.errors import ApiError
from tests.controllers.jobs import COMMANDS, GROUPS, JOBS, PODS, JobWorld

Story = Callable[[JobWorld], Awaitable[None]]


async def runs(world: JobWorld) -> None:
    world.submit(tasks={"a": 2, "b": 1})
    await world.settle()


async def restarts_whole(world: JobWorld) -> None:
    world.submit(policies=[{"event": "PodFailed", "action": "RestartJob"}])
    await world.settle()
    world.pod_phase("j-w-1", "Failed")
    await world.settle()


async def restarts_one(world: JobWorld) -> None:
    world.submit(tasks={"w": 3}, policies=[{"event": "PodFailed", "action": "RestartPod"}])
    await world.settle()
    world.pod_phase("j-w-1", "Failed")
    await world.settle()


async def restarts_task_after_eviction(world: JobWorld) -> None:
    world.submit(tasks={"a": 2, "b": 2}, policies=[{"event": "PodEvicted", "action": "RestartTask"}])
    await world.settle()
    world.evict("j-b-0")
    await world.settle()


async def fails_at_last(world: JobWorld) -> None:
    world.submit(maxRetry=2, policies=[{"event": "PodFailed", "action": "RestartJob"}])
    await world.settle()
    for _ in range(2):
        if world.phase() == "Running":
            world.pod_phase("j-w-0", "Failed", code=4)
        await world.settle()


async def grows_and_shrinks(world: JobWorld) -> None:
    world.submit(tasks={"w": 2}, minAvailable=1)
    await world.settle()
    for count in (4, 1):
        world.api.update(JOBS, "j", lambda job, count=count: job["spec"]["tasks"][0].update(replicas=count))  # type: ignore[misc]
        await world.settle()


async def is_suspended_and_resumed(world: JobWorld) -> None:
    world.submit()
    await world.settle()
    world.command("AbortJob")
    await world.settle()
    world.command("ResumeJob", as_name="c2")
    await world.settle()


async def completes(world: JobWorld) -> None:
    world.submit(minSuccess=1, ttlSecondsAfterFinished=10)
    await world.settle()
    world.pod_phase("j-w-0", "Succeeded")
    await world.settle()


async def waits_for_quota(world: JobWorld) -> None:
    room = 2

    def refuse(collection: str, body: dict[str, Any]) -> None:
        if collection == PODS and len(world.api.all(PODS)) >= room:
            raise ApiError(403, "Forbidden", "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2")

    world.api.refuse = refuse
    world.runs = False
    world.submit(tasks={"w": 3})
    await world.settle()
    assert world.pods() == {}, "half a gang is charged and can never start"
    assert world.status()["state"]["reason"] == "QuotaExceeded"
    room = 3
    world.runs = True
    world.api.now += 300
    await world.settle()


STORIES = [
    runs,
    restarts_whole,
    restarts_one,
    restarts_task_after_eviction,
    fails_at_last,
    grows_and_shrinks,
    is_suspended_and_resumed,
    completes,
    waits_for_quota,
]


def end(world: JobWorld) -> dict[str, Any]:
    """Return the visible end state, without fields that depend on the order of writes."""
    status = world.status()
    return {
        "phase": world.phase(),
        "retries": status.get("retryCount", 0),
        "counts": {key: status.get(key, 0) for key in ("pending", "running", "succeeded", "failed", "terminating")},
        "resources": status.get("controlledResources", {}),
        "pods": world.pods(),
        "groups": [group["metadata"]["name"] for group in world.api.all(GROUPS)],
        "commands": len(world.api.all(COMMANDS)),
    }


@pytest.mark.slow_but_first
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_no_death_changes_the_end(story: Story) -> None:
    undisturbed = JobWorld()
    await story(undisturbed)
    expected, writes = end(undisturbed), len(undisturbed.api.writes)
    assert writes > 3
    for number in range(1, writes + 1):
        for applied in (False, True):
            world = JobWorld()
            world.api.dies_at = (number, applied)
            await story(world)
            # How often one tries in vain for quota may differ.
            assert world.deaths == 1 or story is waits_for_quota
            assert end(world) == expected, f"dead {'after' if applied else 'before'} write {number}"
            owners = {pod["metadata"]["ownerReferences"][0]["uid"] for pod in world.api.all(PODS)}
            assert owners <= {world.api.get_object(JOBS, "j")["metadata"]["uid"]}

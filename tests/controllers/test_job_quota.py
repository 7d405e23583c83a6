"""Pods of a job are created when the quota has room for its minimum, and the oldest job is first."""

from __future__ import annotations

from typing import Any

import pytest

from tests.controllers.jobs import JOBS, PODS, JobWorld
from tests.controllers.quotas import Quotas


class QuotaWorld(JobWorld):
    def __init__(self, hard: dict[str, str], **spec: Any) -> None:
        super().__init__()
        self.quotas = Quotas(self.api)
        self.quotas.set("team", hard, **spec)

    def _cluster(self) -> None:
        super()._cluster()
        self.quotas.recount()

    def job(self, name: str, replicas: int, cpu: str = "1", *, at: int = 0, minimum: int = 0, **pod: Any) -> None:
        resources = {"limits": {"cpu": cpu}}
        template = {"spec": {"containers": [{"name": "c", "image": "i", "resources": resources}], **pod}}
        task = {"name": "w", "replicas": replicas, "template": template}
        spec: dict[str, Any] = {"tasks": [task], "minAvailable": minimum or replicas}
        created = f"2026-01-01T00:00:{at:02}Z"
        self.api.apply(JOBS, {"metadata": {"name": name, "creationTimestamp": created}, "spec": spec})

    def finish(self, name: str) -> None:
        for pod in list(self.pods()):
            if pod.startswith(f"{name}-"):
                self.pod_phase(pod, "Succeeded")

    def state(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.status(name).get("state", {})
        return found


async def test_job_without_quota_creates_no_pods_and_reports_the_shortage() -> None:
    world = QuotaWorld({"requests.cpu": "5"})
    world.job("big", 4, cpu="2")
    await world.settle()
    assert world.pods() == {}
    assert world.quotas.refusals == 0, "nothing was tried in vain"
    assert world.state("big")["reason"] == "QuotaExceeded"
    assert world.state("big")["message"] == (
        "quota team lacks 3 requests.cpu: 4 new pods request 8, 5 left (limit 5)"
    )


async def test_job_starts_without_a_delay_when_its_quota_is_raised() -> None:
    world = QuotaWorld({"pods": "3"})
    world.job("big", 4)
    await world.settle()
    world.quotas.set("team", {"pods": "4"})
    await world.settle()
    assert world.phase("big") == "Running"
    assert "reason" not in world.state("big") or not world.state("big")["reason"]


async def test_waiting_costs_no_writes() -> None:
    world = QuotaWorld({"pods": "3"})
    world.job("big", 4)
    await world.settle()
    before = len(world.api.writes)
    world.api.now += 600
    await world.settle()
    assert len(world.api.writes) == before


async def test_the_older_job_comes_first_when_quota_is_freed() -> None:
    world = QuotaWorld({"cpu": "4"})
    world.job("first", 4, at=1)
    await world.settle()
    world.job("older", 3, at=2)
    world.job("younger", 2, at=3)
    await world.settle()
    assert world.phase("first") == "Running"
    assert {world.phase("older"), world.phase("younger")} == {"Pending"}
    world.finish("first")
    await world.settle()
    assert world.phase("older") == "Running"
    assert world.phase("younger") == "Pending"
    world.finish("older")
    await world.settle()
    assert world.phase("younger") == "Running"


async def test_younger_job_does_not_overtake_and_names_the_job_that_it_waits_for() -> None:
    world = QuotaWorld({"cpu": "4"})
    world.job("first", 2, at=1)
    await world.settle()
    world.job("older", 3, at=2)
    await world.settle()
    world.job("younger", 1, at=3)
    await world.settle()
    assert world.state("younger")["message"] == "older is older and waits for quota team"


async def test_job_that_can_never_fit_blocks_no_other_job() -> None:
    world = QuotaWorld({"cpu": "4"})
    world.job("giant", 9, at=1)
    world.job("small", 2, at=2)
    await world.settle()
    assert world.phase("small") == "Running"
    assert world.state("giant")["reason"] == "QuotaExceeded"


async def test_cancelled_job_admits_the_next_one() -> None:
    world = QuotaWorld({"cpu": "4"})
    world.job("first", 2, at=1)
    await world.settle()
    world.job("older", 3, at=2)
    await world.settle()
    world.job("younger", 2, at=3)
    await world.settle()
    assert world.phase("younger") == "Pending"
    world.api.erase(JOBS, "older")
    await world.settle()
    assert world.phase("younger") == "Running"


async def test_pods_above_the_minimum_are_created_as_far_as_they_fit_and_block_no_other_job() -> None:
    world = QuotaWorld({"cpu": "4"})
    world.job("elastic", 6, minimum=2, at=1)
    await world.settle()
    assert sorted(world.pods()) == [f"elastic-w-{index}" for index in range(4)]
    assert world.quotas.refusals == 0
    world.quotas.set("team", {"cpu": "5"})
    await world.settle()
    assert len(world.pods()) == 5


@pytest.mark.parametrize(
    ("scope", "counts"),
    [
        ({"scopes": ["NotTerminating"]}, True),
        ({"scopes": ["Terminating"]}, False),
        ({"scopes": ["NotBestEffort"]}, True),
        ({"scopes": ["BestEffort"]}, False),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}}, False),
    ],
    ids=str,
)
async def test_quota_counts_only_pods_in_its_scopes(scope: dict[str, Any], counts: bool) -> None:
    world = QuotaWorld({"pods": "1"}, **scope)
    world.job("j", 2)
    await world.settle()
    assert world.phase("j") == ("Pending" if counts else "Running")


async def test_quota_created_after_the_check_leaves_no_half_job() -> None:
    """Another client takes the room between the look and the creation."""
    world = QuotaWorld({"pods": "3"})
    enforce = world.api.refuse

    def intrude(collection: str, body: dict[str, Any]) -> None:
        if collection == PODS and body["metadata"]["name"] == "j-w-1":
            world.api.refuse = enforce
            world.api.apply(PODS, {"metadata": {"name": "other"}, "spec": {}, "status": {"phase": "Running"}})
        enforce(collection, body)

    world.api.refuse = intrude
    world.job("j", 3)
    await world.settle()
    assert sorted(world.pods()) == ["other"]
    world.api.erase(PODS, "other")
    world.api.now += 300
    await world.settle()
    assert world.phase("j") == "Running"


@pytest.mark.slow_but_first
@pytest.mark.parametrize("applied", [False, True])
async def test_no_death_creates_a_half(applied: bool) -> None:
    for number in range(1, 30):
        world = QuotaWorld({"cpu": "4"})
        world.api.dies_at = (number, applied)
        world.job("first", 3, at=1)
        world.job("second", 2, at=2)
        await world.settle()
        assert {world.phase("first"), world.phase("second")} == {"Running", "Pending"}
        assert len(world.pods()) in (2, 3)
        world.api.now += 300
        world.finish("first" if world.phase("first") == "Running" else "second")
        await world.settle()
        assert "Pending" not in {world.phase("first"), world.phase("second")}

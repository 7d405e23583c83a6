"""CronJobs and JobFlows on a whole cluster: jobs are made by the clock, and after each other."""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.test_jobs import PATIENCE, Json, Kubectl, cluster, job, kubectl

__all__ = ["cluster", "kubectl"]

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


async def test_a_cron_job_begins_its_runs(kubectl: Kubectl) -> None:
    spec = {"schedule": "@every 2s", "concurrencyPolicy": "Forbid", "jobTemplate": {"spec": job("x", 1)["spec"]}}
    await kubectl.apply(
        {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "CronJob",
            "metadata": {"name": "tick"},
            "spec": {**spec, "suspend": False},
        }
    )
    found: Json = {}
    for _ in range(int(PATIENCE / 0.3)):
        found = (await kubectl.get("cronjobs.batch.volcano.sh", "tick")).get("status", {})
        if found.get("active"):
            break
        await asyncio.sleep(0.3)
    assert found["active"][0]["name"].startswith("tick-")
    await kubectl.phase(found["active"][0]["name"], "Running")
    await kubectl("delete", "cronjobs.batch.volcano.sh", "tick")


async def test_a_flow_makes_its_jobs_after_each_other(kubectl: Kubectl) -> None:
    for name in ("first", "second"):
        await kubectl.apply(
            {
                "apiVersion": "flow.volcano.sh/v1alpha1",
                "kind": "JobTemplate",
                "metadata": {"name": name},
                "spec": job("x", 1)["spec"],
            }
        )
    probe = {"taskStatusList": [{"taskName": "w", "phase": "Running"}]}
    steps = [{"name": "first"}, {"name": "second", "dependsOn": {"targets": ["first"], "probe": probe}}]
    await kubectl.apply(
        {
            "apiVersion": "flow.volcano.sh/v1alpha1",
            "kind": "JobFlow",
            "metadata": {"name": "flow"},
            "spec": {"flows": steps},
        }
    )
    for _ in range(int(PATIENCE / 0.3)):
        if (await kubectl.get("jobflow", "flow")).get("status", {}).get("runningJobs") == [
            "flow-first",
            "flow-second",
        ]:
            break
        await asyncio.sleep(0.3)
    status = (await kubectl.get("jobflow", "flow"))["status"]
    assert status["runningJobs"] == ["flow-first", "flow-second"]
    assert status["state"] == {"phase": "Running"}
    template = await kubectl.get("jobtemplate", "second")
    assert template["status"]["jobDependsOnList"] == ["flow-second"]

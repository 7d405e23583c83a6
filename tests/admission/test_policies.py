"""The webhook's rules as admission policies, for clusters without the webhook: both decide alike where both
apply.
"""

from __future__ import annotations

from typing import Any

import pytest_asyncio

from phalanx.admission import jobs, queues
from phalanx.cli.installation.install import install_policies
from phalanx.kube.errors import ApiError
from tests.admission.conftest import PATHS, Site, of_kind
from tests.admission.objects import cluster, job, queue, task
from tests.admission.test_webhook_service import NAMING, named, open_queue, refusal

Json = dict[str, Any]

TIERS = {"highestTierAllowed": 1, "highestTierName": "rack"}
POLICY = {"event": "PodFailed", "action": "RestartJob"}
ABORT = {"action": "AbortJob"}

JOBS: list[tuple[Json, str]] = [
    (job(), ""),
    (job(task("a"), task("b", dependsOn={"name": ["a"]}), policies=[POLICY, {"exitCode": 3, **ABORT}]), ""),
    (job(task(policies=[{"event": "*", **ABORT}]), volumes=[{"mountPath": "/a", "volumeClaimName": "kept"}]), ""),
    (job(task(replicas=3, minAvailable=2), minAvailable=2, networkTopology={"highestTierAllowed": 1}), ""),
    (job() | {"spec": {"tasks": []}}, "No task specified in job spec"),
    (job(task("same"), task("same")), "duplicated task name"),
    (job(task(minAvailable=2)), "'minAvailable' is greater than 'replicas' in task"),
    (job(minAvailable=2), "job 'minAvailable' should not be greater than total replicas in tasks;"),
    (job(policies=[{**POLICY, "exitCode": 3}]), "must not specify event and exitCode simultaneously"),
    (job(task(policies=[ABORT])), "either event and exitCode should be specified"),
    (job(policies=[{"exitCode": 0, **ABORT}]), "0 is not a valid error code"),
    (job(policies=[{"exitCode": 1, **ABORT}] * 2), "duplicate exitCode"),
    (job(policies=[{"event": "PodFailed", "action": "SyncJob"}]), "invalid policy action"),
    (job(policies=[{"events": ["OutOfSync"], **ABORT}]), "invalid policy event"),
    (job(policies=[{"event": "*", **ABORT}, POLICY]), "if there's * here, no other policy should be here"),
    (job(volumes=[{"mountPath": ""}]), "mountPath is required;"),
    (job(volumes=[{"mountPath": "/v", "volumeClaimName": name} for name in "ab"]), "duplicated mountPath"),
    (job(volumes=[{"mountPath": "/v"}]), "either VolumeClaim or VolumeClaimName must be specified;"),
    (job(volumes=[{"mountPath": "/v", "volumeClaimName": "a", "volumeClaim": {}}]), "conflict: If you want to use"),
    (job(queue="root"), "can not submit job to root queue;"),
    (job(task(dependsOn={"name": ["worker"]})), "doesn't form a directed acyclic graph(DAG);"),
    (job(task(dependsOn={"name": ["gone"]})), "doesn't form a directed acyclic graph(DAG);"),
    (job(networkTopology=TIERS), "must not specify 'highestTierAllowed' and 'highestTierName'"),
    (
        job(task(replicas=5, partitionPolicy={"totalPartitions": 2, "partitionSize": 3})),
        "'Replicas' are not equal to TotalPartitions*PartitionSize",
    ),
]
QUEUES: list[tuple[Json, str]] = [
    ({"capability": {"cpu": 4}, "deserved": {"cpu": "2"}, "guarantee": {"resource": {"cpu": "1000m"}}}, ""),
    ({"guarantee": {"resource": {"cpu": "1"}}}, "must be >= guarantee"),
    ({"guarantee": {"resource": {"cpu": "3"}}, "deserved": {"cpu": "2"}}, "must be >= guarantee"),
    ({"deserved": {"memory": "2Gi"}, "capability": {"memory": "1Gi"}}, "must be <= capability"),
    ({"capability": {"cpu": "-1"}}, "must be greater than or equal to 0"),
]


@pytest_asyncio.fixture
async def guarded(site: Site) -> Site:
    """With the policies of `phalanx install --policies`."""
    await install_policies(site.admin, ["phalanx"])
    return site


async def said(write: Any) -> str:
    try:
        await write
    except ApiError as error:
        return error.message
    return ""


async def test_policies_and_webhook_agree_about_jobs_and_queues(guarded: Site) -> None:
    for number, (document, words) in enumerate(JOBS):
        by_rule = " ".join(jobs.validate(document, None, cluster()))
        body = of_kind("jobs", f"j{number}", spec=document["spec"])
        by_policy = await said(guarded.tenant.create(PATHS["jobs"], body))
        for text in (by_rule, by_policy):
            assert words in text
            assert bool(words) is bool(text), (document, text)
    for number, (spec, words) in enumerate(QUEUES):
        by_rule = " ".join(queues.validate(queue("q", **spec), None, cluster()))
        by_policy = await said(guarded.admin.create(PATHS["queues"], of_kind("queues", f"q{number}", spec=spec)))
        for text in (by_rule, by_policy):
            assert words in text
            assert bool(words) is bool(text), (spec, text)
    for name in ("default", "root"):
        assert f"`{name}` queue can not be deleted" in await refusal(
            guarded.admin.delete(f"{PATHS['queues']}/{name}")
        )
    await guarded.admin.delete(f"{PATHS['queues']}/q0")


async def test_policies_guard_every_way_to_a_queue(guarded: Site) -> None:
    await open_queue(guarded)
    for plural in NAMING:
        words = await said(guarded.tenant.create(PATHS[plural], named(plural, "rich")))
        assert "queue rich is not allowed in this namespace" in words, plural
        await guarded.tenant.create(PATHS[plural], named(plural, "default"))
        await guarded.admin.create(
            PATHS[plural], named(plural, "rich") | {"metadata": {**named(plural, "rich")["metadata"], "name": "y"}}
        )
    marked = task()
    marked["template"]["metadata"] = {"annotations": {"scheduling.volcano.sh/queue-name": "rich"}}
    body = of_kind("jobs", "z", spec={"tasks": [marked]})
    assert "a task's template names a queue" in await refusal(guarded.tenant.create(PATHS["jobs"], body))
    # An unchanged field stays allowed.
    found = await guarded.tenant.get(f"{PATHS['jobs']}/y")
    found["metadata"]["labels"] = {"a": "b"}
    await guarded.tenant.replace(f"{PATHS['jobs']}/y", found)

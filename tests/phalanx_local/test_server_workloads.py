"""The plainest workloads: ReplicaSets, Deployments and Jobs keep their pods."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from phalanx_local.server import ApiServer
from tests.phalanx_local.client import NODES, PODS, Client, Json, binding, node, pod
from tests.phalanx_local.conftest import FakeClock

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


def replicated(name: str, replicas: int, image: str = "nginx:1", **spec: Any) -> Json:
    labels = {"app": name}
    containers = [{"name": "main", "image": image}]
    template = {"metadata": {"labels": labels}, "spec": pod(containers=containers)["spec"]}
    return {
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template, **spec},
    }


def job(name: str, **spec: Any) -> Json:
    template = {"spec": pod(restartPolicy="Never")["spec"]}
    return {"metadata": {"name": name}, "spec": {"template": template, **spec}}


async def pods(client: Client, count: int, **query: str) -> list[Json]:
    """Wait for `count` living pods and return them."""
    async with asyncio.timeout(60):
        while True:
            found = [
                item
                for item in (await client.get(PODS, **query))["items"]
                if item["status"]["phase"] in ("Pending", "Running") and "deletionTimestamp" not in item["metadata"]
            ]
            if len(found) == count:
                return found
            await asyncio.sleep(0.005)


async def make_ready(client: Client, name: str) -> None:
    await client.ok("POST", f"{PODS}/{name}/binding", binding(name, "n"))
    ready = [{"type": "Ready", "status": "True"}]
    await client.merge(f"{PODS}/{name}/status", {"status": {"phase": "Running", "conditions": ready}})


async def finish(client: Client, name: str, phase: str) -> None:
    await client.merge(f"{PODS}/{name}/status", {"status": {"phase": phase}})


async def test_a_replica_set_keeps_its_pods(client: Client) -> None:
    await client.create(NODES, node("n"))
    await client.create(REPLICA_SETS, replicated("web", 3))
    made = await pods(client, 3)
    assert all(item["metadata"]["name"].startswith("web-") for item in made)
    assert {item["metadata"]["ownerReferences"][0]["kind"] for item in made} == {"ReplicaSet"}
    await client.ok("DELETE", f"{PODS}/{made[0]['metadata']['name']}")
    left = await pods(client, 3)
    await make_ready(client, left[0]["metadata"]["name"])
    await client.until(f"{REPLICA_SETS}/web", "status", "readyReplicas", equals=1)
    await client.merge(f"{REPLICA_SETS}/web", {"spec": {"replicas": 1}})
    assert [item["metadata"]["name"] for item in await pods(client, 1)] == [left[0]["metadata"]["name"]]
    await client.ok("DELETE", f"{REPLICA_SETS}/web")
    await pods(client, 0)


async def test_a_deployment_rolls_from_one_template_to_the_next(client: Client) -> None:
    await client.create(NODES, node("n"))
    await client.create(DEPLOYMENTS, replicated("web", 2))
    for item in await pods(client, 2):
        await make_ready(client, item["metadata"]["name"])
    await client.until(f"{DEPLOYMENTS}/web", "status", "availableReplicas", equals=2)
    found = await client.get(f"{DEPLOYMENTS}/web")
    assert {item["type"]: item["status"] for item in found["status"]["conditions"]} == {
        "Available": "True",
        "Progressing": "True",
    }

    change = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "nginx:2"}]}}}}
    strategic = "application/strategic-merge-patch+json"
    await client.ok("PATCH", f"{DEPLOYMENTS}/web", change, content_type=strategic)
    async with asyncio.timeout(60):
        while True:
            everything = (await client.get(PODS))["items"]
            living = [item for item in everything if "deletionTimestamp" not in item["metadata"]]
            assert len(living) <= 3  # 25 % of 2 is one pod more
            assert sum(item["status"]["phase"] == "Running" for item in living) >= 2  # and none less
            for item in everything:
                name = item["metadata"]["name"]
                if item not in living:
                    await client.call("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
                elif not item["spec"].get("nodeName"):
                    await make_ready(client, name)
            status = (await client.get(f"{DEPLOYMENTS}/web"))["status"]
            if status.get("updatedReplicas") == 2 and len(everything) == 2:
                break
    images = {item["spec"]["containers"][0]["image"] for item in (await client.get(PODS))["items"]}
    assert images == {"nginx:2"}
    sets = (await client.get(REPLICA_SETS))["items"]
    assert sorted(item["spec"]["replicas"] for item in sets) == [0, 2]
    assert sorted(item["metadata"]["annotations"]["deployment.kubernetes.io/revision"] for item in sets) == [
        "1",
        "2",
    ]


async def test_a_job_runs_until_enough_have_succeeded(client: Client) -> None:
    await client.create(JOBS, job("work", parallelism=2, completions=3))
    first = await pods(client, 2)
    assert first[0]["metadata"]["labels"]["job-name"] == "work"
    for item in first:
        await finish(client, item["metadata"]["name"], "Succeeded")
    last = await pods(client, 1)
    await client.until(f"{JOBS}/work", "status", "succeeded", equals=2)
    await finish(client, last[0]["metadata"]["name"], "Succeeded")
    done = await client.until(f"{JOBS}/work", "status", "succeeded", equals=3)
    assert done["status"]["completionTime"] == "2027-01-15T08:00:00Z"
    conditions = {item["type"]: item["status"] for item in done["status"]["conditions"]}
    assert conditions == {"SuccessCriteriaMet": "True", "Complete": "True"}
    assert len((await client.get(PODS))["items"]) == 3


async def test_a_finished_pod_counts_although_it_is_deleted(client: Client) -> None:
    await client.create(JOBS, job("work", completions=2, parallelism=1))
    name = (await pods(client, 1))[0]["metadata"]["name"]
    await finish(client, name, "Succeeded")
    await client.call("DELETE", f"{PODS}/{name}")
    await client.gone(f"{PODS}/{name}")
    await client.until(f"{JOBS}/work", "status", "succeeded", equals=1)
    assert len(await pods(client, 1)) == 1


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
async def test_deleted_job_releases_its_running_pods(client: Client, policy: str) -> None:
    await client.create(NODES, node("n"))
    await client.create(JOBS, job("work", parallelism=2, completions=2))
    made = await pods(client, 2)
    for item in made:
        await make_ready(client, item["metadata"]["name"])
    await client.call("DELETE", f"{JOBS}/work", {"propagationPolicy": policy})
    for item in made:
        await client.until(f"{PODS}/{item['metadata']['name']}", "metadata", "finalizers", equals=None)
        await client.call("DELETE", f"{PODS}/{item['metadata']['name']}", {"gracePeriodSeconds": 0})
    await client.gone(f"{JOBS}/work")
    assert await client.names(PODS) == []


async def test_an_orphaned_pod_is_held_by_no_job(client: Client) -> None:
    await client.create(JOBS, job("work", parallelism=1, completions=1))
    name = (await pods(client, 1))[0]["metadata"]["name"]
    await client.call("DELETE", f"{JOBS}/work", {"propagationPolicy": "Orphan"})
    await client.gone(f"{JOBS}/work")
    left = await client.until(f"{PODS}/{name}", "metadata", "finalizers", equals=None)
    assert "ownerReferences" not in left["metadata"]
    assert "deletionTimestamp" not in left["metadata"]


async def test_failed_job_releases_the_pods_that_it_ends(client: Client, clock: FakeClock) -> None:
    await client.create(NODES, node("n"))
    await client.create(JOBS, job("work", parallelism=1, completions=2, backoffLimit=0))
    lost = (await pods(client, 1))[0]["metadata"]["name"]
    await client.merge(f"{JOBS}/work", {"spec": {"parallelism": 2}})
    running = next(item["metadata"]["name"] for item in await pods(client, 2) if item["metadata"]["name"] != lost)
    await make_ready(client, running)
    await finish(client, lost, "Failed")
    await client.until(f"{PODS}/{running}", "metadata", "finalizers", equals=None)
    await client.call("DELETE", f"{PODS}/{running}", {"gracePeriodSeconds": 0})
    await client.gone(f"{PODS}/{running}")


async def test_namespace_with_a_running_job_is_deleted(client: Client) -> None:
    await client.create(NODES, node("n"))
    await client.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    await client.create(JOBS.replace("default", "team"), job("work", parallelism=1))
    inside = PODS.replace("default", "team")
    await client.until(JOBS.replace("default", "team") + "/work", "status", "active", equals=1)
    name = (await client.names(inside))[0]
    await client.ok("POST", f"{inside}/{name}/binding", binding(name, "n"))
    await client.ok("DELETE", "/api/v1/namespaces/team")
    await client.until(f"{inside}/{name}", "metadata", "finalizers", equals=None)
    await client.call("DELETE", f"{inside}/{name}", {"gracePeriodSeconds": 0})
    await client.gone("/api/v1/namespaces/team")


async def test_an_indexed_job_gives_each_pod_its_index(client: Client) -> None:
    await client.create(JOBS, job("work", completionMode="Indexed", parallelism=3, completions=3))
    made = await pods(client, 3)
    index = "batch.kubernetes.io/job-completion-index"
    assert [item["metadata"]["annotations"][index] for item in made] == ["0", "1", "2"]
    assert [item["spec"]["hostname"] for item in made] == ["work-0", "work-1", "work-2"]
    environment = made[0]["spec"]["containers"][0]["env"][0]
    assert environment["name"] == "JOB_COMPLETION_INDEX"
    for item in made:
        await finish(client, item["metadata"]["name"], "Succeeded")
    done = await client.until(f"{JOBS}/work", "status", "succeeded", equals=3)
    assert done["status"]["completedIndexes"] == "0-2"


async def test_a_job_gives_up_after_its_backoff_limit(client: Client, clock: FakeClock) -> None:
    await client.create(JOBS, job("work", backoffLimit=0, parallelism=2, completions=2))
    made = await pods(client, 2)
    await finish(client, made[0]["metadata"]["name"], "Failed")
    done = await client.until(f"{JOBS}/work", "status", "failed", equals=1)
    reasons = {item["type"]: item["reason"] for item in done["status"]["conditions"]}
    assert reasons["Failed"] == "BackoffLimitExceeded"
    await pods(client, 0)


async def test_a_failed_pod_is_replaced_after_a_pause(client: Client, clock: FakeClock) -> None:
    await client.create(JOBS, job("work"))
    name = (await pods(client, 1))[0]["metadata"]["name"]
    await finish(client, name, "Failed")
    await client.until(f"{JOBS}/work", "status", "failed", equals=1)
    assert await pods(client, 0) == []
    clock.seconds += 11
    await client.merge(f"{JOBS}/work", {"metadata": {"labels": {"look": "again"}}})
    assert len(await pods(client, 1)) == 1


async def test_a_suspended_job_has_no_pods(client: Client) -> None:
    await client.create(JOBS, job("work", suspend=True))
    found = await client.until(f"{JOBS}/work", "status", "active", equals=None)
    await client.merge(f"{JOBS}/work", {"spec": {"suspend": False}})
    assert len(await pods(client, 1)) == 1
    await client.merge(f"{JOBS}/work", {"spec": {"suspend": True}})
    await pods(client, 0)
    found = await client.get(f"{JOBS}/work")
    assert "startTime" not in found["status"]


async def test_pods_that_a_job_stops_itself_are_no_failures(client: Client) -> None:
    await client.create(JOBS, job("work", parallelism=3, completions=3, backoffLimit=0))
    await pods(client, 3)
    await client.merge(f"{JOBS}/work", {"spec": {"parallelism": 2}})
    await pods(client, 2)
    await client.merge(f"{JOBS}/work", {"spec": {"suspend": True}})
    await pods(client, 0)
    await client.merge(f"{JOBS}/work", {"spec": {"suspend": False}})
    await pods(client, 2)
    status = (await client.get(f"{JOBS}/work"))["status"]
    assert not status.get("failed")
    assert all(each["type"] != "Failed" for each in status["conditions"])


async def test_a_finished_job_lives_for_its_ttl(client: Client, clock: FakeClock) -> None:
    await client.create(JOBS, job("work", ttlSecondsAfterFinished=5))
    name = (await pods(client, 1))[0]["metadata"]["name"]
    await finish(client, name, "Succeeded")
    await client.until(f"{JOBS}/work", "status", "succeeded", equals=1)
    clock.seconds += 6
    await client.merge(f"{JOBS}/work", {"metadata": {"labels": {"look": "again"}}})
    await client.gone(f"{JOBS}/work")


async def test_nothing_moves_once_everything_is_in_order(client: Client, server: ApiServer) -> None:
    await client.create(NODES, node("n"))
    await client.create(DEPLOYMENTS, replicated("web", 2))
    await client.create(JOBS, job("work"))
    for item in await pods(client, 3):
        await make_ready(client, item["metadata"]["name"])
    await client.until(f"{DEPLOYMENTS}/web", "status", "availableReplicas", equals=2)
    await client.until(f"{JOBS}/work", "status", "ready", equals=1)
    before = server.store.revision
    for _ in range(20):
        await asyncio.sleep(0)
    assert server.store.revision == before

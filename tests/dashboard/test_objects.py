"""Objects and logs of a gang on the page: read with the viewer's own rights; and facts in the rows."""

from __future__ import annotations

import json

import pytest
import yaml

from phalanx.kube.client import PatchType
from tests.dashboard.cluster import Page, Site, until
from tests.dashboard.test_orders import allow_here

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.e2e]


async def test_row_of_a_gang_names_its_job_its_nodes_and_no_user_without_a_label(page: Page) -> None:
    rows = await page.rows("gangs")
    row = rows["hidden-ns/covert-train"]
    assert (row["job"], row["nodes"], row["node_count"]) == ("podgroup/covert-train", ["node-1", "shy-node"], 2)
    assert "user" not in row
    assert rows["ours/pod/alone"]["job"] == "pod/alone"
    assert "nodes" not in rows["ours/train"]


async def test_objects_of_a_gang_are_its_group_and_its_pods_as_yaml(page: Page) -> None:
    objects = (await page.json("objects/ours/train"))["objects"]
    assert [(each["kind"], each["name"]) for each in objects][:2] == [("PodGroup", "train"), ("Pod", "train-0")]
    group = yaml.safe_load(objects[0]["yaml"])
    assert (group["kind"], group["spec"]["minMember"]) == ("PodGroup", 2)
    assert "managedFields" not in group["metadata"]
    assert [each["name"] for each in (await page.json("objects/ours/alone?pod=true"))["objects"]] == ["alone"]


async def test_a_tenant_reads_objects_of_the_own_namespace_only(site: Site, shared: Page) -> None:
    ours = site.token("ours")
    found = await shared.json("objects/ours/alone?pod=true", token=ours)
    assert found["objects"][0]["kind"] == "Pod"
    for path in ("objects/hidden-ns/quiet-pod?pod=true", "logs/hidden-ns/quiet-pod"):
        status, body = await shared.ask(f"/api/v1/{path}", token=ours)
        assert status == 403, body
        assert "you lack the right to list pods in namespace hidden-ns" in json.loads(body)["error"]


async def test_logs_need_the_right_to_read_logs(site: Site, shared: Page) -> None:
    accounts = "/api/v1/namespaces/ours/serviceaccounts"
    await site.client.create(accounts, {"metadata": {"name": "no-logs"}})
    see = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
    await allow_here(site, "no-logs", see, "no-logs")
    issued = await site.client.create(f"{accounts}/no-logs/token", {"spec": {}})
    status, body = await shared.ask("/api/v1/logs/ours/alone", token=issued["status"]["token"])
    assert (status, "pods/log" in json.loads(body)["error"]) == (403, True), body
    status, body = await shared.ask("/api/v1/logs/ours/alone", token=site.token("ours"))
    assert (status, "is waiting to start" in json.loads(body)["problem"]) == (200, True), body


async def test_missing_objects_and_pods_are_404_and_nobody_reads_without_a_login(page: Page) -> None:
    for path in ("objects/ours/nowhere", "objects/ours/nowhere?pod=true", "logs/ours/nowhere"):
        status, body = await page.ask(f"/api/v1/{path}")
        assert (status, "nowhere" in json.loads(body)["error"]) == (404, True), (path, body)
        status, _ = await page.ask(f"/api/v1/{path}", token="nonsense")
        assert status == 401


async def test_suspended_and_failed_jobs_without_a_gang_have_rows(site: Site, page: Page) -> None:
    template = {"spec": {"schedulerName": "phalanx", "containers": [{"name": "m", "image": "x"}]}}
    task = {"name": "w", "replicas": 2, "template": template}
    spec = {"schedulerName": "phalanx", "minAvailable": 2, "queue": "default", "tasks": [task]}
    jobs = "/apis/batch.volcano.sh/v1alpha1/namespaces/ours/jobs"
    for name, phase in (("parked", "Aborted"), ("broken", "Failed"), ("busy", "Running")):
        body = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
        await site.client.create(jobs, body)
        status = {"status": {"state": {"phase": phase, "message": "three pods failed"}}}
        await site.client.patch(f"{jobs}/{name}/status", status, PatchType.MERGE)
    once = {"spec": {**template["spec"], "restartPolicy": "Never"}}
    native = {"metadata": {"name": "paused"}, "spec": {"suspend": True, "template": once}}
    await site.client.create("/apis/batch/v1/namespaces/ours/jobs", native)
    table = page.served.watch.tables["gangs"]
    await until(lambda: "ours/job/paused" in table and "ours/vcjob/broken" in table, "the rows of stopped jobs")
    rows = await page.rows("gangs")
    found = {name: row["state"] for name, row in rows.items() if row["kind"] in ("vcjob", "job")}
    assert found == {
        "ours/vcjob/parked": "Suspended",
        "ours/vcjob/broken": "Failed",
        "ours/job/paused": "Suspended",
    }
    answer = await page.json("gangs/ours/vcjob%2Fparked")
    assert (answer["row"]["change"], answer["why"]) == ("release it", None)
    objects = (await page.json("objects/ours/vcjob%2Fparked"))["objects"]
    assert [(each["kind"], each["name"]) for each in objects] == [("Job", "parked")]
    await site.client.patch(f"{jobs}/parked/status", {"status": {"state": {"phase": "Pending"}}}, PatchType.MERGE)
    await until(lambda: "ours/vcjob/parked" not in table, "the row of a resumed job to go")
    for name in ("parked", "broken", "busy"):
        await site.client.delete(f"{jobs}/{name}")
    await site.client.delete("/apis/batch/v1/namespaces/ours/jobs/paused")
    await until(lambda: "ours/job/paused" not in table, "the rows to go")

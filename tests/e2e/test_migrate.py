"""`phalanx migrate` over HTTP: a cluster is read, page by page, and nothing in it changes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from click.testing import CliRunner

from phalanx.cli.main import cli
from phalanx.kube.paths import Resource
from tests.e2e.world import PODS, World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
MANIFESTS = """\
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: migrating}
spec: {weight: 4, type: other}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: train}
spec: {minMember: 4, queue: migrating}
---
apiVersion: v1
kind: Pod
metadata: {name: one, annotations: {scheduling.k8s.io/group-name: train}}
spec: {schedulerName: volcano, containers: [{name: c, image: none}]}
"""


async def versions(world: World) -> dict[str, str]:
    metadata = [each["metadata"] for kind in (PODS, GROUPS, QUEUES) for each in await world.list(kind)]
    return {each["uid"]: each["resourceVersion"] for each in metadata}


async def migrate(world: World) -> dict[str, Any]:
    arguments = ["migrate", "--kubeconfig", str(world.cluster.kubeconfig), "-n", world.namespace, "-o", "json"]
    result = await asyncio.to_thread(CliRunner().invoke, cli, arguments)
    assert result.exit_code == 1, result.output
    told: dict[str, Any] = json.loads(result.stdout)
    return told


async def test_migrate_reports_a_cluster_object_by_object_and_changes_nothing(world: World) -> None:
    await world.apply(MANIFESTS)
    before = await versions(world)
    told = await migrate(world)
    assert await versions(world) == before
    verdicts = {(each["kind"], each["name"]): each["verdict"] for each in told["objects"]}
    assert verdicts["Queue", "migrating"] == "not honoured"
    assert verdicts["PodGroup", "train"] == "works as it is"
    assert verdicts["Pod", "one"] == "works after a change"
    assert told["missing"] == []
    assert any("--scheduler-name volcano" in step for step in told["steps"])


async def test_lists_come_in_pages(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phalanx.reports.migration.read.PAGE", 2)
    for number in range(5):
        group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
        await world.make({**group, "metadata": {"name": f"g{number}"}, "spec": {"minMember": 1}})
    await world.make(
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": "paged"},
            "spec": {"type": "x"},
        }
    )
    told = await migrate(world)
    assert {each["name"] for each in told["objects"] if each["kind"] == "PodGroup"} == {f"g{at}" for at in range(5)}

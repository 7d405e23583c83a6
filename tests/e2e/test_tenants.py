"""`phalanx up --tenant`: a tenant's gang runs, with a scheduler that has no more than its own rights."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from phalanx.cli.main import cli
from phalanx.cli.up import DEFAULT_NODES
from phalanx.demo.localcluster import LocalCluster, LocalOptions
from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError

pytestmark = [pytest.mark.slow, pytest.mark.e2e]

VOLCANO = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups"


def member(number: int) -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": {"name": f"p{number}", "annotations": {"scheduling.k8s.io/group-name": "gang"}},
        "spec": {"schedulerName": "phalanx", "containers": [container]},
    }


async def test_tenant_runs_a_gang_and_sees_no_other_tenant(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text(DEFAULT_NODES, "utf-8")
    tenants = tuple((name, tmp_path / f"{name}.kubeconfig") for name in ("team-a", "team-b"))
    options = LocalOptions(
        directory=tmp_path, nodes_file=nodes, kubeconfig=tmp_path / "kubeconfig", tenants=tenants
    )
    async with (
        LocalCluster(options).running(),
        KubeClient(load_config(str(tmp_path / "team-a.kubeconfig"))) as client,
    ):
        group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "gang"}}
        await client.create(VOLCANO.format("team-a"), {**group, "spec": {"minMember": 3}})
        pods = "/api/v1/namespaces/team-a/pods"
        for number in range(3):
            await client.create(pods, member(number))
        async with asyncio.timeout(60):
            while True:
                listed = await client.list_all(pods)
                if all(item.get("status", {}).get("phase") == "Running" for item in listed["items"]):
                    break
                await asyncio.sleep(0.1)
        assert len(listed["items"]) == 3
        for path, body in (
            ("/api/v1/namespaces/team-b/pods", member(0)),
            (VOLCANO.format("team-b"), {**group, "spec": {"minMember": 1}}),
            (f"{pods}/p0/binding", {"metadata": {"name": "p0"}, "target": {"kind": "Node", "name": "node-0"}}),
            ("/apis/scheduling.volcano.sh/v1beta1/queues", {"metadata": {"name": "mine"}}),
        ):
            with pytest.raises(ApiError, match="is forbidden"):
                await client.create(path, body)
        with pytest.raises(ApiError, match="cannot list resource"):
            await client.list_all("/api/v1/namespaces/team-b/pods")
        # The commands of a tenant find the second page by themselves.
        for command in (("why", "gang"), ("order",), ("queue", "tree"), ("nodes",)):
            environment = {"KUBECONFIG": str(tmp_path / "team-a.kubeconfig")}
            result = await asyncio.to_thread(CliRunner(env=environment).invoke, cli, command)
            assert result.exit_code == 0, result.output
            assert "forbidden" not in result.output
    assert "is forbidden" not in (tmp_path / "scheduler.log").read_text()
    config = json.loads((tmp_path / "scheduler.kubeconfig").read_text())
    assert config["users"][0]["user"] != json.loads(options.kubeconfig.read_text())["users"][0]["user"]


async def test_tenant_with_a_client_certificate_is_answered_by_the_aggregated_api(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text(DEFAULT_NODES, "utf-8")
    options = LocalOptions(
        directory=tmp_path,
        nodes_file=nodes,
        kubeconfig=tmp_path / "kubeconfig",
        data=tmp_path / "objects.db",
        tenants=(("team-a", tmp_path / "team-a.kubeconfig"),),
        aggregated=True,
    )
    certified = tmp_path / "team-a.certificate.kubeconfig"
    async with LocalCluster(options).running(), KubeClient(load_config(str(certified))) as client:
        await client.create("/api/v1/namespaces/team-a/pods", member(0))
        async with asyncio.timeout(60):
            while True:
                result = await asyncio.to_thread(
                    CliRunner(env={"KUBECONFIG": str(certified)}).invoke, cli, ("why", "pod/p0")
                )
                if result.exit_code == 0 and "conditions" not in result.output:
                    break
                await asyncio.sleep(0.2)
        assert "PodGroup team-a/gang not found" in result.output
    # A later start without the aggregated API leaves no APIService that nothing serves.
    plain = msgspec.structs.replace(options, tenants=(), aggregated=False)
    async with LocalCluster(plain).running() as cluster:
        found = await cluster.client.get("/apis/apiregistration.k8s.io/v1/apiservices")
        assert found["items"] == []

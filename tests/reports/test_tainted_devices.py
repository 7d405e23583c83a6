"""Devices that DeviceTaintRules taint, as reasons of their nodes; read from an embedded API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError
from phalanx.reports.nodes.tainted_devices import read_tainted_devices
from phalanx_local.server import ApiServer, ServerOptions

DEVICES = "/apis/resource.k8s.io/v1"
DRIVER = "gpu.example.com"


@pytest_asyncio.fixture
async def client(tmp_path: Path) -> AsyncIterator[KubeClient]:
    server = ApiServer(ServerOptions())
    await server.start()
    server.write_kubeconfig(tmp_path / "admin")
    async with KubeClient(load_config(str(tmp_path / "admin"))) as admin:
        for node, count in (("n0", 4), ("n1", 2)):
            spec = {
                "driver": DRIVER,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": f"gpu-{number}"} for number in range(count)],
            }
            await admin.create(f"{DEVICES}/resourceslices", {"metadata": {"name": node}, "spec": spec})
        yield admin
    await server.stop()


async def taint(client: KubeClient, name: str, effect: str = "NoSchedule", **selector: Any) -> None:
    spec = {"deviceSelector": selector, "taint": {"key": "drain", "effect": effect}}
    await client.create(f"{DEVICES}/devicetaintrules", {"metadata": {"name": name}, "spec": spec})


async def shown(client: KubeClient) -> dict[str, list[str]]:
    return {node: [str(each) for each in reasons] for node, reasons in (await read_tainted_devices(client)).items()}


async def test_nodes_name_the_rules_that_taint_their_devices(client: KubeClient) -> None:
    assert await shown(client) == {}
    await taint(client, "one", device="gpu-1")
    await taint(client, "pool", "NoExecute", driver=DRIVER, pool="n1")
    assert await shown(client) == {
        "n0": [f"DeviceTaint: DeviceTaintRule one: 1 of 4 devices of {DRIVER}: drain:NoSchedule"],
        "n1": [
            f"DeviceTaint: DeviceTaintRule one: 1 of 2 devices of {DRIVER}: drain:NoSchedule",
            f"DeviceTaint: DeviceTaintRule pool: 2 of 2 devices of {DRIVER}: drain:NoExecute",
        ],
    }


async def test_rule_without_an_effect_or_a_matching_device_is_not_shown(client: KubeClient) -> None:
    await taint(client, "none", "None")
    await taint(client, "elsewhere", pool="n9")
    assert await shown(client) == {}


async def test_kind_that_is_not_served_or_readable_counts_as_absent(
    client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(path: str, *more: Any, **options: Any) -> Any:
        raise ApiError(403 if "v1/" in path else 404, "Forbidden", "no right")

    monkeypatch.setattr(client, "list_all", refused)
    assert await shown(client) == {}

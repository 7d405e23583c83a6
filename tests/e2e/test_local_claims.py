"""Devices on a local cluster: the controller makes claims from templates, and frees them with their pods."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from phalanx.kube.paths import Resource
from phalanx_local.options import ServerOptions
from phalanx_local.server import ApiServer
from tests.e2e.clock import passing
from tests.e2e.test_claims import CLAIMS, Devices, gang
from tests.e2e.world import PODS, Cluster, World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

GROUPS = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")
NAMES = [f"w-{number}" for number in range(4)]
TEMPLATE = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]


@pytest_asyncio.fixture(loop_scope="session")
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A server of its own, with the controllers of claims and of garbage."""
    with passing():
        async with serving(tmp_path) as made:
            yield made


@contextlib.asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[World]:
    controllers = frozenset({"resourceclaims", "garbage", "podgroups"})
    server = ApiServer(ServerOptions(controllers=controllers, native_groups="v1alpha2"))
    await server.start()
    server.write_kubeconfig(tmp_path / "kubeconfig")
    async with KubeClient(load_config(str(tmp_path / "kubeconfig"))) as client:
        made = World(Cluster(tmp_path / "kubeconfig", client, server))
        await made.open()
        try:
            yield made
        finally:
            await made.close()
            await server.stop()


@pytest.fixture
def devices(world: World) -> Devices:
    return Devices(world)


async def template(world: World, devices: Devices, **exactly: Any) -> None:
    request = {"name": "gpu", "exactly": {"deviceClassName": devices.device_class, **exactly}}
    await world.make(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "one-gpu"},
            "spec": {"metadata": {"labels": {"app": "train"}}, "spec": {"devices": {"requests": [request]}}},
        }
    )


async def test_a_gang_runs_on_devices_made_from_a_template(world: World, devices: Devices) -> None:
    """Made, allocated, used, and free for the next gang when the first is done."""
    await devices.offer()
    await devices.node("n1", 2)
    await devices.node("n2", 2)
    await template(world, devices)
    await world.scheduler()
    await world.pods(*NAMES, labels=gang(4), resourceClaims=TEMPLATE)
    await world.until_bound(*NAMES)
    claims = await world.list(CLAIMS)
    assert {claim["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"] for claim in claims} == {
        "gpu"
    }
    assert {claim["metadata"]["labels"]["app"] for claim in claims} == {"train"}
    await world.pods("x-0", "x-1", resourceClaims=TEMPLATE)
    await world.until_held("x-0", "x-1", words="cannot allocate all claims")
    await world.phase("Succeeded", *NAMES)
    await world.until_bound("x-0", "x-1")
    left = {claim["metadata"]["ownerReferences"][0]["name"] for claim in await world.list(CLAIMS)}
    assert left == {"x-0", "x-1"}


async def test_a_claim_that_is_used_by_name_stays_and_is_free_again(world: World, devices: Devices) -> None:
    await devices.offer()
    await devices.node("n1", 1)
    await devices.claim("kept")
    await world.scheduler()
    await world.pod("a", resourceClaims=[{"name": "gpu", "resourceClaimName": "kept"}])
    await world.until_bound("a")
    await world.delete(PODS, "a")

    async def free() -> bool:
        status = (await world.get(CLAIMS, "kept")).get("status") or {}
        return "allocation" not in status and "reservedFor" not in status

    await world.until(free, "the claim is free")
    await world.pod("b", resourceClaims=[{"name": "gpu", "resourceClaimName": "kept"}])
    await world.until_bound("b")


async def test_a_template_may_come_after_its_pods(world: World, devices: Devices) -> None:
    await devices.offer()
    await devices.node("n1", 1)
    await world.scheduler()
    await world.pod("a", resourceClaims=TEMPLATE)
    await world.until_held("a", words="waiting for resource claim gpu of template one-gpu")
    await template(world, devices)
    await world.until_bound("a")


async def test_members_of_a_native_group_share_its_claim(world: World, devices: Devices) -> None:
    """One claim, reserved for the group as one consumer, so more pods than 256 could use it."""
    await devices.offer()
    for name in ("n1", "n2"):
        await devices.node(name, 1)
    await template(world, devices)
    await world.scheduler()
    group = await world.make(
        {
            "apiVersion": "scheduling.k8s.io/v1alpha2",
            "kind": "PodGroup",
            "metadata": {"name": "g"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}, "resourceClaims": TEMPLATE},
        }
    )
    names = NAMES[:3]
    await world.pods(*names, schedulingGroup={"podGroupName": "g"}, resourceClaims=TEMPLATE)
    placement = await world.until_bound(*names)
    assert len(set(placement.values())) == 1
    (claim,) = await world.list(CLAIMS)
    consumer = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g"}
    assert claim["status"]["reservedFor"] == [{**consumer, "uid": group["metadata"]["uid"]}]
    assert claim["metadata"]["ownerReferences"][0]["kind"] == "PodGroup"

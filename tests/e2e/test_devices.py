"""Parts of GPUs over the API: annotations of device plugins, annotations of bindings, and recovery in a new
process.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from tests.e2e.world import DEFINITIONS, PODS, World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

POLICY = """
actions: "enqueue, allocate, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: capacity},
  {name: deviceshare, arguments: {deviceshare.VGPUEnable: true, deviceshare.SchedulePolicy: binpack}}]}]
"""
QUEUE = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
PREFIX = "pod-group.scheduling.sigs.k8s.io"
TO_ALLOCATE = "volcano.sh/devices-to-allocate"


def policy(tmp_path: Path) -> str:
    path = tmp_path / "policy"
    path.write_text(POLICY, encoding="utf-8")
    return str(path)


async def gpu_node(world: World, name: str, *cards: str, memory: int = 16000) -> None:
    """Create a node as volcano-vgpu-device-plugin registers it."""
    count = len(cards)
    offer = {"vgpu-number": 10 * count, "vgpu-memory": memory * count, "vgpu-cores": 100 * count}
    await world.node(name, **{f"volcano_sh__{key}": value for key, value in offer.items()})
    register = "".join(f"{card},10,{memory},NVIDIA-Tesla V100,true,hami-core:" for card in cards)
    await world.patch_node(name, {"metadata": {"annotations": {"volcano.sh/node-vgpu-register": register}}})


def wants(memory: int, number: int = 1, **spec: Any) -> dict[str, Any]:
    asked = {"cpu": "1", "volcano.sh/vgpu-number": str(number), "volcano.sh/vgpu-memory": str(memory)}
    return {"requests": asked, **spec}


async def told(world: World) -> dict[str, str]:
    """Return pod -> the cards that its binding annotates for the device plugin."""
    found = {}
    for item in await world.list(PODS):
        annotations = item["metadata"].get("annotations") or {}
        if TO_ALLOCATE in annotations:
            found[item["metadata"]["name"]] = annotations[TO_ALLOCATE]
    return found


async def test_gang_is_bound_to_cards_with_room_and_annotates_them_for_the_device_plugins(
    world: World, tmp_path: Path
) -> None:
    await gpu_node(world, "n1", "GPU-a", "GPU-b")
    await gpu_node(world, "n2", "GPU-c")
    await world.scheduler(config=policy(tmp_path))
    labels = {f"{PREFIX}/name": "g", f"{PREFIX}/min-available": "3"}
    await world.pods("g-0", "g-1", "g-2", labels=labels, **wants(9000))
    placement = await world.until_bound("g-0", "g-1", "g-2")
    cards = await told(world)
    assert sorted(cards.values()) == [f"GPU-{card},NVIDIA,9000,0:" for card in "abc"]
    assert all((placement[name] == "n2") == (card.startswith("GPU-c")) for name, card in cards.items())
    (first,) = [item for item in await world.list(PODS) if item["metadata"]["name"] == "g-0"]
    annotations = first["metadata"]["annotations"]
    assert annotations["volcano.sh/vgpu-node"] == first["spec"]["nodeName"]
    assert annotations["volcano.sh/bind-phase"] == "allocating"
    assert annotations["volcano.sh/vgpu-ids-new"] == annotations[TO_ALLOCATE]
    assert annotations["volcano.sh/bind-time"].isdecimal()


async def test_a_gang_that_the_cards_cannot_hold_waits_as_a_whole(world: World, tmp_path: Path) -> None:
    await gpu_node(world, "n1", "GPU-a", "GPU-b")
    await world.scheduler(config=policy(tmp_path))
    labels = {f"{PREFIX}/name": "g", f"{PREFIX}/min-available": "3"}
    await world.pods("g-0", "g-1", "g-2", labels=labels, **wants(9000))
    said = await world.until_held("g-0", "g-1", "g-2", words="2 of the 3 required pods")
    assert "node(s) had no GPU with enough room for the pod" in said["message"]
    await gpu_node(world, "n2", "GPU-c")
    await world.until_bound("g-0", "g-1", "g-2")


async def test_restarted_scheduler_counts_the_cards_in_use(world: World, tmp_path: Path) -> None:
    await gpu_node(world, "n1", "GPU-a", "GPU-b")
    first = await world.scheduler(config=policy(tmp_path))
    await world.pod("a", **wants(9000))
    await world.until_bound("a")
    await first.kill()
    # As the device plugin does when it has handed the cards to the container.
    done = {"metadata": {"annotations": {"volcano.sh/bind-phase": "success", TO_ALLOCATE: ""}}}
    await world.patch(PODS, "a", done)
    await world.scheduler(config=policy(tmp_path))
    await world.pod("b", **wants(9000))
    await world.until_bound("b")
    assert (await told(world))["b"] == "GPU-b,NVIDIA,9000,0:"
    await world.pod("c", **wants(9000))
    await world.until_held("c", words="no GPU with enough room")
    await world.delete(PODS, "a")
    await world.until_bound("c")
    assert (await told(world))["c"] == "GPU-a,NVIDIA,9000,0:"


async def test_shares_of_gpus_count_in_queues(world: World, tmp_path: Path) -> None:
    name = f"{world.name}-q"
    await world.make(
        {
            "apiVersion": QUEUE.api_version,
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"capability": {"volcano.sh/vgpu-memory": 10000}},
        }
    )
    await gpu_node(world, "n1", "GPU-a", "GPU-b", "GPU-c")
    await world.scheduler(config=policy(tmp_path))
    in_queue = {"annotations": {"scheduling.volcano.sh/queue-name": name}}
    await world.pod("a", **wants(4000, number=2), **in_queue)
    await world.until_bound("a")
    await world.pod("b", **wants(4000), **in_queue)
    await world.until_event("FailedScheduling", "b", "8000 volcano.sh/vgpu-memory in use, capability 10000")


async def test_a_card_that_breaks_takes_no_more(world: World, tmp_path: Path) -> None:
    await gpu_node(world, "n1", "GPU-a")
    await world.scheduler(config=policy(tmp_path))
    broken = "GPU-a,10,16000,NVIDIA-Tesla V100,false,hami-core:"
    await world.patch_node("n1", {"metadata": {"annotations": {"volcano.sh/node-vgpu-register": broken}}})
    await asyncio.sleep(0.2)
    await world.pod("a", **wants(100))
    await world.until_held("a", words="no shared GPUs")
    mended = broken.replace("false", "true")
    await world.patch_node("n1", {"metadata": {"annotations": {"volcano.sh/node-vgpu-register": mended}}})
    await world.until_bound("a")


async def test_koordinators_gpus_come_with_their_device_objects(world: World, tmp_path: Path) -> None:
    await world.make(DEVICE_DEFINITION)
    amounts = {"gpu-core": 200, "gpu-memory-ratio": 200, "gpu-memory": "32Gi"}
    await world.node("n1", **{f"koordinator_sh__{key}": amount for key, amount in amounts.items()})
    await world.scheduler(config=policy(tmp_path))
    share = {"koordinator.sh/gpu-core": "60", "koordinator.sh/gpu-memory-ratio": "60"}
    await world.pods("a", "b", requests={"cpu": "1", **share})
    await world.until_held("a", "b", words="no shared GPUs")
    resources = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": "16Gi"}
    devices = [{"type": "gpu", "minor": minor, "health": True, "resources": resources} for minor in (0, 1)]

    async def served() -> bool:
        try:
            await world.client.list_all(DEVICE.path(None))
        except ApiError:
            return False
        return True

    await world.until(served, "Device objects are served")
    await world.make(
        {
            "apiVersion": DEVICE.api_version,
            "kind": "Device",
            "metadata": {"name": f"{world.name}-n1"},
            "spec": {"devices": devices},
        }
    )
    await world.until_bound("a", "b")
    minors = set()
    for item in await world.list(PODS):
        given = json.loads(item["metadata"]["annotations"]["scheduling.koordinator.sh/device-allocated"])
        assert given["gpu"][0]["resources"]["koordinator.sh/gpu-core"] == "60"
        minors.add(given["gpu"][0]["minor"])
    assert minors == {0, 1}


DEVICE = Resource("scheduling.koordinator.sh", "v1alpha1", "devices", "Device", namespaced=False)
_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEVICE_DEFINITION = {
    "apiVersion": DEFINITIONS.api_version,
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{DEVICE.plural}.{DEVICE.group}"},
    "spec": {
        "group": DEVICE.group,
        "scope": "Cluster",
        "names": {"plural": DEVICE.plural, "singular": "device", "kind": "Device", "listKind": "DeviceList"},
        "versions": [
            {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _ANYTHING}}
        ],
    },
}

"""Devices that pods claim (resource.k8s.io), over HTTP: from the claim to the binding, and back when it fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from phalanx.kube.client import PatchType
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from tests.e2e.world import PODS, Object, World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

GROUPS = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")
CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
FINALIZER = "resource.kubernetes.io/delete-protection"
BINDING = "/binding$"
NAMES = [f"w-{number}" for number in range(4)]


def gang(size: int) -> dict[str, str]:
    prefix = "pod-group.scheduling.sigs.k8s.io"
    return {f"{prefix}/name": "g", f"{prefix}/min-available": str(size)}


class Devices:
    """A driver, a class of its devices, and the work of a resource claim controller; names are unique per test."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.driver = f"gpu.{world.name}.example.com"
        self.device_class = f"gpu-{world.name}"

    async def offer(self, expression: str = "") -> None:
        selector = expression or f'device.driver == "{self.driver}"'
        await self.world.make(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "DeviceClass",
                "metadata": {"name": self.device_class},
                "spec": {"selectors": [{"cel": {"expression": selector}}]},
            }
        )

    async def node(self, name: str, count: int, **attributes: str) -> None:
        """Create a node with `count` devices, each with these attributes."""
        await self.world.node(name)
        node = f"{self.world.name}-{name}"
        shown = {key: {"string": value} for key, value in attributes.items()}
        await self.world.make(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": f"{node}-gpus"},
                "spec": {
                    "driver": self.driver,
                    "nodeName": node,
                    "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": f"gpu-{number}", "attributes": shown} for number in range(count)],
                },
            }
        )

    async def claim(self, name: str, owner: Object | None = None, selector: str = "", **exactly: Any) -> Object:
        """A claim of one device, made for a pod or a PodGroup if one is given."""
        asked: Object = {"deviceClassName": self.device_class, **exactly}
        if selector:
            asked["selectors"] = [{"cel": {"expression": selector}}]
        metadata: Object = {"name": name}
        if owner is not None:
            reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
            reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
            metadata["ownerReferences"] = [reference]
        return await self.world.make(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": metadata,
                "spec": {"devices": {"requests": [{"name": "gpu", "exactly": asked}]}},
            }
        )

    async def pod(self, name: str, made: bool = True, **what: Any) -> Object:
        """A pod with a claim of its own from a template, which the controller has `made` or not yet."""
        entry = {"name": "gpu", "resourceClaimTemplateName": "one-gpu"}
        pod = await self.world.pod(name, resourceClaims=[entry], **what)
        if made:
            await self.furnish(pod)
        return pod

    async def furnish(self, pod: Object, **exactly: Any) -> None:
        name = f"{pod['metadata']['name']}-gpu"
        await self.claim(name, pod, **exactly)
        statuses = [{"name": "gpu", "resourceClaimName": name}]
        await self.world.patch(
            PODS, pod["metadata"]["name"], {"status": {"resourceClaimStatuses": statuses}}, status=True
        )

    async def held(self) -> list[tuple[str, str, str]]:
        """(claim, node, device) of all devices that are allocated in the test's namespace."""
        found = []
        for claim in await self.world.list(CLAIMS):
            allocation = (claim.get("status") or {}).get("allocation") or {}
            for result in (allocation.get("devices") or {}).get("results") or ():
                pool = result["pool"].removeprefix(f"{self.world.name}-")
                found.append((claim["metadata"]["name"], pool, result["device"]))
        return sorted(found)


@pytest.fixture
def devices(world: World) -> Devices:
    return Devices(world)


async def test_each_member_of_a_gang_gets_a_device_of_its_own(world: World, devices: Devices) -> None:
    await devices.offer()
    await devices.node("n1", 2, model="A100")
    await devices.node("n2", 2, model="A100")
    await world.scheduler()
    for name in NAMES:
        await devices.pod(name, labels=gang(4))
    placement = await world.until_bound(*NAMES)
    held = await devices.held()
    assert [(claim, placement[claim.removesuffix("-gpu")]) for claim, _, _ in held] == [
        (claim, node) for claim, node, _ in held
    ]
    assert len({(node, device) for _, node, device in held}) == 4


async def test_a_claim_is_written_as_kubelets_expect_it(world: World, devices: Devices) -> None:
    await devices.offer()
    await devices.node("n1", 1)
    await world.scheduler()
    pod = await devices.pod("w", labels=gang(1))
    await world.until_bound("w")
    claim = await world.get(CLAIMS, "w-gpu")
    node = f"{world.name}-n1"
    assert claim["metadata"]["finalizers"] == [FINALIZER]
    allocation = claim["status"]["allocation"]
    assert allocation["devices"]["results"] == [
        {"request": "gpu", "driver": devices.driver, "pool": node, "device": "gpu-0"}
    ]
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    assert allocation["nodeSelector"] == {"nodeSelectorTerms": terms}
    assert claim["status"]["reservedFor"] == [{"resource": "pods", "name": "w", "uid": pod["metadata"]["uid"]}]


async def test_a_gang_that_lacks_a_device_takes_none(world: World, devices: Devices) -> None:
    await devices.offer()
    await devices.node("n1", 3)
    await world.scheduler()
    for name in NAMES:
        await devices.pod(name, labels=gang(4))
    said = await world.until_held(*NAMES, words="3 of the 4 .*cannot allocate all claims")
    assert "To fix: free or add devices that match its claims" in said["message"]
    assert await devices.held() == []
    await devices.node("n2", 1)
    await world.until_bound(*NAMES)


async def test_a_pod_waits_for_its_claim_and_wakes_when_it_comes(world: World, devices: Devices) -> None:
    await devices.offer()
    await devices.node("n1", 1)
    await world.scheduler()
    pod = await devices.pod("w", made=False)
    await world.until_held("w", words="waiting for resource claim gpu of template one-gpu")
    await devices.furnish(pod)
    await world.until_bound("w")


async def test_selectors_choose_among_devices(world: World, devices: Devices) -> None:
    await devices.offer()
    await devices.node("n1", 1, model="T4")
    await devices.node("n2", 1, model="A100")
    await world.scheduler()
    pod = await devices.pod("w", made=False)
    await devices.furnish(pod, selector=f'device.attributes["{devices.driver}"].model == "A100"')
    assert (await world.until_bound("w"))["w"] == "n2"


async def test_error_of_a_device_expression_is_reported(world: World, devices: Devices) -> None:
    await devices.offer()
    await devices.node("n1", 1)
    await world.scheduler()
    pod = await devices.pod("w", made=False)
    await devices.furnish(pod, selector=f'device.attributes["{devices.driver}"].color == "red"')
    await world.until_held("w", words=r"request gpu: selector #0: CEL runtime error: .*color")


async def test_pods_that_share_a_claim_meet_where_it_is(world: World, devices: Devices) -> None:
    await devices.offer()
    for name in ("n1", "n2", "n3"):
        await devices.node(name, 1)
    await world.scheduler()
    await devices.claim("shared")
    entry = {"name": "gpu", "resourceClaimName": "shared"}
    for name in NAMES:
        await world.pod(name, labels=gang(4), resourceClaims=[entry])
    placement = await world.until_bound(*NAMES)
    assert len({placement[name] for name in NAMES}) == 1
    claim = await world.get(CLAIMS, "shared")
    assert {entry["name"] for entry in claim["status"]["reservedFor"]} == set(NAMES)


async def test_members_of_a_native_group_reserve_its_claim_once(world: World, devices: Devices) -> None:
    try:
        await world.client.list_all(GROUPS.path(world.namespace))
    except ApiError:
        pytest.skip("the server has no native groups")
    await devices.offer()
    for name in ("n1", "n2"):
        await devices.node(name, 1)
    await world.scheduler()
    entry = {"name": "gpu", "resourceClaimTemplateName": "one-gpu"}
    spec = {"schedulingPolicy": {"gang": {"minCount": 3}}, "resourceClaims": [entry]}
    group = await world.make(
        {"apiVersion": GROUPS.api_version, "kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec}
    )
    await devices.claim("g-gpu", group)
    statuses = [{"name": "gpu", "resourceClaimName": "g-gpu"}]
    await world.patch(GROUPS, "g", {"status": {"resourceClaimStatuses": statuses}}, status=True)
    names = NAMES[:3]
    for name in names:
        await world.pod(name, schedulingGroup={"podGroupName": "g"}, resourceClaims=[entry])
        await world.patch(PODS, name, {"status": {"resourceClaimStatuses": statuses}}, status=True)
    placement = await world.until_bound(*names)
    assert len(set(placement.values())) == 1
    claim = await world.get(CLAIMS, "g-gpu")
    consumer = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g"}
    assert claim["status"]["reservedFor"] == [{**consumer, "uid": group["metadata"]["uid"]}]


async def test_killed_between_allocation_and_binding(world: World, devices: Devices) -> None:
    """The next life finds each claim where it is, and binds its pod there."""
    await devices.offer()
    for name in ("n1", "n2", "n3", "n4"):
        await devices.node(name, 1)
    for name in NAMES:
        await devices.pod(name, labels=gang(4))
    first = await world.scheduler(wait=False)
    first.wire.die("POST", BINDING, nth=1, after=False)
    await first.wire.dead.wait()
    await first.kill()
    before = await devices.held()
    assert len(before) == 4
    assert not any((await world.placement()).values())
    await world.scheduler()
    placement = await world.until_bound(*NAMES)
    assert await devices.held() == before
    assert {claim: placement[claim.removesuffix("-gpu")] for claim, _, _ in before} == {
        claim: node for claim, node, _ in before
    }


@pytest.mark.slow_but_first
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
async def test_killed_while_claims_are_allocated(world: World, devices: Devices, nth: int) -> None:
    await devices.offer()
    await devices.node("n1", 2)
    await devices.node("n2", 2)
    for name in NAMES:
        await devices.pod(name, labels=gang(4))
    first = await world.scheduler(wait=False)
    first.wire.die("PATCH", "/resourceclaims/.*/status$", nth=nth, after=True)
    await first.wire.dead.wait()
    await first.kill()
    await world.scheduler()
    placement = await world.until_bound(*NAMES)
    held = await devices.held()
    assert {claim: placement[claim.removesuffix("-gpu")] for claim, _, _ in held} == {
        claim: node for claim, node, _ in held
    }
    assert len({(node, device) for _, node, device in held}) == 4


async def test_a_gang_waits_as_a_whole_for_the_claim_of_one(world: World, devices: Devices) -> None:
    await devices.offer()
    await devices.node("n1", 2)
    await world.scheduler()
    for name in ("w-0", "w-1", "w-2"):
        await devices.pod(name, labels=gang(3), made=name != "w-2")
    await world.until_held("w-0", "w-1", "w-2", words="waiting for resource claim")
    assert await devices.held() == []
    await devices.node("n2", 1)
    await devices.furnish(await world.get(PODS, "w-2"))
    await world.until_bound("w-0", "w-1", "w-2")


@pytest.mark.usefixtures("embedded")
async def test_gang_releases_all_devices_if_one_claim_cannot_be_written(world: World, devices: Devices) -> None:
    """The decision fails as a whole: its devices are free again, and the next decision succeeds."""
    await devices.offer()
    await devices.node("n1", 4)
    for name in NAMES:
        await devices.pod(name, labels=gang(4))
    world.server.faults.answer("PATCH", "/resourceclaims/w-2-gpu/status$", 403, message="denied by policy")
    first = await world.scheduler()
    refused = await world.until_event("FailedScheduling", words="resource claim w-2-gpu: .*denied by policy")
    assert refused["type"] == "Warning"
    placement = await world.until_bound(*NAMES)
    assert set(placement.values()) == {"n1"}
    # Written again for each: the first time it was taken back, but for the one that was refused.
    writes = [write for write in first.wire.writes if "-gpu/status" in write]
    assert len([write for write in writes if "w-2-gpu" in write]) == 2
    assert len(writes) > 2 + 3
    assert len({device for _, _, device in await devices.held()}) == 4


async def test_devices_that_must_be_made_ready_are_waited_for(world: World, devices: Devices) -> None:
    await devices.offer()
    await world.node("n1")
    node = f"{world.name}-n1"
    await world.make(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{node}-fabric"},
            "spec": {
                "driver": devices.driver,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": [
                    {"name": "gpu-0", "bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]}
                ],
            },
        }
    )
    await world.scheduler()
    await devices.pod("w")

    async def allocated() -> list[tuple[str, str, str]]:
        return await devices.held()

    await world.until(allocated, "the claim is allocated")
    await asyncio.sleep(0.3)
    assert (await world.placement())["w"] == ""
    condition = {
        "type": "Attached",
        "status": "True",
        "reason": "Done",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    device = {"driver": devices.driver, "pool": node, "device": "gpu-0", "conditions": [condition]}
    await world.client.patch(
        CLAIMS.path(world.namespace, "w-gpu", "status"), {"status": {"devices": [device]}}, PatchType.MERGE
    )
    await world.until_bound("w")

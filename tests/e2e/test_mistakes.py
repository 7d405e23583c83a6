"""Mistakes of users affect only their own objects, and are explained on these objects."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from phalanx.kube.client import PatchType
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from tests.e2e.world import DEFINITIONS, PODS, Cluster, Object, World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

SIGS = "pod-group.scheduling.sigs.k8s.io"
KO = "gang.scheduling.koordinator.sh"
GROUPS = Resource("incubator.scheduling.k8s.io", "v1alpha1", "podgroups", "PodGroup")
HEALTHY = {f"{SIGS}/name": "healthy", f"{SIGS}/min-available": "2"}


async def healthy_gang_starts(world: World) -> None:
    await world.pods("healthy-0", "healthy-1", labels=HEALTHY)
    await world.until_bound("healthy-0", "healthy-1")


def labels(minimum: str, name: str = "bad") -> dict[str, dict[str, str]]:
    return {"labels": {f"{SIGS}/name": name, f"{SIGS}/min-available": minimum}}


def notes(**more: str) -> dict[str, dict[str, str]]:
    written = {f"{KO}/{key.replace('_', '-')}": value for key, value in more.items()}
    return {"annotations": {f"{KO}/name": "bad", f"{KO}/min-available": "2", **written}}


# Declarations that hold their gang -> (pod, reason of the event, words of the condition).
HOLDING: dict[str, tuple[dict[str, Any], str, str]] = {
    "a minimum that is no number": (labels("two"), "InvalidPodGroup", "'two'.* write a whole number"),
    "a minimum of zero": (labels("0"), "InvalidPodGroup", "'0'"),
    "a negative minimum": (notes(min_available="-3"), "InvalidPodGroup", "'-3'"),
    "a minimum beyond all numbers": (labels("9" * 30), "InvalidPodGroup", "9999"),
    "a minimum of a fraction": (labels("2.5"), "InvalidPodGroup", "2.5"),
    "a minimum above the members": (labels("4000"), "FailedScheduling", "2 of the 4000 required pods"),
    "a name that can name no object": (labels("2", "Bad_Name"), "InvalidPodGroup", "lower-case letters"),
    "a name without a minimum": ({"labels": {f"{SIGS}/name": "bad"}}, "PodGroupNotFound", "not found"),
    "a layer that no node knows": (
        notes(network_topology_spec='{"gatherStrategy":[{"layer":"rack","strategy":"MustGather"}]}'),
        "FailedScheduling",
        "no node has the label rack",
    ),
}


@pytest.mark.parametrize("mistake", HOLDING)
async def test_a_bad_declaration_holds_its_own_gang(world: World, mistake: str) -> None:
    what, reason, words = HOLDING[mistake]
    await world.node("n1")
    await world.scheduler()
    await world.pods("bad-0", "bad-1", **what)
    await world.until_held("bad-0", "bad-1", words=words)
    await world.until_event(reason, words=words)
    await healthy_gang_starts(world)
    assert (await world.placement())["bad-0"] == ""


# Declarations that are set aside -> (pod, reason of the event, words of the event). The gang starts.
SET_ASIDE: dict[str, tuple[dict[str, Any], str, str]] = {
    "a gang group that is no JSON": (notes(groups="ns/a, ns/b"), "InvalidGangGroups", "ns/a, ns/b"),
    "an unknown match policy": (notes(match_policy="sometimes"), "UnknownMatchPolicy", "sometimes"),
    "an unknown mode": (notes(mode="Lenient"), "UnknownMode", "Lenient"),
    "a waiting time that is none": (notes(waiting_time="ten minutes"), "InvalidTimeout", "ten minutes"),
    "a total below the minimum is no total": (notes(total_number="-7"), "InvalidTotalNumber", "-7"),
    "two names": (
        {"labels": {**labels("2")["labels"], "scheduling.x-k8s.io/pod-group": "bad"}, **notes(name="other")},
        "ConflictingGangDeclaration",
        "other",
    ),
}


@pytest.mark.parametrize("mistake", SET_ASIDE)
async def test_invalid_detail_is_reported_and_ignored(world: World, mistake: str) -> None:
    what, reason, words = SET_ASIDE[mistake]
    await world.node("n1")
    await world.scheduler()
    if "labels" in what:
        group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"}
        await world.make({**group, "metadata": {"name": "bad"}, "spec": {"minMember": 2}})
    await world.pods("bad-0", "bad-1", **what)
    await world.until_bound("bad-0", "bad-1")
    await world.until_event(reason, words=words)
    await healthy_gang_starts(world)


async def test_members_that_disagree_follow_the_oldest(world: World) -> None:
    await world.node("n1")
    await world.pod("bad-0", **labels("3"))
    await world.pods("bad-1", "bad-2", **labels("2"))
    await world.scheduler()
    await world.until_bound("bad-0", "bad-1", "bad-2")
    await world.until_event("MinAvailableMismatch", "bad-1", "the oldest member, pod bad-0, says 3")
    await healthy_gang_starts(world)


# Pods that nothing can place -> (fields of the pod, words of the condition).
HOPELESS: dict[str, tuple[dict[str, Any], str]] = {
    "asks for more than any node has": ({"cpu": "1000"}, "request at most 8 cpu per pod"),
    "asks for more than numbers hold": ({"requests": {"memory": "9E"}}, "Insufficient memory"),
    "asks for what nobody has": ({"requests": {"example.com/unicorn": "1"}}, "Insufficient example.com/unicorn"),
    "selects what no node is": ({"nodeSelector": {"moon": "full"}}, "affinity/selector"),
    "wants to be near somebody who is nowhere": (
        {
            "affinity": {
                "podAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"}
                    ]
                }
            }
        },
        "didn't match pod affinity rules",
    ),
    "spreads over domains that nobody has": (
        {
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"a": "b"}},
                }
            ]
        },
        "missing required label",
    ),
    "names a claim that is not there": (
        {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
        'persistentvolumeclaim "data" not found',
    ),
}


@pytest.mark.parametrize("wish", HOPELESS)
@pytest.mark.parametrize("in_gang", [False, True])
async def test_pod_that_fits_no_node_gets_a_reason(world: World, wish: str, in_gang: bool) -> None:
    fields, words = HOPELESS[wish]
    await world.node("n1")
    await world.scheduler()
    if in_gang:
        await world.pod("bad-0", **labels("2"), **fields)
        await world.pod("bad-1", **labels("2"))
        await world.until_held("bad-0", "bad-1", words=words)
    else:
        await world.pod("bad-0", **fields)
        await world.until_held("bad-0", words=words)
        await world.until_event("FailedScheduling", "bad-0", words)
    await healthy_gang_starts(world)


@pytest_asyncio.fixture(loop_scope="session")
async def lenient(cluster: Cluster) -> AsyncIterator[None]:
    """The kind as served by clusters whose CRD validates nothing."""
    path = DEFINITIONS.path(None, "podgroups.incubator.scheduling.k8s.io")
    kept = (await cluster.client.get(path))["spec"]["versions"]
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [{**version, "schema": {"openAPIV3Schema": schema}} for version in kept]
    await cluster.client.patch(path, {"spec": {"versions": versions}}, PatchType.MERGE)
    yield
    await cluster.client.patch(path, {"spec": {"versions": kept}}, PatchType.MERGE)


# Objects that an unchecked API takes -> (spec, words of the condition; "" where the gang starts).
OBJECTS: dict[str, tuple[Any, str]] = {
    "no spec at all": (None, ""),
    "a spec that is a list": ([1, 2], "spec"),
    "a minimum in words": ({"minMembers": "two"}, "minMembers"),
    "a negative minimum": ({"minMembers": -2}, "minMembers"),
    "a fraction": ({"minMembers": 1.5}, "minMembers"),
    "a minimum beyond all numbers": ({"minMembers": 10**18}, "minMembers"),
    "resources that are none": ({"minMembers": 2, "totalResources": {"cpu": "lots"}}, "totalResources.cpu"),
    "unknown fields": ({"minMembers": 2, "moon": {"phase": "full"}}, ""),
    "a priority class that does not exist": ({"minMembers": 2, "priorityClassName": "nobody"}, ""),
    "a queue that is a number": ({"minMembers": 2, "queue": 7}, "spec.queue"),
}


async def put_unchecked(world: World, spec: Any) -> None:
    document: Object = {
        "apiVersion": GROUPS.api_version,
        "kind": "PodGroup",
        "metadata": {"name": "bad"},
        **({} if spec is None else {"spec": spec}),
    }

    async def taken() -> bool:
        """The looser schema holds a moment after the CRD was changed."""
        with contextlib.suppress(ApiError):
            await world.make(document)
            return True
        return False

    await world.until(taken, "the unchecked object is taken")


@pytest.mark.parametrize("mistake", OBJECTS)
async def test_a_bad_object_harms_its_own_gang(world: World, lenient: None, mistake: str) -> None:
    spec, words = OBJECTS[mistake]
    await world.node("n1")
    await world.scheduler()
    await put_unchecked(world, spec)
    await world.pods("bad-0", "bad-1", annotations={"scheduling.k8s.io/group-name": "bad"})
    if words:
        await world.until_held("bad-0", "bad-1", words=words)
        await world.until_event("InvalidPodGroup", words=words)
    else:
        await world.until_bound("bad-0", "bad-1")
    await healthy_gang_starts(world)


@pytest.mark.parametrize("mistake", OBJECTS)
async def test_corrected_invalid_object_lets_its_gang_start(world: World, lenient: None, mistake: str) -> None:
    spec, words = OBJECTS[mistake]
    if not words or not isinstance(spec, dict):
        pytest.skip("the gang starts anyway, or the spec cannot be patched")
    await world.node("n1")
    await put_unchecked(world, spec)
    await world.scheduler()
    await world.pods("bad-0", "bad-1", annotations={"scheduling.k8s.io/group-name": "bad"})
    await world.until_held("bad-0", "bad-1", words=words)
    await world.patch(GROUPS, "bad", {"spec": {"minMembers": 2, "totalResources": None, "queue": None}})
    await world.until_bound("bad-0", "bad-1")


async def test_a_pod_that_is_replaced_by_a_namesake_is_another_pod(world: World) -> None:
    await world.node("n1")
    await world.scheduler()
    for _ in range(5):
        await world.pods("a", "b", labels=HEALTHY)
        await world.until_bound("a", "b")
        await world.delete(PODS, "a", "b")

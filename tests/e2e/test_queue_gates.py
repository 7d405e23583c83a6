"""Volcano's queue-allocation-gate: pods wait for their queue behind it, and no more are let go than it takes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from phalanx.daemon.controllers.queue_gates import GATE
from phalanx.kube.paths import Resource
from tests.e2e.world import PODS, World, pod

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

QUEUE = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
POLICY = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: nodeorder}, {name: capacity}]
"""


async def gated(
    world: World, name: str, *, gates: tuple[str, ...] = (GATE,), asks: bool = True, **what: Any
) -> None:
    document = pod(name, namespace=world.namespace, cpu="1", **what)
    annotations = document["metadata"].setdefault("annotations", {})
    annotations["scheduling.volcano.sh/queue-name"] = world.namespace
    if asks:
        annotations[GATE] = "true"
    document["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
    await world.make(document)


async def gates_of(world: World, name: str) -> list[str]:
    found = await world.get(PODS, name)
    return [gate["name"] for gate in found["spec"].get("schedulingGates", [])]


async def queue(world: World, cpu: int) -> None:
    spec = {"capability": {"cpu": str(cpu)}}
    metadata = {"name": world.namespace}
    await world.make({"apiVersion": QUEUE.api_version, "kind": "Queue", "metadata": metadata, "spec": spec})


@pytest.mark.slow
async def test_the_gate_is_lifted_for_as_many_as_the_queue_takes(world: World, tmp_path: Any) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    await world.node("n1", cpu="8")
    await queue(world, 2)
    await world.scheduler(config=str(policy))
    for name in ("a", "b", "c"):
        await gated(world, name)
    assert set(await world.until_bound("a", "b")) >= {"a", "b"}
    await asyncio.sleep(0.7)
    assert await gates_of(world, "c") == [GATE]
    await world.delete(PODS, "a")
    await world.until_bound("c")


@pytest.mark.slow
async def test_room_for_an_ungated_pod_without_a_node_stays_reserved(world: World, tmp_path: Any) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    await queue(world, 1)
    await world.scheduler(config=str(policy))
    await gated(world, "a")
    await gated(world, "b")

    async def let_go() -> bool:
        return await gates_of(world, "a") == []

    await world.until(let_go, "the gate of a is lifted although there is no node")
    await asyncio.sleep(0.7)
    assert await gates_of(world, "b") == [GATE]


async def test_foreign_gates_and_unexpected_gates_are_not_removed(world: World) -> None:
    await world.node("n1", cpu="8")
    await queue(world, 4)
    await world.scheduler()
    await gated(world, "two", gates=("example.com/wait", GATE))
    await gated(world, "alone", asks=False)
    await gated(world, "asked")
    await world.until_bound("asked")
    assert await gates_of(world, "two") == ["example.com/wait", GATE]
    assert await gates_of(world, "alone") == [GATE]
    patch = {"spec": {"schedulingGates": [{"name": GATE}]}}
    await world.patch(PODS, "two", patch)
    await world.until_bound("two")


@pytest.mark.slow
@pytest.mark.parametrize(("autoscaler", "lifted"), [("none", False), ("karpenter", True)])
async def test_gate_is_lifted_above_a_limit_that_new_nodes_raise_for_an_autoscaler_only(
    world: World, tmp_path: Any, autoscaler: str, lifted: bool
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"{POLICY}\nphalanx: {{autoscaler: {autoscaler}}}\n")
    await world.node("n1", cpu="2")
    await queue(world, 8)
    other, spec = {"name": f"{world.namespace}-other"}, {"guarantee": {"resource": {"cpu": "1"}}}
    await world.make({"apiVersion": QUEUE.api_version, "kind": "Queue", "metadata": other, "spec": spec})
    await world.scheduler(config=str(policy))
    await world.pod("a", cpu="1", annotations={"scheduling.volcano.sh/queue-name": world.namespace})
    await world.until_bound("a")
    await gated(world, "more")
    await asyncio.sleep(2)
    assert await gates_of(world, "more") == ([] if lifted else [GATE])
    if lifted:
        await world.until_held("more", reason="Unschedulable")

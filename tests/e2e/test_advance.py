"""Reservation objects on an API server: granted or refused, kept, used, ended, and through restarts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from phalanx.dialects.times import format_time
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from phalanx.model.advance_reservation import RESERVATION_ANNOTATION
from tests.e2e.world import PODS, World, condition

pytestmark = [pytest.mark.feature("start-reservations"), pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

RESERVATIONS = Resource("phalanx.dev", "v1alpha1", "reservations", "Reservation", namespaced=False)
HOUR = 3600


async def reservation(
    world: World, name: str, *, start: int = 0, end: int = HOUR, count: int = 1, cpu: str = "8", **spec: Any
) -> None:
    """Times are in seconds from now; for pods of this test's namespace where nothing else is said."""
    now = int(time.time())
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}
    what = {} if {"nodes", "gang"} & spec.keys() else {"template": template, "count": count}
    await world.make(
        {
            "apiVersion": RESERVATIONS.api_version,
            "kind": RESERVATIONS.kind,
            "metadata": {"name": f"{world.name}-{name}"},
            "spec": {
                **what,
                "start": format_time(now + start),
                "end": format_time(now + end),
                "owners": [{"namespaces": [world.namespace]}],
                **spec,
            },
        }
    )


async def until(world: World, name: str, **wanted: Any) -> dict[str, Any]:
    found: dict[str, Any] = await world.until_status(RESERVATIONS, f"{world.name}-{name}", **wanted)
    return found


def names(world: World, name: str) -> dict[str, str]:
    """Annotations of a pod that asks for a reservation."""
    return {RESERVATION_ANNOTATION: f"{world.name}-{name}"}


async def asking(world: World, name: str, reservation: str, **what: Any) -> None:
    await world.pod(name, annotations=names(world, reservation), **what)


async def scheduler(world: World, policy: str = "") -> Any:
    return await world.scheduler(config=policy, lease_namespace=world.namespace)


async def test_advance_reservation_is_granted_blocks_other_pods_and_admits_pods_that_name_it(world: World) -> None:
    await scheduler(world)
    await world.node("n1")
    await reservation(world, "r", start=-5)
    shown = await until(world, "r", phase="Available", nodeCount=1)
    assert condition({"status": shown}, "Ready")["reason"] == "Available"
    await world.pod("other", cpu="1")
    await world.until_held("other", words="reserved for units that start before")
    await asking(world, "mine", "r", cpu="6")
    await world.until_bound("mine")
    shown = await until(world, "r", users=1)
    assert shown["allocated"]["cpu"] == "6"
    assert shown["currentOwners"] == [{"namespace": world.namespace, "name": "mine"}]
    await world.until_held("other", words="reserved for units that start before")


async def test_advance_reservation_that_conflicts_is_refused_whole_with_the_pods_in_its_way(world: World) -> None:
    await scheduler(world)
    await world.node("n1")
    await world.pod("runs", cpu="1")
    await world.until_bound("runs")
    await reservation(world, "r", start=HOUR, end=2 * HOUR, count=1)
    shown = await until(world, "r", phase="Pending")
    said = condition({"status": shown}, "Scheduled")
    assert said["reason"] == "Unschedulable"
    assert said["message"] == (
        f"there is room for 0 of 1 copies; blocked by: pod {world.namespace}/runs; no later start is known"
    )
    await world.pod("other", cpu="7")
    await world.until_bound("other")


async def test_pod_that_names_a_foreign_or_missing_advance_reservation_is_rejected_with_the_reason(
    world: World,
) -> None:
    await scheduler(world)
    await world.node("n1")
    await reservation(world, "r", start=-5, owners=[{"namespaces": ["elsewhere"]}])
    await until(world, "r", phase="Available")
    await asking(world, "stranger", "r", cpu="1")
    await asking(world, "early", "missing", cpu="1")
    await world.until_held("stranger", words="is not for it: see its owners")
    await world.until_held("early", words="does not exist")


@pytest.mark.slow
async def test_at_its_end_its_pods_are_evicted_and_the_room_is_for_all(world: World) -> None:
    await scheduler(world)
    await world.node("n1")
    await reservation(world, "r", start=-5, end=6)
    await asking(world, "mine", "r", cpu="6")
    await world.until_bound("mine")
    await world.phase("Running", "mine")
    await until(world, "r", phase="Succeeded")

    async def gone() -> bool:
        pods = {item["metadata"]["name"]: item for item in await world.list(PODS)}
        return "mine" not in pods or "deletionTimestamp" in pods["mine"]["metadata"]

    await world.until(gone, "the pod is evicted")


@pytest.mark.parametrize("kind", ["killed", "stopped"])
async def test_a_grant_outlives_the_process(world: World, kind: str) -> None:
    first = await scheduler(world)
    await world.node("n1")
    await reservation(world, "b", start=HOUR, end=2 * HOUR)
    granted = await until(world, "b", phase="Waiting")
    await (first.kill() if kind == "killed" else first.stop())
    # Meantime two obstacles arrive: a reservation earlier in the order, and a pod that does not end in time.
    await reservation(world, "a", start=HOUR - 60, end=2 * HOUR)
    await world.pod("endless", cpu="1")
    second = await scheduler(world)
    await until(world, "a", phase="Pending")
    await world.until_held("endless", words="reserved for units that start before")
    assert await until(world, "b", phase="Waiting") == granted
    assert not [write for write in second.wire.writes if f"reservations/{world.name}-b" in write]


async def test_whole_nodes_are_kept_for_a_gang(world: World) -> None:
    await scheduler(world)
    await world.node("n1")
    await world.node("n2")
    await reservation(world, "r", start=-5, nodes={"names": [f"{world.name}-n1"]}, magnetic=True)
    await until(world, "r", phase="Available")
    await world.pods("one", "two", cpu="8")
    await world.until_bound("one", "two")
    assert (await until(world, "r", users=1))["allocated"]["cpu"] == "8"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"duration": "1h"}, "state either end, or duration"),
        ({"owners": []}, "state who may use it"),
        ({"nodes": {"names": ["n1"]}, "template": {"spec": {}}}, "state exactly one of template, gang and nodes"),
        ({"onEnd": "explode"}, "onEnd"),
        ({"notBefore": "2026-01-01T00:00:00Z"}, "state either start, or notBefore"),
    ],
)
async def test_invalid_advance_reservation_is_refused_at_creation(
    world: World, wrong: dict[str, Any], words: str
) -> None:
    with pytest.raises(ApiError, match=words):
        await reservation(world, "r", **wrong)


@pytest.mark.slow
async def test_nothing_is_written_while_nothing_changes(world: World, tmp_path: Path) -> None:
    running = await scheduler(world)
    await world.node("n1")
    await reservation(world, "r", start=-5)
    await reservation(world, "never", start=-5, count=9)
    await until(world, "r", phase="Available")
    await until(world, "never", phase="Pending")
    await world.settled(running)
    written = len(running.wire.writes)
    await world.settled(running, quiet=1.0)
    assert len(running.wire.writes) == written

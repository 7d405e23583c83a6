"""Windows of maintenance on an API server: before, at and after their start, and through restarts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from phalanx.dialects.times import format_time
from phalanx.kube.client import PatchType
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from phalanx.model.maintenance import CORDONED_BY
from tests.e2e.world import EVENTS, NODES, PODS, World, condition

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

WINDOWS = Resource("phalanx.dev", "v1alpha1", "maintenancewindows", "MaintenanceWindow", namespaced=False)
HOUR = 3600


async def window(
    world: World, *nodes: str, start: int, end: int, wrong: dict[str, Any] | None = None, **spec: Any
) -> None:
    """Times are in seconds from now."""
    now = int(time.time())
    await world.make(
        {
            "apiVersion": WINDOWS.api_version,
            "kind": WINDOWS.kind,
            "metadata": {"name": world.name},
            "spec": {
                "nodes": {"names": [f"{world.name}-{node}" for node in nodes]},
                "start": format_time(now + start),
                "end": format_time(now + end),
                **spec,
                **(wrong or {}),
            },
        }
    )


async def change(world: World, **spec: Any) -> None:
    await world.client.patch(WINDOWS.path(None, world.name), {"spec": spec}, PatchType.MERGE)


async def begin(world: World) -> None:
    await change(world, start=format_time(int(time.time()) - 5))


async def node(world: World, name: str = "n1") -> tuple[bool, str]:
    """(whether it is cordoned, our mark)."""
    found = await world.get(NODES, f"{world.name}-{name}")
    annotations = found["metadata"].get("annotations") or {}
    return found["spec"].get("unschedulable") is True, annotations.get(CORDONED_BY, "")


async def until_cordoned(world: World) -> None:
    async def cordoned() -> bool:
        unschedulable, mark = await node(world)
        return unschedulable and bool(mark)

    await world.until(cordoned, "the node is cordoned")


async def until_open(world: World) -> None:
    async def opened() -> bool:
        return await node(world) == (False, "")

    await world.until(opened, "the node is uncordoned, and our mark is gone")


@pytest.mark.feature("maintenance")
async def test_a_long_pod_is_kept_off_and_a_short_one_is_not(world: World) -> None:
    await world.scheduler()
    await world.node("n1")
    await window(world, "n1", start=HOUR, end=2 * HOUR)
    shown = await world.until_status(WINDOWS, world.name, phase="Scheduled", nodes=1)
    assert condition({"status": shown}, "Accepted")["status"] == "True"
    await world.pod("endless")
    await world.pod("long", activeDeadlineSeconds=2 * HOUR)
    await world.until_held("endless", "long", words="close for maintenance before it would end")
    await world.pod("short", activeDeadlineSeconds=600)
    await world.until_bound("short")
    await world.client.delete(WINDOWS.path(None, world.name))
    await world.until_bound("endless", "long")


@pytest.mark.feature("maintenance")
async def test_gang_is_warned_and_evicted_before_maintenance_and_the_node_is_uncordoned_afterwards(
    world: World,
) -> None:
    await world.scheduler()
    await world.node("n1", cpu="1")
    await world.node("n2", cpu="1")
    labels = {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "2"}
    await world.pods("g0", "g1", labels=labels)
    await world.until_bound("g0", "g1")
    await world.phase("Running", "g0", "g1")
    await window(world, "n1", start=60, end=HOUR, atStart="evict", notice="2m")
    await world.until_event("MaintenanceAhead", words="is evicted at .* when the maintenance of node")
    assert len(await world.list(PODS)) == 2
    await begin(world)
    await until_cordoned(world)

    async def gone() -> bool:
        return all("deletionTimestamp" in pod["metadata"] for pod in await world.list(PODS))

    await world.until(gone, "both members are told to leave")
    await world.until_event("Revoked", words="is in maintenance")
    shown = await world.until_status(WINDOWS, world.name, phase="Active", stillRunning=0)
    assert condition({"status": shown}, "Drained")["status"] == "True"
    await change(world, end=format_time(int(time.time()) + 1))
    await until_open(world)
    await world.until_status(WINDOWS, world.name, phase="Completed")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_a_restart_in_the_middle_changes_nothing_and_the_end_uncordons(world: World, how: str) -> None:
    first = await world.scheduler()
    await world.node("n1")
    await world.pod("stays", cpu="1")
    await world.until_bound("stays")
    await window(world, "n1", start=-5, end=HOUR)
    await until_cordoned(world)
    await world.until_status(WINDOWS, world.name, phase="Active", stillRunning=1)
    await world.settled(first)
    mark = await node(world)
    await (first.kill() if how == "killed" else first.stop())
    second = await world.scheduler()
    await world.settled(second, quiet=1.0)
    assert [write for write in second.wire.writes if "/nodes/" in str(write) or "maintenance" in str(write)] == []
    assert await node(world) == mark
    await world.client.delete(WINDOWS.path(None, world.name))
    await until_open(world)


@pytest.mark.feature("maintenance")
async def test_maintenance_that_ended_during_downtime_is_uncordoned_at_the_next_start(world: World) -> None:
    first = await world.scheduler()
    await world.node("n1")
    await window(world, "n1", start=-5, end=HOUR)
    await until_cordoned(world)
    await first.kill()
    await world.client.delete(WINDOWS.path(None, world.name))
    await world.scheduler()
    await until_open(world)


@pytest.mark.slow
async def test_node_cordoned_by_a_user_stays_cordoned_after_maintenance(world: World) -> None:
    scheduler = await world.scheduler()
    await world.node("n1")
    await world.node("n2")
    await world.patch_node("n1", {"spec": {"unschedulable": True}})
    await window(world, "n1", "n2", start=-5, end=HOUR)
    await world.until(lambda: _marked(world, "n2"), "n2 is cordoned")
    await world.settled(scheduler)
    assert await node(world) == (True, "")
    await world.client.delete(WINDOWS.path(None, world.name))

    async def opened() -> bool:
        return await node(world, "n2") == (False, "")

    await world.until(opened, "n2 is uncordoned")
    assert await node(world) == (True, "")


@pytest.mark.slow
async def test_node_uncordoned_by_a_user_during_maintenance_stays_uncordoned(world: World) -> None:
    scheduler = await world.scheduler()
    await world.node("n1")
    await window(world, "n1", start=-5, end=HOUR)
    await until_cordoned(world)
    await world.patch_node("n1", {"spec": {"unschedulable": None}})
    await world.settled(scheduler, quiet=1.0)
    assert (await node(world))[0] is False


@pytest.mark.slow
async def test_a_steady_state_writes_nothing(world: World) -> None:
    scheduler = await world.scheduler()
    await world.node("n1")
    await world.pod("endless")
    await window(
        world, "n1", start=HOUR, end=2 * HOUR, recurrence={"rule": "FREQ=WEEKLY", "timeZone": "Europe/Berlin"}
    )
    await world.until_status(WINDOWS, world.name, phase="Scheduled")
    await world.settled(scheduler)
    count = scheduler.wire.count()
    await world.settled(scheduler, quiet=1.0)
    assert scheduler.wire.count() == count


async def test_unreadable_maintenance_rule_is_reported_and_cordons_no_node(world: World) -> None:
    await world.scheduler()
    await world.node("n1")
    await window(world, "n1", start=HOUR, end=2 * HOUR, recurrence={"rule": "FREQ=WEEKLY;BYSECOND=1"})
    shown = await world.until_status(WINDOWS, world.name, phase="Invalid")
    assert "unknown key 'BYSECOND'" in condition({"status": shown}, "Accepted")["message"]
    # Events about objects without a namespace are recorded in this one.
    found = (await world.client.list_all(EVENTS.path("default")))["items"]
    told = [each["note"] for each in found if each["regarding"].get("name") == world.name]
    assert len(told) == 1
    assert "spec.recurrence.rule" in told[0]
    await world.pod("endless")
    await world.until_bound("endless")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"end": None}, "state either end, or duration"),
        ({"duration": "1h"}, "state either end, or duration"),
        ({"start": "tomorrow"}, "spec.start"),
        ({"start": "2099-01-01T00:00:00Z"}, "end must be after start"),
        ({"nodes": {}}, "name nodes"),
        ({"atStart": "reboot"}, "Unsupported value"),
        ({"before": "surplus"}, "else surplus members are not evicted"),
        ({"end": None, "duration": "0s"}, "duration must be above 0"),
        ({"recurrence": {"rule": "FREQ=SECONDLY"}}, "spec.recurrence.rule"),
        ({"closeBefore": "soon"}, "spec.closeBefore"),
    ],
)
async def test_a_bad_one_is_refused(world: World, wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ApiError) as caught:
        await window(world, "n1", start=HOUR, end=2 * HOUR, wrong=wrong)
    assert says in str(caught.value)


@pytest.mark.feature("maintenance")
async def test_maintenance_label_of_a_node_rejects_pods_that_would_not_end_in_time(
    world: World, tmp_path: Path
) -> None:
    await world.scheduler()
    await world.node("n1")
    label = {"cloud.google.com/scheduled-maintenance-time": str(int(time.time()) + HOUR)}
    await world.patch_node("n1", {"metadata": {"labels": label}})
    await world.pod("endless", nodeSelector={"kubernetes.io/hostname": "n1"})
    await world.until_held("endless", words="close for maintenance before it would end")
    await world.patch_node("n1", {"metadata": {"labels": {next(iter(label)): None}}})
    await world.until_bound("endless")
    assert await node(world) == (False, "")


async def _marked(world: World, name: str) -> bool:
    return bool((await node(world, name))[1])

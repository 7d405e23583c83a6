"""A plan's mark on a pod that the scheduler did not bind: forged by a tenant, or copied from a backup."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.attacks.arena import MARK, SIGS, VOLCANO, Arena, member
from tests.e2e.world import PODS, Object, pod

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


def mark(size: int, plan: str = "schedule") -> str:
    """Return a fresh mark as the scheduler of an older release wrote it."""
    now = int(time.time()) + 2
    return f"{plan}-{now}/{size}/{now}"


def marked(name: str, size: int, **what: Any) -> Object:
    made = pod(name, **what)
    made["metadata"]["annotations"][MARK] = mark(size)
    return made


async def test_a_mark_of_ones_own_does_not_pass_a_queues_capability(arena: Arena) -> None:
    """The tenant binds a pod itself, by naming a node, and says that it was a plan's."""
    await arena.node("n1", cpu="16")
    await arena.scheduler()
    tenant = await arena.tenant()
    queue = await arena.queue(capability={"cpu": 4})
    await tenant.group("g", 10, queue=queue)
    await tenant.make(marked("g-0", 10, cpu="0", nodeName=f"{arena.name}-n1", **member("g")))
    await tenant.pods(*(f"g-{number}" for number in range(1, 10)), **member("g"))
    await tenant.stays_at_most(1, "g-")
    await arena.unharmed()


async def test_a_mark_that_is_put_on_a_bound_pod_does_not_pass_a_queues_capability(arena: Arena) -> None:
    await arena.node("n1", cpu="16")
    await arena.scheduler()
    tenant = await arena.tenant()
    queue = await arena.queue(capability={"cpu": 4})
    await tenant.group("g", 1, queue=queue)
    await tenant.pod("g-0", **member("g"))
    await tenant.until_bound("g-0")
    await tenant.patch(VOLCANO, "g", {"spec": {"minMember": 10}})
    await tenant.patch(PODS, "g-0", {"metadata": {"annotations": {MARK: mark(10)}}})
    await tenant.pods(*(f"g-{number}" for number in range(1, 10)), **member("g"))
    await tenant.stays_at_most(4, "g-")
    await arena.unharmed()


@pytest.mark.slow_but_first
@pytest.mark.parametrize("bound", [False, True], ids=["pending", "bound by its owner"])
@pytest.mark.parametrize("dialect", ["labels", "object"])
async def test_a_mark_of_ones_own_does_not_start_a_gang_below_its_quorum(
    arena: Arena, dialect: str, bound: bool
) -> None:
    await arena.node("n1", cpu="8")
    await arena.scheduler()
    tenant = await arena.tenant()
    if dialect == "object":
        await tenant.group("g", 12)
        words = member("g")
    else:
        words = {"labels": {f"{SIGS}/name": "g", f"{SIGS}/min-available": "12"}}
    place = {"nodeName": f"{arena.name}-n1"} if bound else {}
    await tenant.make(marked("g-0", 12, cpu="0", **place, **words))
    for number in range(1, 12):
        await tenant.make(marked(f"g-{number}", 12, **words))
    await tenant.stays_at_most(1 if bound else 0, "g-")
    await arena.unharmed()


async def test_mark_forged_by_a_tenant_does_not_precede_a_higher_priority(arena: Arena) -> None:
    await arena.node("n1", cpu="4")
    await arena.scheduler()
    tenant, other = await arena.tenant(), await arena.tenant("other")
    await other.pod("tall", cpu="4")
    await other.until_bound("tall")
    name = f"{arena.name}-500"
    await arena.make(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": 500,
            "preemptionPolicy": "Never",
        }
    )
    await other.group("high", 2)
    await other.pods("high-0", "high-1", cpu="2", priorityClassName=name, **member("high"))
    await other.until_held("high-0", "high-1")
    await tenant.group("g", 3)
    await tenant.make(marked("g-0", 3, cpu="0", nodeName=f"{arena.name}-n1", **member("g")))
    await tenant.pods("g-1", "g-2", cpu="2", **member("g"))
    await tenant.until_held("g-1", "g-2")
    await other.delete(PODS, "tall")
    await other.until_bound("high-0", "high-1")
    await tenant.stays_at_most(1, "g-")
    await arena.unharmed()


async def test_copies_of_members_from_a_backup_do_not_start_in_part(arena: Arena) -> None:
    await arena.node("n1", cpu="4")
    scheduler = await arena.scheduler()
    tenant = await arena.tenant()
    await tenant.group("g", 4)
    names = [f"g-{number}" for number in range(4)]
    await tenant.pods(*names, **member("g"))
    await tenant.until_bound(*names)
    copies = [await tenant.copy(name) for name in names]
    assert all(MARK in each["metadata"]["annotations"] for each in copies)
    await tenant.delete(PODS, *names)
    await arena.patch_node("n1", {"status": {"allocatable": {"cpu": "3"}, "capacity": {"cpu": "3"}}}, status=True)
    await scheduler.kill()
    for each in copies:
        await tenant.make(each)
    await arena.scheduler()
    await tenant.stays_at_most(0, "g-")
    await arena.unharmed()


@pytest.mark.parametrize("flag", ["as it was written", "by hand"])
async def test_a_group_from_a_backup_that_was_satisfied_once_does_not_start_in_part(
    arena: Arena, flag: str
) -> None:
    await arena.node("n1", cpu="3")
    await arena.scheduler()
    tenant = await arena.tenant()
    once = {"gang.scheduling.koordinator.sh/match-policy": "once-satisfied"}
    if flag == "by hand":
        once["phalanx.dev/once-satisfied"] = "true"
        await tenant.group("g", 4, annotations=once)
    else:
        await tenant.group("g", 3, annotations=once)
        await tenant.pods("g-0", "g-1", "g-2", **member("g"))
        await tenant.until_bound("g-0", "g-1", "g-2")
        await tenant.delete(PODS, "g-0", "g-1", "g-2")
        await arena.patch_node(
            "n1", {"status": {"allocatable": {"cpu": "2"}, "capacity": {"cpu": "2"}}}, status=True
        )
    await tenant.pods("h-0", "h-1", "h-2", **member("g"))
    if flag == "by hand":
        await tenant.pod("h-3", **member("g"))
    await tenant.stays_at_most(0, "h-")
    await arena.unharmed()

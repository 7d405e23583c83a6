"""Gangs that run again, over the API and with a scheduler that is killed in between.

Every dialect and order is played without a server in test_runs.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.attacks.arena import SIGS, Arena, Tenant, member
from tests.e2e.world import PODS, Object, pod

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

LABELS: dict[str, Any] = {"labels": {f"{SIGS}/name": "g", f"{SIGS}/min-available": "3"}}
KOORDINATOR: dict[str, Any] = {
    "annotations": {
        "gang.scheduling.koordinator.sh/name": "g",
        "gang.scheduling.koordinator.sh/min-available": "3",
    }
}
NAMES = ["g-0", "g-1", "g-2"]


async def shrink(arena: Arena, cpus: int) -> None:
    amounts = {"cpu": str(cpus)}
    await arena.patch_node("n1", {"status": {"allocatable": amounts, "capacity": amounts}}, status=True)


async def run(arena: Arena, words: dict[str, Any]) -> Tenant:
    tenant = await arena.tenant()
    if words is OBJECT:
        await tenant.group("g", 3)
    await tenant.pods(*NAMES, **words)
    await tenant.until_bound(*NAMES)
    return tenant


OBJECT = member("g")


@pytest.mark.slow_but_first
@pytest.mark.parametrize("killed", [False, True], ids=["seen", "killed"])
@pytest.mark.parametrize("words", [LABELS, KOORDINATOR, OBJECT], ids=["labels", "koordinator", "object"])
async def test_a_gang_that_runs_again_starts_whole(arena: Arena, words: dict[str, Any], killed: bool) -> None:
    await arena.node("n1", cpu="3")
    scheduler = await arena.scheduler()
    tenant = await run(arena, words)
    await tenant.phase_by(arena, "Running", *NAMES)
    await tenant.delete(PODS, *NAMES)
    await shrink(arena, 2)
    if killed:
        await scheduler.kill()
        await arena.scheduler()
    await tenant.pods(*NAMES, **words)
    await tenant.stays_at_most(0)
    await shrink(arena, 3)
    await tenant.until_bound(*NAMES)
    await arena.unharmed()


@pytest.mark.slow_but_first
@pytest.mark.parametrize("killed", [False, True], ids=["seen", "killed"])
@pytest.mark.parametrize("words", [LABELS, KOORDINATOR, OBJECT], ids=["labels", "koordinator", "object"])
async def test_gang_evicted_and_recreated_starts_whole(arena: Arena, words: dict[str, Any], killed: bool) -> None:
    """Its members end one by one, and their controller replaces them at once."""
    await arena.node("n1", cpu="3")
    scheduler = await arena.scheduler()
    tenant = await run(arena, words)
    old = [await tenant.get(PODS, name) for name in NAMES]
    for name in NAMES:
        await tenant.client.delete(PODS.path(tenant.namespace, name), grace_seconds=60)
    if killed:
        await scheduler.kill()
        await arena.scheduler()
    fresh = [pod(f"again-{number}", **words) for number in range(3)]
    for number, made in enumerate(fresh):
        await tenant.make(made)
        if number < 2:
            await gone(tenant, old[number])
        await tenant.stays_at_most(0, "again-")
    await gone(tenant, old[2])
    await tenant.until_bound("again-0", "again-1", "again-2")
    await arena.unharmed()


async def gone(tenant: Tenant, document: Object) -> None:
    """End a pod as its kubelet would."""
    await tenant.client.delete(PODS.path(tenant.namespace, document["metadata"]["name"]), grace_seconds=0)

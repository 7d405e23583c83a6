"""Gangs that name foreign gangs in their gang groups: a group needs the consent of each gang."""

from __future__ import annotations

import json

import pytest

from tests.attacks.arena import X_K8S, Arena, Tenant, member
from tests.e2e.world import PODS, condition

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

GANG = "gang.scheduling.koordinator.sh"


def gang_group(*keys: str) -> dict[str, str]:
    return {f"{GANG}/groups": json.dumps(list(keys))}


async def test_gang_that_names_foreign_gangs_is_not_protected_and_no_foreign_pod_is_evicted(arena: Arena) -> None:
    for name in ("n1", "n2"):
        await arena.node(name, cpu="4")
    await arena.scheduler()
    tenant, innocent, other = await arena.tenant(), await arena.tenant("innocent"), await arena.tenant("other")
    await innocent.group("bystander", 1)
    await innocent.pod("b-0", cpu="4", priorityClassName=await arena.priority(100), **member("bystander"))
    await innocent.until_bound("b-0")
    await tenant.group("shielded", 1)
    await tenant.pod("s-0", cpu="4", **member("shielded"))
    await tenant.until_bound("s-0")
    named = gang_group(f"{innocent.namespace}/bystander")
    await tenant.patch(X_K8S, "shielded", {"metadata": {"annotations": named}})
    await other.pod("high", cpu="4", priorityClassName=await arena.priority(1000))
    await other.until_bound("high")
    assert (await innocent.bound()) == ["b-0"]
    assert (await tenant.bound()) == []
    await arena.unharmed()


async def test_gang_that_names_foreign_gangs_does_not_delay_them(arena: Arena) -> None:
    await arena.node("n1", cpu="4")
    await arena.scheduler()
    tenant, other = await arena.tenant(), await arena.tenant("other")
    await tenant.group("never", 2, annotations=gang_group(f"{other.namespace}/g"))
    await tenant.pod("n-0", **member("never"))
    await other.group("g", 2)
    await other.pods("g-0", "g-1", **member("g"))
    await other.until_bound("g-0", "g-1")
    await arena.unharmed()


async def said(tenant: Tenant, name: str) -> str:
    await tenant.until_held(name)
    text: str = condition(await tenant.get(PODS, name), "PodScheduled")["message"]
    return text


async def test_gang_that_names_foreign_gangs_does_not_learn_their_existence_or_size(arena: Arena) -> None:
    await arena.node("n1", cpu="1")
    await arena.scheduler()
    tenant, other = await arena.tenant(), await arena.tenant("other")
    await other.group("secret", 7)
    await other.pods(*(f"s-{number}" for number in range(5)), **member("secret"))
    texts = []
    for named in ("secret", "absent"):
        await tenant.group(f"asks-{named}", 2, annotations=gang_group(f"{other.namespace}/{named}"))
        names = [f"{named}-0", f"{named}-1"]
        await tenant.pods(*names, **member(f"asks-{named}"))
        texts.append((await said(tenant, names[0])).replace(named, "NAMED"))
    assert texts[0] == texts[1]
    await arena.unharmed()


@pytest.mark.slow
async def test_many_gangs_that_name_each_other_do_not_stall_the_scheduler(arena: Arena) -> None:
    await arena.node("n1", cpu="1")
    tenant = await arena.tenant()
    names = [f"t-{number}" for number in range(300)]
    keys = gang_group(*(f"{tenant.namespace}/{name}" for name in names))
    for name in names:
        notes = {f"{GANG}/name": name, f"{GANG}/min-available": "1", **keys}
        await tenant.pod(name, annotations=notes, cpu="1")
    await arena.scheduler()
    await arena.unharmed()
    await tenant.pod("poke")
    await arena.unharmed()

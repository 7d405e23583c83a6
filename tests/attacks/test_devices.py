"""Device annotations that tenants edit on their pods: more devices than requested, or fewer than used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.attacks.arena import Arena, Tenant
from tests.e2e.test_devices import TO_ALLOCATE, gpu_node, policy, told, wants
from tests.e2e.world import PODS

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

IDS = "volcano.sh/vgpu-ids-new"
ALL = "GPU-a,NVIDIA,16000,100:GPU-b,NVIDIA,16000,100:"


async def rewrite(tenant: Tenant, name: str, cards: str | None) -> None:
    await tenant.patch(PODS, name, {"metadata": {"annotations": {IDS: cards, TO_ALLOCATE: cards}}})


@pytest.mark.slow_but_first
@pytest.mark.parametrize("restarted", [False, True], ids=["seen", "restarted"])
@pytest.mark.parametrize("lie", ["GPU-b,NVIDIA,0,0:", "", None, "nonsense"])
async def test_pod_that_hides_its_cards_keeps_them_reserved(
    arena: Arena, tmp_path: Path, lie: str | None, restarted: bool
) -> None:
    await gpu_node(arena, "n1", "GPU-a")
    scheduler = await arena.scheduler(config=policy(tmp_path))
    tenant, other = await arena.tenant(), await arena.tenant("other")
    await tenant.pod("mine", **wants(9000))
    await tenant.until_bound("mine")
    await rewrite(tenant, "mine", lie)
    if restarted:
        await scheduler.kill()
        await arena.scheduler(config=policy(tmp_path))
    await other.pod("theirs", **wants(9000))
    await other.stays_at_most(0)
    await arena.unharmed()


@pytest.mark.slow_but_first
@pytest.mark.parametrize("restarted", [False, True], ids=["seen", "restarted"])
async def test_a_pod_that_names_another_card_keeps_its_own(arena: Arena, tmp_path: Path, restarted: bool) -> None:
    await gpu_node(arena, "n1", "GPU-a", "GPU-b")
    scheduler = await arena.scheduler(config=policy(tmp_path))
    tenant, other = await arena.tenant(), await arena.tenant("other")
    await tenant.pod("mine", **wants(9000))
    await tenant.until_bound("mine")
    mine = (await told(tenant))["mine"].partition(",")[0]
    theirs = {"GPU-a": "GPU-b", "GPU-b": "GPU-a"}[mine]
    await rewrite(tenant, "mine", f"{theirs},NVIDIA,9000,0:")
    if restarted:
        await scheduler.kill()
        await arena.scheduler(config=policy(tmp_path))
    await other.pod("theirs", **wants(9000))
    await other.until_bound("theirs")
    assert (await told(other))["theirs"].partition(",")[0] == theirs
    await arena.unharmed()


@pytest.mark.slow_but_first
@pytest.mark.parametrize("restarted", [False, True], ids=["seen", "restarted"])
async def test_a_pod_that_claims_all_cards_keeps_no_more_than_it_asked_for(
    arena: Arena, tmp_path: Path, restarted: bool
) -> None:
    await gpu_node(arena, "n1", "GPU-a", "GPU-b")
    scheduler = await arena.scheduler(config=policy(tmp_path))
    tenant, other = await arena.tenant(), await arena.tenant("other")
    await tenant.pod("mine", **wants(100))
    await tenant.until_bound("mine")
    await rewrite(tenant, "mine", ALL)
    if restarted:
        await scheduler.kill()
        await arena.scheduler(config=policy(tmp_path))
    await other.pods("theirs-0", "theirs-1", **wants(15000))
    await other.until_bound("theirs-0", "theirs-1")
    assert {cards.partition(",")[0] for cards in (await told(other)).values()} == {"GPU-a", "GPU-b"}
    await arena.unharmed()


@pytest.mark.parametrize("asked", [wants(100), {"cpu": "1"}], ids=["a little", "nothing"])
async def test_a_pod_that_binds_itself_claims_no_card_that_it_did_not_ask_for(
    arena: Arena, tmp_path: Path, asked: dict[str, Any]
) -> None:
    await gpu_node(arena, "n1", "GPU-a", "GPU-b")
    await arena.scheduler(config=policy(tmp_path))
    tenant, other = await arena.tenant(), await arena.tenant("other")
    koordinators = '{"gpu": [{"minor": 0, "resources": {"koordinator.sh/gpu-core": "100"}}]}'
    notes = {IDS: ALL, "scheduling.koordinator.sh/device-allocated": koordinators}
    await tenant.pod("mine", nodeName=f"{arena.name}-n1", annotations=notes, **asked)
    await other.pods("theirs-0", "theirs-1", **wants(15000))
    await other.until_bound("theirs-0", "theirs-1")
    if "requests" in asked:
        await tenant.until_event("DeviceResultDoubted", "mine", "claim more cards than it requests")
    await arena.unharmed()

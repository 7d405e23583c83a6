"""Texts by which a tenant could end or stall the scheduler; unit tests beside each decoder cover the decoded
values.
"""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.kube.errors import ApiError
from tests.attacks.arena import Arena, member

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

DIGITS = "9" * 5000
NESTED = "[" * 50_000 + "]" * 50_000
KOORDINATOR = "gang.scheduling.koordinator.sh"

GROUPS: dict[str, dict[str, str]] = {
    "a nested topology": {f"{KOORDINATOR}/network-topology-spec": NESTED},
    "a nested budget": {"phalanx.dev/budget": NESTED},
    "a nested list of gang groups": {f"{KOORDINATOR}/groups": NESTED},
    "a tier of many digits": {
        "volcano.sh/network-topology-mode": "hard",
        "volcano.sh/network-topology-highest-tier": DIGITS,
    },
    "a waiting time of many digits": {f"{KOORDINATOR}/waiting-time": f"{'1h' * 50_000}"},
    "a portion of many digits": {"volcano.sh/jdb-min-available": DIGITS},
}
PODS: dict[str, dict[str, str]] = {
    "a mark of many digits": {"phalanx.dev/gang-plan": f"p-1/{DIGITS}/{DIGITS}"},
    "a minimum of many digits": {f"{KOORDINATOR}/name": "g", f"{KOORDINATOR}/min-available": DIGITS},
    "a total of many digits": {
        f"{KOORDINATOR}/name": "g",
        f"{KOORDINATOR}/min-available": "1",
        f"{KOORDINATOR}/total-number": DIGITS,
    },
    "expected members of many digits": {
        f"{KOORDINATOR}/name": "g",
        f"{KOORDINATOR}/min-available": "1",
        "phalanx.dev/expected-members": DIGITS,
        "phalanx.dev/scale-up-delay": "1h" * 50_000,
    },
    "nested expected requests": {
        f"{KOORDINATOR}/name": "g",
        f"{KOORDINATOR}/min-available": "1",
        "phalanx.dev/expected-members": "5000",
        "phalanx.dev/expected-requests": NESTED,
    },
    "held room of many digits": {
        f"{KOORDINATOR}/name": "g",
        f"{KOORDINATOR}/min-available": "1",
        "phalanx.dev/held-room": f"x.y/n:{DIGITS}",
    },
    "an index of many digits": {"volcano.sh/task-index": DIGITS},
    "cards of many digits": {"volcano.sh/vgpu-ids-new": f"GPU-a,NVIDIA,{DIGITS},{DIGITS}:"},
    "nested cards": {"scheduling.koordinator.sh/device-allocated": NESTED},
    "a card of many digits": {
        "scheduling.koordinator.sh/device-allocated": f'{{"gpu": [{{"minor": {DIGITS}, "resources": {{}}}}]}}'
    },
    "a cooldown of many digits": {"volcano.sh/cooldown-time": "1h" * 50_000},
    "a checkpoint in the year 9999": {"phalanx.dev/checkpointed-at": "9999-12-31T23:59:59-23:59"},
}


async def accepted_or_refused(write: Any) -> None:
    try:
        await write
    except ApiError as error:
        assert error.status < 500  # noqa: PT017 - a refusal is as good


async def tried(arena: Arena, write: Any) -> None:
    """Create an object; the API server may refuse it. An accepted one harms no other object, also on deletion."""
    await accepted_or_refused(write)
    await arena.unharmed()


async def test_groups_with_all_hostile_texts_do_not_stop_the_scheduler(arena: Arena) -> None:
    await arena.node("n1", cpu="2")
    scheduler = await arena.scheduler()
    for notes in GROUPS.values():
        tenant = await arena.tenant()
        await tenant.pods("g-0", "g-1", **member("g"))
        await accepted_or_refused(tenant.group("g", 2, annotations=notes))
    await arena.unharmed()
    for tenant in arena.tenants:
        await tenant.close()
    await arena.unharmed()
    await scheduler.stop()


@pytest.mark.parametrize("bound", [False, True], ids=["pending", "bound"])
async def test_pods_with_all_hostile_texts_do_not_stop_the_scheduler(arena: Arena, bound: bool) -> None:
    await arena.node("n1")
    place = {"nodeName": f"{arena.name}-n1"} if bound else {}
    await arena.scheduler()
    for notes in PODS.values():
        tenant = await arena.tenant()
        await accepted_or_refused(tenant.pod("p", annotations=notes, **place))
    await arena.unharmed()
    for tenant in arena.tenants:
        await tenant.close()
    other = await arena.tenant("other")
    await other.pod("later")
    await other.until_bound("later")


@pytest.mark.slow
@pytest.mark.parametrize("what", GROUPS)
async def test_group_with_a_hostile_text_does_not_stop_the_scheduler(arena: Arena, what: str) -> None:
    await arena.node("n1")
    scheduler = await arena.scheduler()
    tenant = await arena.tenant()
    await tenant.pods("g-0", "g-1", **member("g"))
    await tried(arena, tenant.group("g", 2, annotations=GROUPS[what]))
    await tenant.close()
    await arena.unharmed()
    await scheduler.stop()


@pytest.mark.slow
@pytest.mark.parametrize("bound", [False, True], ids=["pending", "bound"])
@pytest.mark.parametrize("what", PODS)
async def test_pod_with_a_hostile_text_does_not_stop_the_scheduler(arena: Arena, what: str, bound: bool) -> None:
    await arena.node("n1")
    tenant = await arena.tenant()
    place = {"nodeName": f"{arena.name}-n1"} if bound else {}
    await arena.scheduler()
    await tried(arena, tenant.pod("p", annotations=PODS[what], **place))
    await tenant.close()
    other = await arena.tenant("other")
    await other.pod("later")
    await other.until_bound("later")

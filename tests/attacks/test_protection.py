"""Fields by which a tenant protects its pods from eviction, or has foreign pods evicted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.attacks.arena import QUEUE_NAME, VOLCANO, Arena, Tenant, member

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

SHIELDS: dict[str, dict[str, Any]] = {
    "not preemptable": {"annotations": {"volcano.sh/preemptable": "false"}},
    "not preemptable, by label": {"labels": {"volcano.sh/preemptable": "false"}},
    "not preemptable, and nobody can read why": {"annotations": {"volcano.sh/preemptable": "perhaps"}},
    "a cooldown of ten years": {"labels": {"volcano.sh/cooldown-time": "87600h"}},
    "a static pod, says its owner": {"annotations": {"kubernetes.io/config.source": "file"}},
    "a firm pod": {"labels": {"quota.scheduling.koordinator.sh/preemptible": "false"}},
}


# A queue owns its declared deserved share.
POLICY = """
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: conformance}, {name: predicates}, {name: capacity},
  {name: cdp}]}]
"""


@pytest.fixture
def policy(tmp_path: Path) -> str:
    path = tmp_path / "policy"
    path.write_text(POLICY, encoding="utf-8")
    return str(path)


async def high(arena: Arena, tenant: Tenant, queue: str) -> None:
    """Create a pod of higher priority in the same queue."""
    notes = {QUEUE_NAME: queue}
    await tenant.pod("high", cpu="4", priorityClassName=await arena.priority(1000), annotations=notes)
    await tenant.until_bound("high")


@pytest.mark.slow_but_first
@pytest.mark.parametrize("shield", SHIELDS)
async def test_a_pod_is_not_out_of_reach_beyond_its_own_share_because_it_says_so(
    arena: Arena, policy: str, shield: str
) -> None:
    await arena.node("n1", cpu="4")
    await arena.scheduler(config=policy)
    tenant, other, queue = await arena.tenant(), await arena.tenant("other"), await arena.queue(deserved={"cpu": 1})
    words = {"annotations": {**SHIELDS[shield].get("annotations", {}), QUEUE_NAME: queue}}
    await tenant.pod("mine", cpu="4", **{**SHIELDS[shield], **words})
    await tenant.until_bound("mine")
    await high(arena, other, queue)
    await arena.unharmed()


async def test_a_gang_is_not_out_of_reach_because_its_object_says_so(arena: Arena, policy: str) -> None:
    await arena.node("n1", cpu="4")
    await arena.scheduler(config=policy)
    tenant, other, queue = await arena.tenant(), await arena.tenant("other"), await arena.queue(deserved={"cpu": 1})
    await tenant.group("g", 2, queue=queue, annotations={"volcano.sh/preemptable": "false"})
    await tenant.pods("g-0", "g-1", cpu="2", **member("g"))
    await tenant.until_bound("g-0", "g-1")
    await high(arena, other, queue)
    await arena.unharmed()


async def test_group_with_a_system_priority_class_evicts_no_pods(arena: Arena) -> None:
    await arena.node("n1", cpu="4")
    await arena.scheduler()
    tenant, innocent = await arena.tenant(), await arena.tenant("innocent")
    await innocent.group("b", 2)
    await innocent.pods("b-0", "b-1", cpu="2", priorityClassName=await arena.priority(100), **member("b"))
    await innocent.until_bound("b-0", "b-1")
    await tenant.group("g", 1, queue="default")
    await tenant.patch(VOLCANO, "g", {"spec": {"priorityClassName": "system-node-critical"}})
    await tenant.pod("g-0", cpu="4", **member("g"))
    await tenant.stays_at_most(0, "g-")
    assert await innocent.bound() == ["b-0", "b-1"]
    await arena.unharmed()

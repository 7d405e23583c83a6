"""Pods that a kubelet rejects because a tenant has arranged it: nodes stay open to other pods."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from click.testing import CliRunner

from phalanx.cli.main import cli
from phalanx.kube.client import PatchType
from tests.attacks.arena import Arena, Tenant
from tests.e2e.world import PODS, World, pod

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


async def reject(arena: Arena, world: World, name: str, reason: str) -> None:
    """Set the status of a rejected pod, as a kubelet or a user with the right to pods/status does."""
    path = PODS.path(world.namespace, name) + "/status"
    await arena.client.patch(path, {"status": {"phase": "Failed", "reason": reason}}, PatchType.MERGE)


async def run_command(arena: Arena, *arguments: str) -> str:
    """Return the output of a command of the administrator."""
    options = ["--kubeconfig", str(arena.cluster.kubeconfig)]
    result = await asyncio.to_thread(CliRunner().invoke, cli, [*arguments, *options])
    assert result.exit_code == 0, result.output
    return result.output


async def bound_after_cycles(arena: Arena, tenant: Tenant, name: str, **spec: Any) -> bool:
    await tenant.pod(name, **spec)
    await arena.pass_cycles()
    return bool((await tenant.placement())[name])


@pytest.mark.parametrize("reason", ["NodeAffinity", "OutOfcpu"])
async def test_pod_with_a_node_that_the_tenant_chose_closes_no_node(arena: Arena, reason: str) -> None:
    await arena.node("n1", cpu="16")
    await arena.scheduler()
    tenant, other = await arena.tenant(), await arena.tenant()
    for number in range(2):
        await tenant.make(pod(f"chosen-{number}", cpu="1", nodeName=f"{arena.name}-n1"))
        await reject(arena, tenant, f"chosen-{number}", reason)
    assert await bound_after_cycles(arena, tenant, "own")
    assert await bound_after_cycles(arena, other, "victim")
    await arena.unharmed()


async def test_mark_that_is_copied_to_a_pod_with_a_chosen_node_closes_no_node(arena: Arena) -> None:
    await arena.node("n1", cpu="16")
    first = await arena.scheduler()
    tenant, other = await arena.tenant(), await arena.tenant()
    await tenant.pod("bound")
    await tenant.until_bound("bound")
    copy = await tenant.copied("bound", "chosen")
    assert "phalanx.dev/bound" in copy["metadata"]["annotations"]
    await first.kill()
    await tenant.make({**copy, "spec": {**copy["spec"], "nodeName": f"{arena.name}-n1"}})
    await reject(arena, tenant, "chosen", "OutOfcpu")
    await arena.scheduler()
    assert await bound_after_cycles(arena, tenant, "own")
    assert await bound_after_cycles(arena, other, "victim")
    await arena.unharmed()


@pytest.mark.parametrize("reason", ["TopologyAffinityError", "OutOfcpu", "OutOfpods"])
async def test_rejected_pods_of_one_namespace_close_the_node_to_this_namespace_only(
    arena: Arena, reason: str
) -> None:
    await arena.node("n1", cpu="16")
    await arena.scheduler()
    tenant, other = await arena.tenant(), await arena.tenant()
    names = [f"rejected-{number}" for number in range(3)]
    await tenant.pods(*names)
    await tenant.until_bound(*names)
    for name in names:
        await reject(arena, tenant, name, reason)
    assert not await bound_after_cycles(arena, tenant, "own")
    assert await bound_after_cycles(arena, other, "victim")
    await arena.unharmed()


async def test_node_stays_closed_to_the_rejected_pods_after_a_restart(arena: Arena) -> None:
    await arena.node("n1", cpu="16")
    first = await arena.scheduler()
    tenant, other = await arena.tenant(), await arena.tenant()
    await tenant.pod("rejected")
    await tenant.until_bound("rejected")
    await reject(arena, tenant, "rejected", "TopologyAffinityError")
    assert not await bound_after_cycles(arena, tenant, "own")
    await first.kill()
    await arena.scheduler()
    assert not await bound_after_cycles(arena, tenant, "next")
    assert not (await tenant.placement())["own"]
    assert await bound_after_cycles(arena, other, "victim")
    await arena.unharmed()


async def test_rejection_while_no_scheduler_runs_closes_the_node(arena: Arena) -> None:
    await arena.node("n1", cpu="16")
    first = await arena.scheduler()
    tenant = await arena.tenant()
    await tenant.pod("rejected")
    await tenant.until_bound("rejected")
    await first.kill()
    await reject(arena, tenant, "rejected", "UnexpectedAdmissionError")
    await arena.scheduler()
    assert not await bound_after_cycles(arena, tenant, "own")
    await arena.unharmed()


async def test_commands_know_the_nodes_that_are_closed_to_a_pod(arena: Arena) -> None:
    await arena.node("n1", cpu="16")
    await arena.scheduler()
    tenant = await arena.tenant()
    await tenant.pod("rejected")
    await tenant.until_bound("rejected")
    await reject(arena, tenant, "rejected", "TopologyAffinityError")
    assert not await bound_after_cycles(arena, tenant, "own")
    why = await run_command(arena, "why", "pod/own", "-n", tenant.namespace)
    assert "1 node(s) rejected a pod recently (TopologyAffinityError)" in why
    reasons = await run_command(arena, "nodes", "-R")
    closed = (
        f"RejectedPods: TopologyAffinityError, closed to pods of one kind of namespace {tenant.namespace} until"
    )
    assert closed in " ".join(reasons.split())
    starts = await run_command(arena, "jobs", "--start", "-n", tenant.namespace)
    assert re.search(r"own .* planned in (30|2\d) s", starts)

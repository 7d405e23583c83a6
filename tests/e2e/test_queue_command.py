"""`phalanx queue` and `phalanx quota` as child processes against a server."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from typing import Any

import pytest

from phalanx.daemon.controllers.usage_record import DATA_KEY, encode
from phalanx.model.account import AccountKey, Tree
from phalanx.scheduling.quota.usage_history import AccountUsage
from tests.e2e.processes import Process, command
from tests.e2e.test_accounts import QUEUE, QUEUE_NAME, QUOTA, made
from tests.e2e.world import PODS, World

# A window that began in 1970 and ends after us.
BUDGET = '{"window": "1000000h", "hours": {"cpu": "1m"}}'
WINDOW = 0

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


async def ask(world: World, *arguments: str) -> tuple[int, str]:
    return await command(*arguments, "--kubeconfig", world.cluster.kubeconfig)


async def filled(world: World) -> str:
    """A queue with a pod that runs and one that lacks room; its name. No scheduler is there."""
    name = f"{world.name}-q"
    node = (await world.node("n1", cpu="2"))["metadata"]["name"]
    await world.make(made(QUEUE, name, weight=3))
    await world.make(made(QUOTA, "quota", min={"cpu": 1}, max={"cpu": 4}))
    annotations = {QUEUE_NAME: name}
    await world.pod("runs", cpu="1500m", annotations=annotations, nodeName=node)
    await world.phase("Running", "runs")
    await world.pod("waits", cpu="1", annotations=annotations)
    return name


async def test_queue_is_printed_as_json(world: World) -> None:
    name = await filled(world)
    code, output = await ask(world, "queue", "list", "-o", "json")
    assert code == 0, output
    queues: dict[str, Any] = {entry["name"]: entry for entry in json.loads(output)["queues"]}
    assert queues[name]["weight"] == 3
    assert queues[name]["used"]["cpu"] == "1500m"
    assert queues[name]["pending"]["cpu"] == "1"
    assert queues[name]["first"]["name"] == f"pod {world.namespace}/waits"


async def test_a_queue_is_described(world: World) -> None:
    name = await filled(world)
    code, output = await ask(world, "queue", "describe", name)
    assert code == 0, output
    assert f"Name:            {name}" in output
    assert f"First waiting: pod {world.namespace}/waits (" in output


async def test_a_quota_is_found_by_its_namespace(world: World) -> None:
    await filled(world)
    code, output = await ask(world, "quota", "describe", world.namespace)
    assert code == 0, output
    assert "Borrows 500m cpu" in output


@pytest.mark.slow_but_first
@pytest.mark.parametrize("command", ["queue", "quota"])
async def test_missing_queue_is_named_and_exits_with_1(world: World, command: str) -> None:
    code, output = await ask(world, command, "describe", "nowhere")
    assert code == 1
    assert f"no {command} 'nowhere'" in output


@pytest.mark.slow
async def test_watch_prints_changes_and_exits_cleanly_on_ctrl_c(world: World) -> None:
    name = await filled(world)
    kubeconfig = world.cluster.kubeconfig
    process = await Process.start("queue", "list", "-w", "--interval", "0.5", "--kubeconfig", kubeconfig)
    await process.says("NAME")
    await world.delete(PODS, "waits")
    await process.says("NAME", times=2)
    await asyncio.sleep(1.2)
    assert process.count("NAME") == 2, process.output
    rows = [line.split() for line in process.lines if line.startswith(name)]
    assert [row[-1] for row in rows] != [rows[0][-1]] * 2
    assert await process.end(signal.SIGINT) == 0


@pytest.mark.slow
async def test_past_usage_counts_in_the_dry_run(world: World) -> None:
    name = f"{world.name}-spent"
    await world.node("n1")
    budget = {"metadata": {"name": name, "annotations": {"phalanx.dev/budget": BUDGET}}}
    await world.make({**made(QUEUE, name, weight=1), **budget})
    await world.pod("late", annotations={QUEUE_NAME: name})
    used = AccountUsage(AccountKey(Tree.QUEUE, name), int(time.time() * 1000), window=WINDOW, spent={"cpu": 2**40})
    await world.make(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "phalanx-usage-0"},
            "data": {DATA_KEY: encode([used])},
        }
    )
    for words in (["queue", "describe", name], ["why", "pod/late", "-n", world.namespace]):
        code, output = await ask(world, *words, "--lease-namespace", world.namespace)
        assert code == 0, output
        assert "BudgetSpent" in output

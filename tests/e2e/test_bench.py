"""`phalanx bench` as a child process: it measures a scheduler that runs, and leaves nothing behind."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from phalanx.cli.bench.objects import LABEL, NAMESPACES
from tests.e2e.processes import Process
from tests.e2e.world import NODES, World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(loop_scope="session")
async def scheduler(world: World) -> AsyncIterator[str]:
    name = f"{world.name}-measured"
    process = await Process.start("scheduler", "--kubeconfig", world.cluster.kubeconfig, "--scheduler-name", name)
    await process.says("ready")
    yield name
    await process.end()


@pytest.mark.parametrize("mode", ["backlog", "live"])
async def test_it_measures_and_cleans_up(world: World, scheduler: str, mode: str) -> None:
    size = ["--pods", "42", "--gang", "4", "--nodes", "2"]
    process = await Process.start(
        *("bench", mode, *size, "--scheduler-name", scheduler, "-o", "json"),
        *("--kubeconfig", world.cluster.kubeconfig),
    )
    assert await process.ends() == 0, process.output
    answer = json.loads(process.output)
    # Whole gangs only.
    assert answer["scheduler"]["pods"] == answer["bare"]["pods"] == 40
    assert answer["scheduler"]["bindings_per_second"] > 0
    assert answer["ratio"] == pytest.approx(
        answer["scheduler"]["bindings_per_second"] / answer["bare"]["bindings_per_second"]
    )
    assert min(answer[who]["created_per_second"] for who in ("scheduler", "bare")) > 0
    assert (answer["scheduler"]["p99_milliseconds"] > 0) == (mode == "live")
    for resource in (NODES, NAMESPACES):
        left = (await world.client.get(resource.path(), {"labelSelector": LABEL}))["items"]
        assert [each["metadata"]["name"] for each in left if not each["metadata"].get("deletionTimestamp")] == []


async def test_what_does_not_fit_is_refused_before_anything_is_made(world: World) -> None:
    process = await Process.start(
        *("bench", "live", "--pods", "1000", "--nodes", "2", "--kubeconfig", world.cluster.kubeconfig)
    )
    assert await process.ends() == 2
    assert "1000 pods do not fit on 2 nodes of 64: take at least --nodes 16" in process.output

"""The accounts of a live cluster: gangs of two dialects are recorded once each, also over restarts of the
recorder.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.e2e.processes import Process
from tests.e2e.world import PODS, World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

VOLCANO = "scheduling.k8s.io/group-name"
LABELS = {"pod-group/name": "labelled", "pod-group/min-available": "2"}
GROUP = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: declared}
spec: {minMember: 2, queue: default}
"""


class Accounts:
    """The command on a file of its own, with its output."""

    def __init__(self, world: World, database: Path) -> None:
        self.world = world
        self.database = database
        self.processes: list[Process] = []

    async def start(self, *, wait: bool = True) -> Process:
        kubeconfig = self.world.cluster.kubeconfig
        made = await Process.start("accounting", "run", "--kubeconfig", kubeconfig, "--database", self.database)
        self.processes.append(made)
        if wait:
            await made.says("phalanx accounting ready")
        return made

    async def history(self, *arguments: str) -> list[dict[str, Any]]:
        text = await self.says("history", "-n", self.world.namespace, "-S", "yesterday", "-o", "json", *arguments)
        found: list[dict[str, Any]] = json.loads(text)
        return found

    async def says(self, *arguments: str) -> str:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "phalanx.cli", *arguments, "--database", str(self.database)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await child.communicate()
        assert child.returncode == 0, errors.decode()
        return output.decode()

    async def until(self, **states: str) -> dict[str, dict[str, Any]]:
        """Wait until these runs are in these states."""

        async def told() -> dict[str, dict[str, Any]]:
            runs = {each["name"]: each for each in await self.history()}
            return runs if {name: runs[name]["state"] for name in states if name in runs} == states else {}

        found: dict[str, dict[str, Any]] = await self.world.until(told, f"the runs are {states}", 60)
        return found


@pytest_asyncio.fixture(loop_scope="session")
async def accounts(world: World, tmp_path: Path) -> AsyncIterator[Accounts]:
    made = Accounts(world, tmp_path / "accounts.db")
    try:
        yield made
    finally:
        for process in made.processes:
            if process.child.returncode is None:
                await process.end(signal.SIGKILL)


async def test_gangs_of_two_dialects_are_there_once_although_the_recorder_was_killed(
    world: World, accounts: Accounts
) -> None:
    recorder = await accounts.start()
    await world.scheduler()
    await world.node("n")
    await world.pods("l0", "l1", labels=LABELS, cpu="1")
    await world.until_bound("l0", "l1")
    await world.phase("Running", "l0", "l1")
    runs = await accounts.until(labelled="RUNNING")
    assert runs["labelled"]["members"] == 2

    await recorder.end(signal.SIGKILL)
    # While the recorder is down, one gang ends and remains in the API; the other arrives and runs.
    await world.phase("Succeeded", "l0", "l1")
    await world.apply(GROUP)
    await world.pods("d0", "d1", annotations={VOLCANO: "declared"}, cpu="2")
    await world.until_bound("d0", "d1")
    await world.phase("Running", "d0", "d1")

    recorder = await accounts.start()
    await accounts.until(labelled="COMPLETED", declared="RUNNING")
    await world.phase("Failed", "d0")
    await world.delete(PODS, "d1")
    await world.delete(PODS, "l0", "l1")
    runs = await accounts.until(labelled="COMPLETED", declared="FAILED")
    assert await recorder.end() == 0

    # Once more, with nothing new: nothing is counted again.
    async def reported() -> list[dict[str, Any]]:
        """Return the report on this test's namespace: gangs of other tests still run."""
        text = await accounts.says("report", "--json", "--by", "queue,namespace")
        lines: list[dict[str, Any]] = json.loads(text)["lines"]
        return [line for line in lines if line["namespace"] == world.namespace]

    async def both_ended() -> bool:
        """A report ends before the present second."""
        return sum(int(line["ended"]) for line in await reported()) == 2

    await world.until(both_ended, "both gangs have ended in the report")
    before = await reported()
    recorder = await accounts.start()
    assert await recorder.end() == 0
    assert {each["name"]: each for each in await accounts.history()} == runs
    assert len(await accounts.history()) == 2
    assert await reported() == before

    assert runs["declared"]["kind"] == "PodGroup.scheduling.volcano.sh"
    assert [runs[name]["members"] for name in ("labelled", "declared")] == [2, 2]
    used = runs["declared"]["used"]["cpu"]
    assert used > 0
    assert used % 2000 == 0
    table = await accounts.says("history", "-n", world.namespace, "-S", "yesterday", "-s", "F,CD")
    assert [line.split()[0] for line in table.splitlines()] == ["GANG", "labelled", "declared"]


async def test_no_pod_is_lost_or_counted_twice_however_often_the_recorder_is_killed(
    world: World, accounts: Accounts
) -> None:
    chance = random.Random(7)
    names = [f"p{number:02}" for number in range(24)]

    async def lead_lives() -> None:
        """Create each pod, assign its node and end it; finished pods remain in the API."""
        for name in names:
            await world.pod(
                name, cpu="100m", labels={"pod-group/name": f"g-{name}", "pod-group/min-available": "1"}
            )
            await world.until_bound(name)
            await world.phase("Running", name)
            await world.phase("Succeeded", name)

    await world.scheduler()
    await world.node("n")
    living = asyncio.create_task(lead_lives())
    for _ in range(5):
        recorder = await accounts.start(wait=False)
        # Python and its libraries take a while to start; then it is in the midst of its work.
        await asyncio.sleep(chance.uniform(0.5, 6.0))
        await recorder.end(signal.SIGKILL)
    await living
    recorder = await accounts.start()
    assert await recorder.end() == 0
    runs = await accounts.history()
    assert sorted(each["name"] for each in runs) == [f"g-{name}" for name in names]
    assert {(each["state"], each["members"]) for each in runs} == {("COMPLETED", 1)}

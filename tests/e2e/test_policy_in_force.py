"""Commands use the policy of the running scheduler without an option."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.kube.core_resources import CONFIG_MAPS
from tests.e2e.test_job_command import run
from tests.e2e.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

POLICY = """
actions: "allocate, defragment"
configurations: [{name: defragment, arguments: {schedule: FREQ=DAILY, duration: 24h, maxEvictionsPerHour: %d}}]
"""


async def schedule(world: World) -> tuple[int, str]:
    return await run(world, "defrag", "--schedule", "--lease-namespace", world.namespace)


async def test_a_command_needs_no_file(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phalanx.daemon.policy_file._PERIOD", 0.1)
    code, output = await schedule(world)
    assert (code, "the policy has no action defragment" in output) == (1, True), output

    file = tmp_path / "policy.yaml"
    file.write_text(POLICY % 5)
    scheduler = await world.scheduler(config=str(file), lease_namespace=world.namespace)

    async def told(number: int) -> bool:
        code, output = await schedule(world)
        return code == 0 and f"{number}" in output

    await world.until(lambda: told(5), "the policy of the scheduler is known")
    file.write_text(POLICY % 7)
    await world.until(lambda: told(7), "so is the one that took its place")
    assert scheduler.without_right() == []

    await world.settled(scheduler)
    before = [each["metadata"]["resourceVersion"] for each in await world.list(CONFIG_MAPS)]
    await scheduler.stop()
    again = await world.scheduler(config=str(file), lease_namespace=world.namespace)
    await world.settled(again)
    assert [each["metadata"]["resourceVersion"] for each in await world.list(CONFIG_MAPS)] == before


async def test_commands_are_about_all_names_that_the_scheduler_serves(world: World) -> None:
    """After it took over the name of another one."""
    await world.node("n1")
    await world.pod("large", cpu="500", scheduler="volcano")
    why = ("why", "pod/large", "--lease-namespace", world.namespace)
    _, output = await run(world, *why)
    assert "OtherScheduler" in output
    scheduler = await world.scheduler(scheduler_names=("phalanx", "volcano"), lease_namespace=world.namespace)

    async def told() -> bool:
        code, output = await run(world, *why)
        return code == 0 and "Pending (NotEnoughResources)" in output

    await world.until(told, "the command knows the second name")
    _, output = await run(world, *why, "--scheduler-name", "phalanx")
    assert "OtherScheduler" in output
    assert scheduler.without_right() == []

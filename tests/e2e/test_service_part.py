"""A part of the scheduler process that is defined here and added to the registry by one line."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from phalanx.daemon.assembly.assemble import Assembly
from phalanx.daemon.assembly.registry import service_parts
from phalanx.daemon.service import SchedulerService
from phalanx.daemon.service_part import Runs, ServicePart
from phalanx.dialects.core import PodObject
from phalanx.kube.client import PatchType
from tests.e2e.test_leadership import LEASES, replica
from tests.e2e.world import PODS, World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


class Probe:
    """Records the calls of every hook, each run of equal calls once."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.calls: list[str] = []
        self.pods: list[str] = []

    def part(self) -> ServicePart:
        return ServicePart(
            "probe",
            self.runs,
            run=self.run,
            load=self.load,
            pod_seen=self.pod_seen,
            pod_gone=lambda uid: self.pods.append("gone"),
            check=lambda: self.record("check"),
            save=lambda last: self.record("last save" if last else "save"),
            lease_lost=lambda: self.record("lease lost"),
            drain=lambda: self.record("drain"),
        )

    def record(self, call: str) -> None:
        if self.calls[-1:] != [call]:
            self.calls.append(call)

    async def load(self) -> None:
        self.record("load")

    async def run(self) -> None:
        self.record("run")
        try:
            await asyncio.Event().wait()
        finally:
            self.record("cancelled")

    def pod_seen(self, pod: PodObject) -> None:
        if pod.metadata.name.startswith("probed"):
            self.pods.append(f"{pod.metadata.name} on {pod.spec.node_name.rpartition('-')[2]}")


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Probe:
    made = Probe(getattr(request, "param", Runs.LEADING))

    def registry(built: Assembly) -> list[ServicePart]:
        return [*service_parts(built), made.part()]

    monkeypatch.setattr("tests.e2e.world.SchedulerService", partial(SchedulerService, registry=registry))
    return made


async def play(world: World, probe: Probe) -> Any:
    """Let a leader with the probe bind a pod."""
    await world.node("n1")
    scheduler = await replica(world)
    await world.pods("probed")
    await world.until_bound("probed")

    async def checked() -> bool:
        return "check" in probe.calls and "probed on n1" in probe.pods

    await world.until(checked, "the probe has been called")
    return scheduler


async def test_part_sees_start_pod_and_drain(world: World, probe: Probe) -> None:
    scheduler = await play(world, probe)
    await world.delete(PODS, "probed")

    async def gone() -> bool:
        return probe.pods[-1] == "gone"

    await world.until(gone, "the probe sees that the pod is gone")
    await scheduler.stop()
    assert probe.pods[0] == "probed on "
    assert probe.calls[:2] == ["load", "run"]
    assert {"save", "check"} <= set(probe.calls[2:-3])
    assert probe.calls[-3:] == ["last save", "drain", "cancelled"]


async def test_part_sees_the_loss_of_the_lease_and_saves_no_more(world: World, probe: Probe) -> None:
    scheduler = await play(world, probe)
    for _ in range(50):
        # Another holder in the lease may be overwritten by a renewal that is under way.
        patch = {"spec": {"holderIdentity": "usurper", "leaseDurationSeconds": 3600}}
        await world.client.patch(LEASES.path(world.name, "turn"), patch, PatchType.MERGE)
        done, _ = await asyncio.wait([scheduler.task], timeout=0.1)
        if done:
            break
    await scheduler.task
    assert probe.calls[-3:] == ["lease lost", "drain", "cancelled"]
    assert "last save" not in probe.calls


@pytest.mark.parametrize("probe", [Runs.ALWAYS, Runs.STANDBY, Runs.AFTER_FIRST_PLAN], indirect=True)
async def test_part_runs_from_its_time_on(world: World, probe: Probe) -> None:
    scheduler = await play(world, probe)
    begun = [call for call in probe.calls if call in ("load", "run", "save")][:3]
    late = probe.runs is Runs.AFTER_FIRST_PLAN
    assert begun == (["load", "save", "run"] if late else ["run", "load", "save"])
    await scheduler.stop()
    assert probe.calls[-1] == "cancelled"


async def test_part_of_a_standby_sees_pods_and_loads_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await replica(world)
    made = Probe(Runs.STANDBY)
    registry = lambda built: [*service_parts(built), made.part()]  # noqa: E731 - one line in the assembly
    monkeypatch.setattr("tests.e2e.world.SchedulerService", partial(SchedulerService, registry=registry))
    second = await replica(world, wait=False)
    await world.pods("probed")

    async def seen() -> bool:
        return bool(made.pods)

    await world.until(seen, "the standby sees the pod")
    assert made.calls == ["run"]
    await second.stop()
    assert made.calls == ["run", "drain", "cancelled"]

"""Several replicas: one that lost the lease sends nothing, and one that releases it has finished its writes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.e2e.processes import Process
from tests.e2e.test_leadership import GANG, LEASES
from tests.e2e.world import PATIENCE, Running

from .conftest import Ends, Site
from .proxy import Proxy
from .scenario import Scenario
from .test_story import settle

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

NAMES = ("a", "b", "c")
# Seconds; nothing that runs out while a test holds bindings up.
PATIENT = {"lease_seconds": 600.0, "renew_seconds": 400.0, "drain_seconds": 600.0}


class Replica:
    """A scheduler with a way to the API server of its own."""

    def __init__(self, proxy: Proxy, running: Running) -> None:
        self.proxy = proxy
        self.running = running

    def writes_since(self, moment: float) -> list[str]:
        return [str(each) for each in self.proxy.seen("write") if each.at > moment]


Start = Callable[..., Awaitable[Replica]]


@pytest_asyncio.fixture(loop_scope="session")
async def start(site: Site, tmp_path: Path) -> AsyncIterator[Start]:
    proxies: list[Proxy] = []

    async def make(**options: Any) -> Replica:
        proxy = await way(site, proxies)
        kubeconfig = proxy.write_kubeconfig(tmp_path / f"kubeconfig-{len(proxies)}")
        site.world.cluster.kubeconfig = kubeconfig
        times = {"lease_seconds": 3.0, "renew_seconds": 2.0, "retry_seconds": 0.2, "drain_seconds": 2.0}
        running = await site.world.scheduler(
            wait=False,
            leader_elect=True,
            lease_namespace=site.world.name,
            **{"lease_name": "turn", **times, **options},
        )
        return Replica(proxy, running)

    yield make
    for scheduler in site.world.schedulers:
        await scheduler.kill()
    for proxy in proxies:
        await proxy.stop()


async def way(site: Site, proxies: list[Proxy]) -> Proxy:
    proxy = Proxy(site.world.server.url)
    await proxy.start()
    proxies.append(proxy)
    return proxy


async def pair(site: Site, start: Start, **options: Any) -> tuple[Replica, Replica]:
    """One that leads, and one that waits and knows the cluster."""
    first = await start(**options)
    await first.running.ready()
    return first, await standby(site, start, **options)


async def standby(site: Site, start: Start, **options: Any) -> Replica:
    made = await start(**options)
    service = made.running.service

    async def waits() -> bool:
        return service.condition() == "standby" and service.observer.complete

    await site.world.until(waits, "a replica waits for its turn, and knows the cluster")
    return made


async def waiting(site: Site, replica: Replica) -> Any:
    """Bindings of a gang that are on their way, and are held up."""
    hold = replica.proxy.hold("create", "pods/binding")
    await site.world.node("n1", cpu="3")
    await site.world.pods(*NAMES, labels=GANG)

    async def sent() -> bool:
        return hold.waiting == len(NAMES)

    await site.world.until(sent, "bindings are on their way")
    return hold


async def test_bindings_under_way_are_finished_before_the_lease_is_handed_over(site: Site, start: Start) -> None:
    first, second = await pair(site, start, **PATIENT)
    hold = await waiting(site, first)
    before = (await site.world.get(LEASES, "turn"))["spec"]["holderIdentity"]
    first.running.service.stop()
    looks = second.proxy.count("get", "leases")

    async def looked() -> bool:
        return second.proxy.count("get", "leases") >= looks + 3

    await site.world.until(looked, "the second replica tries to take the lease")
    assert not first.running.task.done()
    assert hold.waiting == len(NAMES)
    assert (await site.world.get(LEASES, "turn"))["spec"]["holderIdentity"] == before
    assert second.running.service.condition() == "standby"
    hold.release()
    await first.running.stop()
    lease = await site.world.get(LEASES, "turn")
    assert lease["spec"]["leaseDurationSeconds"] == 1 or lease["spec"]["leaseTransitions"] == 1
    await second.running.ready()
    assert set(await site.world.until_bound(*NAMES)) == {*NAMES}
    assert [each.asked.resource for each in first.proxy.seen("write")][-1] == "leases"
    assert second.proxy.count("create", "pods/binding") == 0
    assert not first.running.service.leadership.lost_because


@pytest.mark.slow
async def test_a_leader_that_cannot_renew_sends_nothing_after_its_successor_has_begun(
    site: Site, start: Start
) -> None:
    """Its bindings were sent in time and arrive late: they meet those of the successor, and change nothing."""
    first, second = await pair(site, start)
    hold = await waiting(site, first)
    first.proxy.hold("update", "leases")
    await second.running.ready()
    begun = asyncio.get_running_loop().time()
    await site.world.until_bound(*NAMES)
    placement = await site.world.placement()
    hold.release()
    await asyncio.wait_for(first.running.task, PATIENCE)
    assert first.running.service.leadership.lost_because

    async def answered() -> list[int]:
        late = [each.status for each in first.proxy.seen("create", "pods/binding")]
        return late if all(late) else []

    assert await site.world.until(answered, "the late bindings are answered") == [409, 409, 409]
    await asyncio.sleep(1)
    assert first.writes_since(begun) == []
    assert await site.world.placement() == placement
    assert not site.ledger.faults


@pytest.mark.slow
async def test_a_process_that_was_stopped_wakes_up_and_sends_nothing(
    site: Site, start: Start, tmp_path: Path
) -> None:
    """As a node that hangs, or a virtual machine that is moved: the lease has expired before the process
    continues.
    """
    proxy = await way(site, [])
    kubeconfig = proxy.write_kubeconfig(tmp_path / "kubeconfig-process")
    arguments = ("--kubeconfig", kubeconfig, "--leader-elect", "--lease-namespace", site.world.name)
    process = await Process.start("scheduler", *arguments)
    try:
        await process.says("phalanx scheduler ready")
        second = await start(
            lease_name="phalanx-scheduler", lease_seconds=15.0, renew_seconds=10.0, retry_seconds=2.0
        )
        process.child.send_signal(signal.SIGSTOP)
        await site.world.node("n1", cpu="3")
        await site.world.pods(*NAMES, labels=GANG)
        await site.world.until_bound(*NAMES, seconds=90)
        assert second.running.service.condition() == "scheduling"
        await site.world.pods("x", "y", labels={"pod-group/name": "h", "pod-group/min-available": "2"})
        woken = asyncio.get_running_loop().time()
        process.child.send_signal(signal.SIGCONT)
        assert await process.ends() == 1
        assert "the lease was lost to another replica" in process.output
        assert [str(each) for each in proxy.seen("write") if each.at > woken] == []
        assert not site.ledger.faults
    finally:
        await process.end(signal.SIGKILL)
        await proxy.stop()


@pytest.mark.slow
@pytest.mark.parametrize("orderly", [True, False], ids=["rolling upgrade", "killed"])
async def test_replicas_that_start_and_stop_schedule_all_gangs(
    site: Site, start: Start, ends: Ends, orderly: bool
) -> None:
    """Each leader leads longer than the one before: on any machine one leader has time for delayed writes, such
    as the PodGroup of a gang. In a rolling upgrade no lease expires, as its holder releases it.
    """
    await ends.known(site.world)
    leader, others, holders = await start(), [], set[str]()
    await leader.running.ready()

    async def replace() -> None:
        nonlocal leader
        seconds = 0.2
        while True:
            successor = await standby(site, start)
            before = (await site.world.get(LEASES, "turn"))["spec"]["holderIdentity"]
            if orderly:
                await leader.running.stop()
                after = (await site.world.get(LEASES, "turn"))["spec"]["holderIdentity"]
                assert after != before
            else:
                await leader.running.kill()
            holders.add(before)
            others.append(leader)
            await successor.running.ready()
            leader = successor
            await asyncio.sleep(seconds)
            seconds *= 1.5

    replacing = asyncio.create_task(replace())
    async with Scenario(site.world) as story:
        await story.play()
        while len(holders) < 4:  # noqa: ASYNC110 - the end of the story need not be that of the upgrades
            await asyncio.sleep(0.05)
        replacing.cancel()
        await asyncio.gather(replacing, return_exceptions=True)
        await settle(site, story, ends, [leader.proxy, *(each.proxy for each in others)])

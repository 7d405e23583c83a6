"""The story is lived under each fault: its end is always that of the quiet one, and on the way nothing is wrong."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from phalanx.kube.reflector import Reflector

from .conftest import Ends, Site
from .fault import ALWAYS, Fault, Watch, mixture, seeds
from .proxy import Proxy
from .scenario import Scenario

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(240)]

QUIET = 1.5
# How long the end may need once nothing happens any more: the longest pauses between two tries.
PATIENCE = 40.0
# Written while nothing changes, and meant so.
BEATS = ("leases", "phalanx-usage")

REQUESTS: dict[str, Sequence[Fault]] = {
    "all is slow": [Fault(times=ALWAYS, latency=0.05)],
    "bindings conflict": [Fault("create", "pods/binding", probability=0.5, times=12, status=409)],
    "writes conflict": [Fault("write", probability=0.3, times=40, status=409)],
    "too many requests": [Fault(probability=0.1, times=20, status=429, retry_after=1)],
    "writes fail": [Fault("write", probability=0.3, times=40, status=500)],
    "writes succeed and are said to fail": [Fault("write", probability=0.3, times=40, status=500, after=True)],
    "nothing is available": [Fault(probability=0.2, times=40, status=503)],
    "timeouts": [Fault("write", probability=0.2, times=40, status=504, after=True)],
    "connections are cut": [Fault(probability=0.2, times=40, drop=True)],
    "answers are lost": [Fault("write", probability=0.4, times=60, drop=True, after=True)],
    "answers to bindings are lost": [Fault("create", "pods/binding", times=ALWAYS, drop=True, after=True)],
    "lists have expired": [Fault("list", probability=0.5, times=20, status=410)],
    "resumed watches have expired": [
        Fault("watch", times=ALWAYS, watch=Watch.CLOSED, lines=30),
        Fault("watch", probability=0.5, times=40, status=410),
    ],
}
WATCHES: dict[str, Sequence[Fault]] = {
    harm.value: [Fault("watch", times=60, watch=harm, lines=30)] for harm in Watch if harm is not Watch.SILENT
}

# After this number the pauses between two lists grow: no server restarts every other second.
_TIMES = 4
Trouble = Callable[[Site], Awaitable[None]]


async def resets(site: Site) -> None:
    site.proxy.strike_watches(Watch.RESET)


async def compaction(site: Site) -> None:
    site.world.server.faults.expire_history()
    site.proxy.strike_watches(Watch.RESET)


async def expiry_in_the_stream(site: Site) -> None:
    site.world.server.faults.expire_history()
    site.proxy.strike_watches(Watch.GONE)


async def restart_of_the_server(site: Site) -> None:
    with site.proxy.outage():
        await asyncio.sleep(0.3)


async def restart_with_another_history(site: Site) -> None:
    with site.proxy.outage():
        site.world.server.faults.expire_history()
        await asyncio.sleep(0.3)


TROUBLES: dict[str, Trouble] = {
    each.__name__.replace("_", " "): each
    for each in (resets, compaction, expiry_in_the_stream, restart_of_the_server, restart_with_another_history)
}


@contextlib.asynccontextmanager
async def again_and_again(site: Site, trouble: Trouble, period: float) -> AsyncIterator[None]:
    async def go_on() -> None:
        for _ in range(_TIMES):
            await asyncio.sleep(period)
            await trouble(site)

    task = asyncio.create_task(go_on())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def settle(site: Site, story: Scenario, ends: Ends, proxies: Sequence[Proxy] = ()) -> None:
    """Nothing happens any more: the end is reached, and then nothing is written. `proxies` are those in use, if
    not the site's."""
    proxies = proxies or (site.proxy,)
    site.proxy.heal()
    seen, loop = -1, asyncio.get_running_loop()
    end: list[str] = []
    since = loop.time()
    deadline = since + PATIENCE
    while loop.time() < deadline and (loop.time() - since < QUIET or end != (ends.quiet or end)):
        await asyncio.sleep(0.1)
        end = await story.end()
        writes = written(proxies)
        if len(writes) != seen:
            seen, since = len(writes), loop.time()
    assert loop.time() - since >= QUIET, f"writes do not end: {written(proxies)[-5:]}"
    ends.quiet = ends.quiet or end
    further, missing = sorted({*end} - {*ends.quiet}), sorted({*ends.quiet} - {*end})
    assert further == missing, "\n".join(("another end; further:", *further, "missing:", *missing))
    assert end == ends.quiet
    assert not await story.parts()
    assert not site.ledger.faults
    assert not sent_to_two_nodes(proxies)


def written(proxies: Sequence[Proxy]) -> list[str]:
    lines = [str(each) for proxy in proxies for each in proxy.seen("write")]
    return [line for line in lines if not any(beat in line for beat in BEATS)]


def sent_to_two_nodes(proxies: Sequence[Proxy]) -> list[str]:
    """Pods for which a binding to another node was sent although the one before may have taken effect."""
    open_at: dict[str, str] = {}
    found = []
    all_bindings = [each for proxy in proxies for each in proxy.seen("create", "pods/binding")]
    for exchange in sorted(all_bindings, key=lambda each: each.at):
        body = exchange.binding()
        uid, node = body["metadata"]["uid"], body["target"]["name"]
        if open_at.get(uid, node) != node:
            found.append(f"{exchange.asked.name} was sent to {open_at[uid]} and then to {node}")
        if 200 <= exchange.status < 300:
            open_at[uid] = node
    return found


async def live(site: Site, ends: Ends, faults: Sequence[Fault] = (), trouble: Trouble | None = None) -> None:
    if faults or trouble:
        await ends.known(site.world)
    site.proxy.add(*faults)
    await site.world.scheduler(wait=False)
    async with Scenario(site.world) as story:
        if trouble is not None:
            async with again_and_again(site, trouble, 1.5):
                await story.play()
        else:
            await story.play()
        await settle(site, story, ends)
    assert not faults or sum(fault.struck for fault in faults) >= 3


async def test_when_nothing_happens(site: Site, ends: Ends) -> None:
    await live(site, ends)


@pytest.mark.slow
async def test_a_little_of_everything(site: Site, ends: Ends) -> None:
    site.proxy.seed(100)
    await live(site, ends, mixture(0.02))


@pytest.mark.slow
@pytest.mark.parametrize("fault", REQUESTS)
async def test_requests(site: Site, ends: Ends, fault: str) -> None:
    await live(site, ends, REQUESTS[fault])


@pytest.mark.slow
@pytest.mark.parametrize("fault", WATCHES)
async def test_watches(site: Site, ends: Ends, fault: str) -> None:
    await live(site, ends, WATCHES[fault])


@pytest.mark.slow
@pytest.mark.parametrize("trouble", TROUBLES)
async def test_again_and_again(site: Site, ends: Ends, trouble: str) -> None:
    await live(site, ends, trouble=TROUBLES[trouble])


@pytest.mark.slow
async def test_half_open_watches(site: Site, ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are noticed by their silence; two seconds of it here."""
    defaults = Reflector.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "silence", 2.0)
    await live(site, ends, [Fault("watch", "pods", times=3, watch=Watch.SILENT, lines=20)])


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(10))
async def test_more_of_everything(site: Site, ends: Ends, seed: int) -> None:
    site.proxy.seed(seed)
    await live(site, ends, mixture(0.03))

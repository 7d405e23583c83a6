"""The write pool: urgent writes first, bounded concurrency, pauses that block no other write."""

from __future__ import annotations

import asyncio
import logging

import pytest

from phalanx.execution.writes import Job, PooledClient, Urgency, WritePool
from phalanx.kube.client import PatchType
from phalanx.kube.errors import ApiError
from tests.execution.podserver import PodServer


def job(log: list[str], name: str) -> Job:
    async def run() -> None:
        log.append(name)

    return run


async def test_urgent_writes_are_first_and_equal_ones_in_order() -> None:
    pool, done = WritePool(concurrency=1), list[str]()
    pool.submit(Urgency.STATUS, job(done, "status 1"))
    pool.submit(Urgency.DELETE, job(done, "delete"))
    pool.submit(Urgency.BIND, job(done, "bind 1"))
    pool.submit(Urgency.STATUS, job(done, "status 2"))
    pool.submit(Urgency.BIND, job(done, "bind 2"))
    await pool.drained()
    assert done == ["bind 1", "bind 2", "delete", "status 1", "status 2"]


async def test_binding_overtakes_waiting_events() -> None:
    pool, done, first = WritePool(concurrency=1), list[str](), asyncio.Event()

    async def slow() -> None:
        await first.wait()

    pool.submit(Urgency.STATUS, slow)
    await asyncio.sleep(0)
    for number in range(3):
        pool.submit(Urgency.STATUS, job(done, f"status {number}"))
    pool.submit(Urgency.BIND, job(done, "bind"))
    first.set()
    await pool.drained()
    assert done[0] == "bind"


@pytest.mark.parametrize("limit", [1, 3, 8])
async def test_concurrent_writes_stay_within_the_limit(limit: int) -> None:
    pool = WritePool(concurrency=limit)
    running, most = 0, 0

    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1

    for _ in range(30):
        pool.submit(Urgency.BIND, work)
    await pool.drained()
    assert most == limit


async def test_pausing_job_releases_its_worker() -> None:
    pool, done = WritePool(concurrency=1), list[str]()
    tries = 0

    async def patient() -> float | None:
        nonlocal tries
        tries += 1
        done.append(f"try {tries}")
        return 0.02 if tries < 3 else None

    pool.submit(Urgency.BIND, patient)
    pool.submit(Urgency.BIND, job(done, "other"))
    await pool.drained()
    assert done == ["try 1", "other", "try 2", "try 3"]
    assert len(pool) == 0


async def test_pool_is_not_drained_while_a_job_pauses() -> None:
    pool, tries = WritePool(), 0

    async def patient() -> float | None:
        nonlocal tries
        tries += 1
        return 0.05 if tries == 1 else None

    pool.submit(Urgency.BIND, patient)
    await asyncio.sleep(0.01)
    assert len(pool) == 1
    await pool.drained()
    assert tries == 2


async def test_job_that_raises_is_logged_and_affects_no_other(caplog: pytest.LogCaptureFixture) -> None:
    pool, done = WritePool(concurrency=1), list[str]()

    async def broken() -> None:
        raise ValueError("nobody expected this")

    with caplog.at_level(logging.ERROR):
        pool.submit(Urgency.BIND, broken)
        pool.submit(Urgency.BIND, job(done, "next"))
        await pool.drained()
    assert done == ["next"]
    assert "nobody expected this" in caplog.text


async def test_job_submitted_as_the_last_worker_ends_is_done() -> None:
    pool, done = WritePool(concurrency=1), list[str]()
    for number in range(50):
        pool.submit(Urgency.BIND, job(done, f"job {number}"))
        for _ in range(number % 5):
            await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await pool.drained()
    assert len(done) == 50


async def test_close_drops_waiting_jobs_and_ends_running_ones() -> None:
    pool, done = WritePool(concurrency=2), list[str]()

    async def endless() -> None:
        await asyncio.Event().wait()

    async def patient() -> float | None:
        done.append("try")
        return 60.0

    pool.submit(Urgency.BIND, patient)
    pool.submit(Urgency.BIND, endless)
    pool.submit(Urgency.BIND, endless)
    pool.submit(Urgency.BIND, job(done, "never"))
    await asyncio.sleep(0.01)
    assert len(pool) == 4
    await pool.close()
    assert len(pool) == 0
    assert done == ["try"]
    async with asyncio.timeout(5):
        await pool.drained()


async def test_last_round_does_not_wait_for_pausing_jobs() -> None:
    pool, done = WritePool(concurrency=1), list[str]()

    def patient(name: str) -> Job:
        async def run() -> float | None:
            done.append(name)
            return 60.0

        return run

    pool.submit(Urgency.BIND, patient("paused before"))
    await asyncio.sleep(0.01)
    pool.submit(Urgency.BIND, patient("would pause"))
    pool.submit(Urgency.STATUS, job(done, "status"))
    async with asyncio.timeout(5):
        await pool.finish()
    assert done == ["paused before", "would pause", "status"]
    assert (len(pool), pool.dropped) == (0, 2)


async def test_no_write_is_sent_once_writing_is_forbidden() -> None:
    leader = True
    pool, done = WritePool(concurrency=1, may_write=lambda: leader), list[str]()

    async def losing() -> None:
        nonlocal leader
        done.append("last")
        leader = False

    pool.submit(Urgency.BIND, losing)
    pool.submit(Urgency.BIND, job(done, "too late"))
    await pool.drained()
    assert done == ["last"]
    assert pool.dropped == 1


async def test_events_wait_for_bindings_and_report_their_results() -> None:
    server = PodServer()
    server.add("p")
    pool, done, first = WritePool(concurrency=1), list[str](), asyncio.Event()

    async def slow() -> None:
        await first.wait()

    pool.submit(Urgency.BIND, slow)
    await asyncio.sleep(0)
    news = PooledClient(server.client(), pool, Urgency.EVENT)
    told = asyncio.create_task(news.create("/api/v1/namespaces/ns/pods/p/binding", BINDING))
    refused = asyncio.create_task(news.patch("/api/v1/namespaces/ns/pods/nobody", {}, PatchType.MERGE))
    await asyncio.sleep(0)
    server.before = lambda call: done.append("event")
    pool.submit(Urgency.BIND, job(done, "bind"))
    first.set()
    assert (await told)["status"] == "Success"
    with pytest.raises(ApiError, match="404"):
        await refused
    assert done == ["bind", "event", "event"]


BINDING = {"metadata": {"uid": "uid-p"}, "target": {"name": "n1"}}


class BusyServer:
    """Server that accepts a number of writes at a time, and answers 429 to further ones."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.running, self.refused, self.most = capacity, 0, 0, 0

    def write(self, pool: WritePool) -> Job:
        async def run() -> float | None:
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                if self.running > self.capacity:
                    self.refused += 1
                    pool.slow_down(None)
                    return 0.001
                await asyncio.sleep(0.0005)
                return None
            finally:
                self.running -= 1

        return run


async def test_busy_server_gets_fewer_writes_until_it_accepts_them() -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1.1  # each answer belongs to a write sent after the last decrease
        return now

    pool, server = WritePool(concurrency=64, clock=clock), BusyServer(10)
    for _ in range(64):
        pool.submit(Urgency.BIND, server.write(pool))
    await pool.drained()
    assert pool.window < 64
    assert server.refused
    # The limit converges to the server's capacity, and probes above it now and then.
    server.refused = server.most = 0
    for _ in range(400):
        pool.submit(Urgency.BIND, server.write(pool))
    await pool.drained()
    assert server.most <= 20
    assert server.refused < 60


async def test_rejections_of_one_moment_slow_down_once_and_not_below_the_minimum() -> None:
    now = 0.0
    pool = WritePool(concurrency=64, clock=lambda: now)
    for _ in range(50):
        pool.slow_down(5.0)
    assert pool.window == 32
    for _ in range(50):
        now += 5.0
        pool.slow_down(5.0)
    assert pool.window == 4


async def test_recovered_server_gets_as_many_writes_as_before() -> None:
    pool, done = WritePool(concurrency=16), list[str]()
    pool.slow_down()
    assert pool.window == 8
    for number in range(200):
        pool.submit(Urgency.BIND, job(done, str(number)))
    await pool.drained()
    assert len(done) == 200
    assert pool.window == 16

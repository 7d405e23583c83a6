"""The pool of writes: the urgent first, a bounded number at a time, pauses that hold nobody up."""

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


async def test_what_is_urgent_goes_first_and_equals_go_in_order() -> None:
    pool, done = WritePool(concurrency=1), list[str]()
    pool.submit(Urgency.STATUS, job(done, "status 1"))
    pool.submit(Urgency.DELETE, job(done, "delete"))
    pool.submit(Urgency.BIND, job(done, "bind 1"))
    pool.submit(Urgency.STATUS, job(done, "status 2"))
    pool.submit(Urgency.BIND, job(done, "bind 2"))
    await pool.drained()
    assert done == ["bind 1", "bind 2", "delete", "status 1", "status 2"]


async def test_a_binding_overtakes_news_that_wait() -> None:
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
async def test_no_more_run_at_a_time_than_allowed(limit: int) -> None:
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


async def test_a_job_that_waits_gives_its_place_back() -> None:
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


async def test_it_is_not_drained_while_a_job_pauses() -> None:
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


async def test_a_job_that_raises_is_logged_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    pool, done = WritePool(concurrency=1), list[str]()

    async def broken() -> None:
        raise ValueError("nobody expected this")

    with caplog.at_level(logging.ERROR):
        pool.submit(Urgency.BIND, broken)
        pool.submit(Urgency.BIND, job(done, "next"))
        await pool.drained()
    assert done == ["next"]
    assert "nobody expected this" in caplog.text


async def test_a_job_submitted_the_moment_the_last_worker_ends_is_done() -> None:
    pool, done = WritePool(concurrency=1), list[str]()
    for number in range(50):
        pool.submit(Urgency.BIND, job(done, f"job {number}"))
        for _ in range(number % 5):
            await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await pool.drained()
    assert len(done) == 50


async def test_closing_drops_what_waits_and_ends_what_runs() -> None:
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


async def test_the_last_round_waits_for_nobody_who_pauses() -> None:
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


async def test_nothing_is_written_once_writing_is_forbidden() -> None:
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


async def test_events_wait_for_bindings_and_hand_on_what_became_of_them() -> None:
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
    """Takes so many writes at a time, and answers 429 to those beyond."""

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


async def test_a_server_that_is_busy_is_sent_fewer_writes_until_it_takes_them() -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1.1  # each answer is an answer to what was sent after the last decrease
        return now

    pool, server = WritePool(concurrency=64, clock=clock), BusyServer(10)
    for _ in range(64):
        pool.submit(Urgency.BIND, server.write(pool))
    await pool.drained()
    assert pool.window < 64
    assert server.refused
    # It settles near what the server takes, and asks for a little more now and then.
    server.refused = server.most = 0
    for _ in range(400):
        pool.submit(Urgency.BIND, server.write(pool))
    await pool.drained()
    assert server.most <= 20
    assert server.refused < 60


async def test_answers_of_one_moment_slow_down_once_and_never_below_a_few() -> None:
    now = 0.0
    pool = WritePool(concurrency=64, clock=lambda: now)
    for _ in range(50):
        pool.slow_down(5.0)
    assert pool.window == 32
    for _ in range(50):
        now += 5.0
        pool.slow_down(5.0)
    assert pool.window == 4


async def test_a_server_that_has_recovered_is_sent_as_many_as_before() -> None:
    pool, done = WritePool(concurrency=16), list[str]()
    pool.slow_down()
    assert pool.window == 8
    for number in range(200):
        pool.submit(Urgency.BIND, job(done, str(number)))
    await pool.drained()
    assert len(done) == 200
    assert pool.window == 16

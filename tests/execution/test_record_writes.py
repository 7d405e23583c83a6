"""Records are written before the statuses and events that were submitted after them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from phalanx.execution import writes
from phalanx.execution.record_writes import RecordWrites
from phalanx.execution.writes import Urgency, WritePool


class Server:
    """Writes that finish when the test allows it; `done` are the finished ones in their order."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.done: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}

    def write(self, name: str, *, held: bool = False, fails: bool = False) -> Callable[[], Awaitable[None]]:
        if held:
            self.gates[name] = asyncio.Event()

        async def job() -> None:
            self.begun.append(name)
            if held:
                await self.gates[name].wait()
            if fails:
                raise RuntimeError(name)
            self.done.append(name)

        return job


@pytest.fixture
async def pool() -> AsyncIterator[WritePool]:
    made = WritePool(concurrency=4)
    yield made
    await made.close()


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_statuses_and_events_wait_for_records_before_them_and_bindings_do_not(pool: WritePool) -> None:
    server = Server()
    pool.submit(Urgency.STATUS, server.write("status before"))
    pool.submit(Urgency.RECORD, server.write("record", held=True))
    for urgency in (Urgency.EVENT, Urgency.STATUS, Urgency.DELETE, Urgency.NOMINATE, Urgency.BIND):
        pool.submit(urgency, server.write(urgency.name))
    await turns()
    assert set(server.done) == {"status before", "BIND", "NOMINATE", "DELETE"}
    server.gates["record"].set()
    await pool.drained()
    assert server.done[-3:] == ["record", "STATUS", "EVENT"]


async def test_all_waiting_statuses_run_at_once_after_the_record(pool: WritePool) -> None:
    server = Server()
    pool.submit(Urgency.RECORD, server.write("record", held=True))
    for number in range(4):
        pool.submit(Urgency.STATUS, server.write(f"status {number}", held=True))
    await turns()
    server.gates["record"].set()
    await turns()
    assert len(server.begun) == 5
    for gate in server.gates.values():
        gate.set()
    await pool.drained()


async def test_stream_of_records_does_not_stop_statuses(pool: WritePool) -> None:
    server = Server()
    pool.submit(Urgency.RECORD, server.write("first", held=True))
    pool.submit(Urgency.STATUS, server.write("status"))
    pool.submit(Urgency.RECORD, server.write("second", held=True))
    server.gates["first"].set()
    await turns()
    assert "status" in server.done
    server.gates["second"].set()
    await pool.drained()


async def test_record_that_fails_or_hangs_does_not_stop_statuses(
    pool: WritePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writes, "_PATIENCE", 0.01)
    server = Server()
    pool.submit(Urgency.RECORD, server.write("failing", fails=True))
    pool.submit(Urgency.STATUS, server.write("status"))
    await pool.drained()
    pool.submit(Urgency.RECORD, server.write("hanging", held=True))
    pool.submit(Urgency.STATUS, server.write("next status"))
    await asyncio.sleep(0.05)
    assert server.done == ["status", "next status"]
    server.gates["hanging"].set()
    await pool.drained()


async def test_statuses_that_wait_for_a_record_are_written_at_the_end(pool: WritePool) -> None:
    server = Server()
    pool.submit(Urgency.RECORD, server.write("record", held=True))
    pool.submit(Urgency.STATUS, server.write("status"))
    await turns()
    ending = asyncio.create_task(pool.finish())
    await turns()
    server.gates["record"].set()
    await ending
    assert server.done == ["record", "status"]


async def test_record_has_the_state_of_the_last_submission_before_its_begin(pool: WritePool) -> None:
    state, written, gate = [0], list[int](), asyncio.Event()

    async def write() -> None:
        written.append(state[0])
        await gate.wait()

    records = RecordWrites(pool, write)
    for number in range(1, 4):
        state[0] = number
        records.submit()
    await turns()
    for number in range(4, 7):
        state[0] = number
        records.submit()
    await turns()
    assert written == [3]
    gate.set()
    await pool.drained()
    assert written == [3, 6]

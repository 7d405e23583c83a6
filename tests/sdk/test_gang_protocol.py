"""Hub, workers and client of a gang over mutual TLS, without a cluster."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import ssl
import threading
import time
from pathlib import Path

import cloudpickle
import pytest

from phalanx.sdk.errors import (
    GangUnreachableError,
    PythonVersionError,
    RemoteTraceback,
    TaskTimeoutError,
    UnpicklableError,
    WorkerLostError,
)
from phalanx.sdk.gang.certificates import HUB_NAME, client_context, make_keys
from phalanx.sdk.gang.wire import Frame, FrameKind, WireError, decode
from tests.sdk.gangs import VERSION, LocalGang, local_gang

pytestmark = pytest.mark.e2e


def add(first: int, second: int) -> int:
    return first + second


class OddError(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__(first)
        self.lock = threading.Lock()


def fail(kind: str) -> object:
    if kind == "odd":
        raise OddError(1, 2)
    if kind == "exit":
        raise SystemExit(4)
    if kind == "value":
        return threading.Lock()
    raise KeyError(kind)


cloudpickle.register_pickle_by_value(__import__("sys").modules[__name__])


async def outcome(gang: LocalGang, task: object) -> object:
    return await asyncio.wait_for(asyncio.wrap_future(task.future), 30)  # type: ignore[attr-defined]


async def test_tasks_return_values_and_exceptions_with_the_remote_traceback(tmp_path: Path) -> None:
    async with local_gang(tmp_path, workers=2) as gang:
        client = gang.client()
        tasks = [gang.task(add, number, 1) for number in range(100)]
        for task in tasks:
            client.add(task)
        assert [await outcome(gang, task) for task in tasks] == list(range(1, 101))
        for kind, error in (("key", KeyError), ("odd", RuntimeError), ("exit", SystemExit)):
            client.add(task := gang.task(fail, kind))
            failure = (await asyncio.wait([asyncio.wrap_future(task.future)])) and task.future.exception()
            assert isinstance(failure, error), kind
            assert isinstance(failure.__cause__, RemoteTraceback)
            assert "in fail" in str(failure.__cause__)
        client.add(task := gang.task(fail, "value"))
        with pytest.raises(UnpicklableError, match="the result of type lock cannot be sent back") as caught:
            await outcome(gang, task)
        assert caught.value.field == "result"
        assert client.unfinished == 0


async def test_large_values_pass_in_pieces_in_both_directions(tmp_path: Path) -> None:
    async with local_gang(tmp_path) as gang:
        client = gang.client()
        client.add(large := gang.task(bytes.swapcase, b"a" * 3_000_000))
        client.add(small := gang.task(add, 1, 2))
        assert await outcome(gang, large) == b"A" * 3_000_000
        assert await outcome(gang, small) == 3


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def test_task_runs_again_after_the_loss_of_its_worker_at_most_so_often(tmp_path: Path) -> None:
    async with local_gang(tmp_path, workers=3) as gang:
        client = gang.client(retries=2)
        client.add(task := gang.task(kill_self))
        with pytest.raises(WorkerLostError, match="lost its worker 3 times"):
            await outcome(gang, task)
        # Three workers were lost with it; another one serves the next task.
        await gang.start_worker(7)
        client.add(task := gang.task(add, 1, 1))
        assert await outcome(gang, task) == 2


async def test_task_above_its_timeout_fails_and_its_process_ends(tmp_path: Path) -> None:
    async with local_gang(tmp_path) as gang:
        client = gang.client(timeout=0.2)
        client.add(task := gang.task(time.sleep, 600))
        with pytest.raises(TaskTimeoutError, match=r"did not end within 0\.2 s"):
            await outcome(gang, task)
        assert await asyncio.wait_for(gang.workers[0].wait(), 10) != 0


async def test_tasks_behind_a_long_one_run_on_another_worker(tmp_path: Path) -> None:
    async with local_gang(tmp_path, workers=2) as gang:
        client = gang.client()
        short = [gang.task(add, number, 1) for number in range(200)]
        for task in short:
            client.add(task)
        await asyncio.gather(*(outcome(gang, task) for task in short))
        # Both workers have windows for several tasks now, and the first task of a window is long.
        long = gang.task(time.sleep, 20)
        client.add(long)
        behind = [gang.task(add, number, 1) for number in range(40)]
        for task in behind:
            client.add(task)
        assert [await outcome(gang, task) for task in behind] == list(range(1, 41))
        assert not long.future.done()


async def test_task_that_kills_its_workers_fails_and_takes_at_most_one_other_with_it(tmp_path: Path) -> None:
    async with local_gang(tmp_path, workers=3) as gang:
        client = gang.client(retries=0)
        calls = [(add, number, 1) for number in range(200)]
        tasks = [gang.task(*call) if number != 100 else gang.task(kill_self) for number, call in enumerate(calls)]
        for task in tasks:
            client.add(task)
        lost = []
        for number, task in enumerate(tasks):
            try:
                await outcome(gang, task)
            except WorkerLostError:
                lost.append(number)
        # A killed process can take the result of the task before with it.
        assert 100 in lost
        assert len(lost) <= 2


async def test_task_of_a_rank_runs_on_this_rank(tmp_path: Path) -> None:
    async with local_gang(tmp_path, workers=2) as gang:
        client = gang.client()
        for rank in (1, 0, 1):
            client.add(task := gang.task(os.getenv, "PHALANX_GANG_ADDRESS", rank=rank))
            assert await outcome(gang, task) == f"10.0.0.{rank}"


async def test_unpicklable_function_is_an_error_before_anything_is_sent(tmp_path: Path) -> None:
    async with local_gang(tmp_path, workers=0) as gang:
        with pytest.raises(UnpicklableError, match="cannot be sent to a worker") as caught:
            gang.task(add, threading.Lock())
        assert caught.value.field == "function"


async def test_other_python_of_the_workers_ends_the_client_with_both_versions(tmp_path: Path) -> None:
    async with local_gang(tmp_path, workers=0, python=[3, 99]) as gang:
        client = gang.client()
        client.add(task := gang.task(add, 1, 2))
        with pytest.raises(PythonVersionError, match=r"workers have Python 3\.99, this process has 3\."):
            await outcome(gang, task)
        client.add(later := gang.task(add, 1, 2))
        with pytest.raises(PythonVersionError):
            await outcome(gang, later)


async def test_client_with_a_certificate_of_another_gang_is_refused(tmp_path: Path) -> None:
    async with local_gang(tmp_path, workers=0) as gang:
        client = gang.client(keys=make_keys())
        client.add(task := gang.task(add, 1, 2))
        with pytest.raises(GangUnreachableError, match="certificate"):
            await outcome(gang, task)


async def test_peer_without_certificate_or_with_plain_text_gets_no_byte(tmp_path: Path) -> None:
    async with local_gang(tmp_path, workers=0) as gang:
        stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
        bomb = pickle.dumps(print)
        for context in (stranger, None):
            reader, writer = await asyncio.open_connection("127.0.0.1", gang.port, ssl=context)
            writer.write(bomb)
            try:
                received = await asyncio.wait_for(reader.read(), 10)
            except (ssl.SSLError, ConnectionError):
                received = b""
            # (A plain connection gets a TLS alert of 7 bytes.)
            assert len(received) <= 7
            writer.close()


async def test_worker_cannot_pose_as_the_client_and_another_hub_is_refused(tmp_path: Path) -> None:
    async with local_gang(tmp_path, workers=0) as gang:
        context = gang.context("worker")
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", gang.port, ssl=context, server_hostname=HUB_NAME
        )
        # It is served as a worker, whose first frame must be a HELLO: a task ends the connection.
        writer.write(Frame(FrameKind.TASK, 1, size=0).encode())
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
        posing = await asyncio.start_server(lambda *streams: None, "127.0.0.1", 0, ssl=gang.context("hub"))
        port = posing.sockets[0].getsockname()[1]
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection(
                "127.0.0.1", port, ssl=client_context(make_keys()), server_hostname=HUB_NAME
            )
        posing.close()


async def test_gang_ends_when_its_client_is_gone_for_the_timeout(tmp_path: Path) -> None:
    async with local_gang(tmp_path, workers=0, client_timeout=0.3) as gang:
        watching = asyncio.create_task(gang.hub.watch_client())
        client = gang.client()
        await asyncio.wait_for(client.changed.wait(), 10)
        gang.clients[0].cancel()
        await asyncio.wait_for(gang.hub.ended.wait(), 10)
        await watching


async def test_restarted_hub_gets_the_unfinished_tasks_again(tmp_path: Path) -> None:
    async with local_gang(tmp_path, workers=0) as gang:
        client = gang.client()
        client.add(task := gang.task(add, 1, 2))
        while not task.future.running():  # noqa: ASYNC110 - the future is of another kind
            await asyncio.sleep(0.01)
        # A new client connection without the task in the hub's memory is a restarted hub.
        gang.hub._queue.clear()
        assert gang.hub._client is not None
        gang.hub._client.close()
        await gang.start_worker(0)
        assert await outcome(gang, task) == 3


@pytest.mark.parametrize("size", [100, 10_000_000])
async def test_task_whose_result_breaks_off_is_still_sent_and_can_run_again(size: int, tmp_path: Path) -> None:
    async with local_gang(tmp_path, workers=0) as gang:
        client, task = gang.client(), gang.task(add, 1, 2)
        client._sent[task.number] = task
        reader = asyncio.StreamReader()
        reader.feed_data(b"part")
        reader.feed_eof()
        with pytest.raises(asyncio.IncompleteReadError):
            await client._complete(Frame(FrameKind.VALUE, task.number, size=size), reader)
        assert client._sent == {task.number: task}
        task.payload.close()


def test_unknown_kind_of_a_frame_is_refused() -> None:
    header = bytearray(Frame(FrameKind.TASK).encode())
    header[0] = 99
    with pytest.raises(WireError, match="unknown kind 99"):
        decode(bytes(header))
    assert list(__import__("sys").version_info[:2]) == VERSION

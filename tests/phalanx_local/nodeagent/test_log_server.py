"""Reading the end of a log without reading all of it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tracemalloc
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import aiohttp
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx_local.nodeagent.core_v1 import V1Pod
from phalanx_local.nodeagent.log_access import AnonymousAccess
from phalanx_local.nodeagent.pod_runtime.fake_log import FakeLogs
from phalanx_local.nodeagent.pod_runtime.log_server import LogError, LogServer, file_tail_offset, tail_offset

from .pods import manifest

STARTED = "2030-01-01T00:00:00Z"


@given(st.lists(st.sampled_from([b"", b"a", b"bc"]), max_size=6), st.booleans(), st.integers(0, 8))
def test_the_tail_is_the_last_lines(lines: list[bytes], newline: bool, count: int) -> None:
    text = b"".join(line + b"\n" for line in lines) + (b"" if newline else b"rest")
    kept = text.splitlines(keepends=True)
    assert text[tail_offset(text, count) :] == b"".join(kept[len(kept) - min(count, len(kept)) :])


def test_without_a_count_the_tail_is_everything() -> None:
    assert tail_offset(b"a\nb\n", None) == 0


@pytest.mark.parametrize("count", [0, 1, 5, 30_000, 100_000])
def test_the_tail_of_a_long_file_is_that_of_its_text(tmp_path: Path, count: int) -> None:
    text = b"".join(b"line %d\n" % number for number in range(50_000))
    path = tmp_path / "log"
    path.write_bytes(text)
    assert file_tail_offset(path, count) == tail_offset(text, count)


@given(st.binary(max_size=40), st.integers(0, 8), st.booleans())
def test_tail_of_a_file_of_many_blocks_is_that_of_its_text(
    tmp_path_factory: pytest.TempPathFactory, seed: bytes, count: int, newline: bool
) -> None:
    text = (seed + b"\n").join(b"x" * 3 for _ in range(4)) + (b"\n" if newline else b"")
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_bytes(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("phalanx_local.nodeagent.pod_runtime.log_server._CHUNK", 5)
        assert file_tail_offset(path, count) == tail_offset(text, count)


def test_tail_of_a_long_line_reads_one_block_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.truncate(64 * 1024 * 1024)  # one line; the file has no blocks on the disk
    tracemalloc.start()
    try:
        assert file_tail_offset(path, 10**12) == 0
        assert tracemalloc.get_traced_memory()[1] < 1024 * 1024
    finally:
        tracemalloc.stop()


def fake_log(
    state: Mapping[str, object], last: Mapping[str, object] | None = None, *, previous: bool = False
) -> str:
    body = manifest("a", notes={"log": "hello"})
    body["status"]["containerStatuses"] = [{"name": "main", "state": state, "lastState": last or {}}]
    return FakeLogs(lambda uid: False).log(msgspec.convert(body, V1Pod), "main", previous=previous).decode()


def test_fake_log_matches_the_status() -> None:
    log = fake_log({"running": {"startedAt": STARTED}})
    assert log == f"{STARTED} container main of default/a pretends to run example/image on node n0\nhello\n"
    ended = {"terminated": {"exitCode": 3, "startedAt": STARTED, "finishedAt": "2030-01-01T00:00:09Z"}}
    assert fake_log(ended).splitlines()[-1] == "2030-01-01T00:00:09Z container main ends with exit code 3"
    assert fake_log({"waiting": {}}, ended, previous=True).startswith(STARTED)


def test_a_container_that_has_not_started_has_no_log() -> None:
    with pytest.raises(LogError, match='container "main" in pod "a" has not started'):
        fake_log({"waiting": {"reason": "ContainerCreating"}})
    with pytest.raises(LogError, match="previous terminated container"):
        fake_log({"running": {"startedAt": STARTED}}, previous=True)


class OneLog:
    """A source with one text for all."""

    def log(self, pod: V1Pod, container: str, *, previous: bool) -> bytes:
        if previous:
            raise LogError("there was none before")
        return b"one\ntwo\n"

    def growing(self, pod: V1Pod, container: str) -> bool:
        return False


@pytest.fixture
async def server() -> AsyncIterator[LogServer]:
    async def find(namespace: str, name: str) -> V1Pod | None:
        return msgspec.convert(manifest(name), V1Pod) if name == "a" else None

    server = LogServer(AnonymousAccess())
    await server.start()
    server.connect(OneLog(), find)
    try:
        yield server
    finally:
        await server.close()


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_logs_are_served_in_the_clear_and_over_tls_on_one_port(server: LogServer, scheme: str) -> None:
    async with aiohttp.ClientSession() as session:
        url = f"{scheme}://127.0.0.1:{server.port}/containerLogs/default/a/main?tailLines=1"
        async with session.get(url, ssl=False) as answer:
            assert (answer.status, await answer.text()) == (200, "two\n")


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("default/b/main", 404, 'pod "default/b" is not on this node'),
        ("default/a/other", 404, 'container "other" is not in pod "a"'),
        ("default/a/main?previous=true", 400, "there was none before"),
        ("default/a/main?tailLines=x", 400, "tailLines: 'x' is not a number"),
        ("default/a/main?timestamps=true", 400, "timestamps: "),
    ],
)
async def test_unservable_request_is_explained(server: LogServer, path: str, status: int, says: str) -> None:
    url = f"http://127.0.0.1:{server.port}/containerLogs/{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status == status
        assert says in await answer.text()


async def test_silent_client_does_not_disturb_other_requests(server: LogServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port)):
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{server.port}/healthz") as answer,
        ):
            assert await answer.text() == "ok"


async def test_connections_with_half_a_request_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phalanx_local.nodeagent.pod_runtime.log_server._IDLE_SECONDS", 0.2)
    server = LogServer(AnonymousAccess())
    await server.start()
    try:
        for start in (b"", b"GET /healthz HTT", b"\x16", b"\x16\x03\x01"):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(start)
            async with asyncio.timeout(10):
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
            writer.close()
    finally:
        await server.close()

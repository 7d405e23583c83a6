"""Reading the end of a log without reading all of it."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import aiohttp
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx_local.nodeagent.core_v1 import V1Pod
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

    server = LogServer()
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

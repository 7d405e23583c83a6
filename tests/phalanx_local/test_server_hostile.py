"""Unreadable requests are answered in Kubernetes' words: never 500, never a traceback, never a long wait."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from phalanx_local.server import ApiServer, ServerOptions
from phalanx_local.storage.journal import DataFileError, FileJournal
from tests.model.test_decoding import BOMB, MERGES
from tests.phalanx_local.client import CONFIG_MAPS, PODS, Client, config_map, pod
from tests.phalanx_local.conftest import Starter

LONG = "9" * 5_000
DEEP = b"[" * 100_000 + b"]" * 100_000
APPLY = "application/apply-patch+yaml"
BODIES = {
    "deep": DEEP,
    "deep object": b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","annotations":' + DEEP + b"}}",
    "digits": b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","generation":' + LONG.encode() + b"}}",
    "bytes": b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"\xff"}}',
    "surrogate": b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"\\ud800"}}',
    "nothing": b"",
    "protobuf": b"k8s\x00\xff\xff\xff",
}


@pytest.fixture(autouse=True)
def _no_traceback(caplog: pytest.LogCaptureFixture) -> Any:
    yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("media", ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"])
@pytest.mark.parametrize("name", BODIES)
async def test_a_body_that_cannot_be_read(client: Client, name: str, media: str) -> None:
    reply = await client.call("POST", CONFIG_MAPS, BODIES[name], content_type=media)
    assert reply.status in (400, 413, 415, 422), reply.body
    assert reply.body["kind"] == "Status"


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize(
    "kind", ["json-patch+json", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"]
)
async def test_a_patch_that_cannot_be_read(client: Client, name: str, kind: str) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    reply = await client.call(
        "PATCH", f"{CONFIG_MAPS}/a", BODIES[name], content_type=f"application/{kind}", fieldManager="m"
    )
    assert reply.status in (400, 413, 415, 422), reply.body


@pytest.mark.parametrize(
    "text", [BOMB, MERGES, "&a [*a]", "a: " + "[" * 100_000, "- " * 50_000, "a: " + "1:" * 50_000]
)
async def test_an_apply_patch_that_would_not_end(client: Client, text: str) -> None:
    reply = await client.call("PATCH", f"{CONFIG_MAPS}/a", text.encode(), content_type=APPLY, fieldManager="m")
    assert reply.status == 400
    assert "error decoding YAML" in reply.body["message"]


@pytest.mark.parametrize("levels", [150, 1_000])
async def test_patches_do_not_nest_an_object_deeper_than_it_may_be(client: Client, levels: int) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    value = '{"a":' * levels + "{}" + "}" * levels
    path = "/metadata/annotations"
    for _ in range(12):
        patch = f'[{{"op": "add", "path": "{path}", "value": {value}}}]'.encode()
        reply = await client.call("PATCH", f"{CONFIG_MAPS}/a", patch, content_type="application/json-patch+json")
        assert reply.status in (400, 422), reply.body
        path += "/a" * levels


@pytest.mark.parametrize(
    "header", ["Bearer \udcff\udcfe", "Bearer \x7f", "Bearer " + "x" * 7000, "\udcff", "Bearer"]
)
async def test_a_token_of_any_bytes_is_not_a_token(start: Starter, header: str) -> None:
    server, client = await start(ServerOptions())
    status = await _status(server, header.encode("utf-8", "surrogateescape"))
    assert status in (400, 401)
    assert client is not None


async def _status(server: ApiServer, header: bytes) -> int:
    """A request by hand: no client sends such bytes."""
    import asyncio
    import ssl

    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, _, port = server.url.partition("//")[2].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    writer.write(
        b"GET /api/v1/pods HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: " + header + b"\r\n\r\n"
    )
    answer = await reader.read()
    writer.close()
    return int(answer.split(b" ")[1])


def _query(name: str, value: str) -> dict[str, Any]:
    return {name: value}


@pytest.mark.parametrize("value", [LONG, "-1", "x", "1e9", "٧", "9" * 30])
@pytest.mark.parametrize("name", ["limit", "resourceVersion", "timeoutSeconds", "continue", "gracePeriodSeconds"])
async def test_a_number_in_a_query(client: Client, name: str, value: str) -> None:
    reply = await client.call("GET", CONFIG_MAPS, None, **_query(name, value))
    assert reply.status in (200, 400, 422, 504), reply.body
    await client.create(CONFIG_MAPS, config_map("a"))
    reply = await client.call("DELETE", f"{CONFIG_MAPS}/a", None, **_query(name, value))
    assert reply.status in (200, 400, 422), reply.body


@pytest.mark.parametrize(
    "selector", ["a in (" + "x," * 20_000 + ")", "(" * 10_000, "a>" + LONG, "!" * 5_000, "\x00"]
)
@pytest.mark.parametrize("name", ["labelSelector", "fieldSelector"])
async def test_a_selector(client: Client, name: str, selector: str) -> None:
    reply = await client.call("GET", CONFIG_MAPS, None, **_query(name, selector[:6000]))
    assert reply.status in (200, 400), reply.body


@pytest.mark.parametrize("amount", [LONG, "1e" + LONG, "0." + "1" * 5_000, "1" * 200_000])
async def test_an_amount_of_any_length(client: Client, amount: str) -> None:
    container = {"name": "main", "image": "b", "resources": {"requests": {"cpu": amount}}}
    reply = await client.call("POST", PODS, pod("a", containers=[container]))
    assert reply.status in (400, 422), reply.body


def flipped(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x55
    path.write_bytes(data)


async def test_flipped_byte_in_the_data_file_is_reported_with_its_place_and_a_fix(
    start: Starter, tmp_path: Path
) -> None:
    path = tmp_path / "data"
    first, client = await start(ServerOptions(insecure=True, data=path))
    for index in range(3):
        await client.create(CONFIG_MAPS, config_map(f"m{index}", n="0"))
    await first.stop()
    whole = path.read_bytes()
    begin = whole.rindex(b"\n", 0, len(whole) - 1) + 1
    for at in range(begin, len(whole) - 1, 7):
        path.write_bytes(whole)
        flipped(path, at)
        try:
            server = ApiServer(ServerOptions(insecure=True, data=path))
            try:
                await server.start()
            finally:
                await server.stop()
        except DataFileError as error:
            text = str(error)
            assert str(path) in text
            assert "(byte " in text
            assert "restore the file from a backup" in text


def test_a_line_that_is_no_record_is_named(tmp_path: Path) -> None:
    path = tmp_path / "data"
    for line in (
        b"\xff\tput\ta\t-\tb\t{}\n",
        LONG.encode() + b"\trevision\n",
        b"1\tput\n",
        b"-1\trevision\n",
        b"1\tput\t\xff\t-\tb\t}\n",
    ):
        path.write_bytes(b"phalanx-data-1\n1\trevision\n" + line)
        with pytest.raises(DataFileError, match=r"line 3 \(byte 26\) is damaged"):
            FileJournal(path)


async def test_more_warnings_than_headers_can_carry(client: Client) -> None:
    unknown = {f"field{index}": 1 for index in range(10_000)} | {"line\nbreak": 1}
    reply = await client.call("POST", CONFIG_MAPS, {**config_map("a"), **unknown})
    assert reply.status == 201
    assert len(reply.warnings) == 100
    long = {"x" * 5000: 1, "y": 1}
    reply = await client.call("POST", CONFIG_MAPS, {**config_map("b"), **long})
    assert [len(warning) < 300 for warning in reply.warnings] == [True, True]


async def test_copies_of_copies_are_refused_before_they_fill_the_memory(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a", a="x" * 100_000))
    doubling = [{"op": "copy", "from": "/data", "path": f"/data/{index}"} for index in range(60)]
    reply = await client.call("PATCH", f"{CONFIG_MAPS}/a", doubling, content_type="application/json-patch+json")
    assert (reply.status, reply.reason) == (422, "Invalid")

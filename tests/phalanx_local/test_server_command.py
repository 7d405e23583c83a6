"""`phalanx apiserver` as a process: one line when it is ready, and a quick end."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import ssl
import sys
from pathlib import Path

import aiohttp
import pytest

from tests.phalanx_local.client import CONFIG_MAPS, Client, config_map

COMMAND = (sys.executable, "-c", "from phalanx_local.cli.apiserver import apiserver; apiserver()")


async def start(tmp_path: Path, *options: str) -> tuple[asyncio.subprocess.Process, str]:
    """A running server and its URL."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "--kubeconfig-out",
        str(tmp_path / "kubeconfig"),
        *options,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        line = (await process.stdout.readline()).decode()
    url = line.split()[4]
    assert line == f"phalanx apiserver ready at {url} kubeconfig {tmp_path / 'kubeconfig'}\n"
    return process, url


@pytest.mark.slow_but_first
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_although_watches_are_open(tmp_path: Path, number: signal.Signals) -> None:
    process, url = await start(tmp_path, "--insecure")
    async with aiohttp.ClientSession() as session:
        client = Client(session, url)
        async with client.watch(CONFIG_MAPS) as stream:
            process.send_signal(number)
            assert await stream.rest() == []
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert (process.returncode, out, err) == (0, b"", b"")


@pytest.mark.slow
async def test_a_killed_server_comes_back_with_its_data(tmp_path: Path) -> None:
    options = ("--insecure", "--data", str(tmp_path / "data"))
    process, url = await start(tmp_path, *options)
    async with aiohttp.ClientSession() as session:
        for index in range(20):
            made = await Client(session, url).create(CONFIG_MAPS, config_map(f"m{index}"))
        process.kill()
        await process.communicate()
        process, url = await start(tmp_path, *options)
        client = Client(session, url)
        assert len(await client.names(CONFIG_MAPS)) == 20
        later = await client.create(CONFIG_MAPS, config_map("later"))
        assert int(later["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    process.terminate()
    await process.communicate()


async def test_the_token_and_the_certificate_are_in_the_kubeconfig(tmp_path: Path) -> None:
    process, url = await start(tmp_path, "--token", "secret", "--audit-log", str(tmp_path / "audit"))
    config = json.loads((tmp_path / "kubeconfig").read_text())
    assert config["clusters"][0]["cluster"]["server"] == url
    assert config["users"][0]["user"]["token"] == "secret"
    assert url.startswith("https://127.0.0.1:")
    process.terminate()
    await process.communicate()


async def test_a_bad_data_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("hello\n")
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "--kubeconfig-out",
        str(tmp_path / "kubeconfig"),
        "--data",
        str(tmp_path / "data"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 1
    assert out == b""
    assert b"not a data file of this server" in err
    assert b"Traceback" not in err


async def test_tenants_and_users_with_fixed_tokens_have_their_own_rights(tmp_path: Path) -> None:
    (tmp_path / "users").write_text('t1,jane,u1,"devs,system:masters"\n\nt2,bob,u2\n')
    process, url = await start(
        tmp_path,
        "--token-auth-file",
        str(tmp_path / "users"),
        "--tenant",
        "team-a",
        "--tenant",
        f"team-b={tmp_path / 'b'}",
    )
    authority = json.loads((tmp_path / "kubeconfig").read_text())["clusters"][0]["cluster"]
    data = base64.b64decode(authority["certificate-authority-data"]).decode()
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=data))
    async with aiohttp.ClientSession(connector=connector) as session:
        client = Client(session, url)

        async def status(token: str, namespace: str) -> int:
            headers = {"Authorization": f"Bearer {token}"}
            return (await client.call("GET", f"/api/v1/namespaces/{namespace}/pods", headers=headers)).status

        tokens = {}
        for name, file in (("team-a", "team-a.kubeconfig"), ("team-b", "b")):
            assert (tmp_path / file).stat().st_mode & 0o777 == 0o600
            config = json.loads((tmp_path / file).read_text())
            assert config["contexts"][0]["context"]["namespace"] == name
            tokens[name] = config["users"][0]["user"]["token"]
        assert [await status(tokens["team-a"], name) for name in ("team-a", "team-b")] == [200, 403]
        assert [await status(tokens["team-b"], name) for name in ("team-a", "team-b")] == [403, 200]
        assert [await status(token, "team-a") for token in ("t1", "t2")] == [200, 403]
    process.terminate()
    await process.communicate()


@pytest.mark.slow_but_first(2)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--token-auth-file", "users"), "users:1: write token,user,uid"),
        (("--tenant", "Team"), "write NAMESPACE or NAMESPACE=FILE"),
        (("--tenant", "team", "--insecure"), "--tenant needs TLS"),
        (("--tenant", "team="), "write NAMESPACE or NAMESPACE=FILE"),
    ],
)
async def test_bad_tenants_and_users_are_clear_errors(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    (tmp_path / "users").write_text("only-a-token\n")
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "--kubeconfig-out",
        str(tmp_path / "kubeconfig"),
        *options,
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode != 0
    assert out == b""
    assert words in err.decode()
    assert b"Traceback" not in err

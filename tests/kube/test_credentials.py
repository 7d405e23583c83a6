"""Credentials are renewed when they are due, once, and never make things worse."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from phalanx.kube.auth.credentials import ClientIdentity, TokenFileCredentials
from phalanx.kube.auth.exec_plugin import ExecCredentials, ExecPlugin
from phalanx.kube.errors import ConfigError

from .conftest import FakeTime

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"


class TestTokenFile:
    def test_is_read_again_after_a_minute(self, tmp_path: Path, fake_time: FakeTime) -> None:
        path = tmp_path / "token"
        path.write_text("one\n")
        credentials = TokenFileCredentials(str(path), clock=fake_time.clock)
        assert asyncio.run(credentials.current()) == ClientIdentity("Bearer one")
        path.write_text("two\n")
        fake_time.now += 59
        assert credentials.cached() == ClientIdentity("Bearer one")
        fake_time.now += 1
        assert credentials.cached() is None
        assert asyncio.run(credentials.current()) == ClientIdentity("Bearer two")

    async def test_is_read_again_after_a_401(self, tmp_path: Path, fake_time: FakeTime) -> None:
        path = tmp_path / "token"
        path.write_text("one")
        credentials = TokenFileCredentials(str(path), clock=fake_time.clock)
        one = await credentials.current()
        assert await credentials.renew(one) is None  # the file says the same: no use in asking again
        path.write_text("two")
        assert await credentials.renew(one) == ClientIdentity("Bearer two")

    @pytest.mark.parametrize("damage", ["missing", "empty", "binary"])
    async def test_a_damaged_file_keeps_the_last_good_token(
        self, tmp_path: Path, fake_time: FakeTime, damage: str
    ) -> None:
        path = tmp_path / "token"
        path.write_text("one")
        credentials = TokenFileCredentials(str(path), clock=fake_time.clock)
        await credentials.current()
        if damage == "missing":
            path.unlink()
        else:
            path.write_bytes(b"" if damage == "empty" else b"\xff\xfe")
        fake_time.now += 61
        assert await credentials.current() == ClientIdentity("Bearer one")

    async def test_without_a_good_token_it_says_so_or_falls_back(self, fake_time: FakeTime) -> None:
        missing = TokenFileCredentials("/nowhere/token", origin="user 'x'", clock=fake_time.clock)
        with pytest.raises(ConfigError, match="user 'x': cannot read the token in /nowhere/token"):
            await missing.current()
        fallback = TokenFileCredentials("/nowhere/token", fallback="static", clock=fake_time.clock)
        assert await fallback.current() == ClientIdentity("Bearer static")


def plugin(script: Path, text: str, **options: Any) -> ExecPlugin:
    script.write_text(text)
    return ExecPlugin(
        **{
            "command": sys.executable,
            "args": (str(script),),
            "api_version": V1,
            "origin": "kubeconfig f: user 'u'",
            "interactive_mode": "Never",
            **options,
        }
    )


COUNTING = """
import json, os, pathlib, sys
count = pathlib.Path(__file__).with_suffix(".count")
n = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(n))
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
status = {"token": f"token-{n}"}
if len(sys.argv) > 1:
    status["expirationTimestamp"] = sys.argv[1]
print(json.dumps({"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": status}))
"""


class TestExecPlugin:
    @pytest.mark.parametrize("version", [V1, V1BETA1])
    async def test_without_an_expiry_it_runs_once(self, tmp_path: Path, version: str) -> None:
        credentials = ExecCredentials(plugin(tmp_path / "p", COUNTING, api_version=version))
        assert credentials.cached() is None
        assert await credentials.current() == ClientIdentity("Bearer token-1")
        assert credentials.cached() == ClientIdentity("Bearer token-1")

    async def test_runs_again_when_its_credential_has_expired(self, tmp_path: Path) -> None:
        now = 1_767_225_599.0  # a second before 2026
        told = plugin(tmp_path / "p", COUNTING)
        told = ExecPlugin(**{**vars(told), "args": (*told.args, "2026-01-01T00:00:00Z")})
        credentials = ExecCredentials(told, wall_clock=lambda: now)
        assert await credentials.current() == ClientIdentity("Bearer token-1")
        assert credentials.cached() == ClientIdentity("Bearer token-1")
        now += 1
        assert credentials.cached() is None
        assert await credentials.current() == ClientIdentity("Bearer token-2")

    async def test_many_requests_that_meet_a_401_run_it_once(self, tmp_path: Path) -> None:
        credentials = ExecCredentials(plugin(tmp_path / "p", COUNTING))
        first = await credentials.current()
        renewed = await asyncio.gather(*(credentials.renew(first) for _ in range(5)))
        assert renewed == [ClientIdentity("Bearer token-2")] * 5

    async def test_plugin_gets_the_cluster_information(self, tmp_path: Path) -> None:
        tell = """
import base64, json, os
info = os.environ["KUBERNETES_EXEC_INFO"] + os.environ["EXTRA"] + os.environ["HOME"]
token = base64.b64encode(info.encode()).decode()
version = "client.authentication.k8s.io/v1"
print(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": {"token": token}}))
"""
        told = plugin(tmp_path / "p", tell, cluster_info={"server": "https://api"}, env=(("EXTRA", "|extra|"),))
        credentials = ExecCredentials(told, environ={"HOME": "/home/jo"})
        authorization = (await credentials.current()).authorization
        assert authorization is not None
        info, extra, home = base64.b64decode(authorization.removeprefix("Bearer ")).decode().split("|")
        assert json.loads(info) == {
            "apiVersion": V1,
            "kind": "ExecCredential",
            "spec": {"interactive": False, "cluster": {"server": "https://api"}},
        }
        assert (extra, home) == ("extra", "/home/jo")

    async def test_may_give_a_certificate(self, tmp_path: Path) -> None:
        give = json.dumps(
            {
                "apiVersion": V1,
                "kind": "ExecCredential",
                "status": {"clientCertificateData": "CERT", "clientKeyData": "KEY"},
            }
        )
        identity = await ExecCredentials(plugin(tmp_path / "p", f"print({give!r})")).current()
        assert identity.authorization is None
        assert identity.certificate is not None
        assert (identity.certificate.certificate, identity.certificate.key) == (b"CERT", b"KEY")
        assert "KEY" not in repr(identity)

    @pytest.mark.parametrize(
        ("script", "text"),
        [
            ("import sys; sys.exit('no ticket')", "failed with exit code 1: no ticket"),
            ("print('hello')", "printed no ExecCredential: "),
            ("print('{}')", "printed no apiVersion without a kind, the kubeconfig asks for"),
            (
                f"print('''{json.dumps({'apiVersion': V1BETA1, 'kind': 'ExecCredential'})}''')",
                f"printed {V1BETA1} ExecCredential, the kubeconfig asks for {V1} ExecCredential",
            ),
            (f"print('''{json.dumps({'apiVersion': V1, 'kind': 'ExecCredential'})}''')", "without a status"),
            (
                f"print('''{json.dumps({'apiVersion': V1, 'kind': 'ExecCredential', 'status': {}})}''')",
                "gave neither a token nor a certificate",
            ),
            (
                "print('''"
                + json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": {"clientKeyData": "x"}})
                + "''')",
                "gave only one of",
            ),
            (
                "print('''"
                + json.dumps(
                    {
                        "apiVersion": V1,
                        "kind": "ExecCredential",
                        "status": {"token": "t", "expirationTimestamp": "tomorrow"},
                    }
                )
                + "''')",
                "expirationTimestamp: Invalid isoformat string: 'tomorrow'",
            ),
            ("import time; time.sleep(60)", "gave no answer within 0.3 s"),
        ],
    )
    async def test_plugin_failure_is_described_in_the_error(self, tmp_path: Path, script: str, text: str) -> None:
        limit = 0.3 if "sleep" in script else 30
        credentials = ExecCredentials(plugin(tmp_path / "p", script), timeout=limit)
        with pytest.raises(ConfigError, match=text) as caught:
            await credentials.current()
        assert str(caught.value).startswith("kubeconfig f: user 'u': exec plugin ")

    async def test_a_missing_program_comes_with_the_hint(self, tmp_path: Path) -> None:
        missing = plugin(tmp_path / "p", "", command="/nowhere/login", install_hint="get it at the counter")
        with pytest.raises(ConfigError, match="cannot be run: No such file or directory\nget it at the counter"):
            await ExecCredentials(missing).current()

    async def test_one_that_needs_a_terminal_says_so(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.stdin", None)
        wants = plugin(tmp_path / "p", COUNTING, interactive_mode="Always")
        with pytest.raises(ConfigError, match="wants a terminal"):
            await ExecCredentials(wants).current()

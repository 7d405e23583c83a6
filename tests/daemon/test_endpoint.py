"""An endpoint that cannot be served says so; one that can follows its certificate's files."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web
from click.testing import CliRunner
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from phalanx.cli.services.scheduler import scheduler
from phalanx.daemon import endpoint
from phalanx.daemon.endpoint import EndpointError, EndpointOptions, serving
from phalanx.daemon.service import SchedulerOptions, SchedulerService, ServiceError
from phalanx.daemon.telemetry import Telemetry
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.auth.tls import TlsSettings
from phalanx.kube.client import KubeClient
from tests.kube.certificates import Authority


class Nobody:
    """An observer that is ready and shows no state."""

    def condition(self) -> str:
        return "scheduling"

    def checks(self) -> dict[str, bool]:
        return {}

    def counted(self) -> Iterator[str]:
        return iter(())

    async def counted_apart(self) -> str:
        return ""

    async def refusal(self, request: web.Request) -> web.Response | None:
        return None

    async def inspect(self, request: web.Request) -> web.Response:
        return web.Response(status=404)

    async def gangs(self, request: web.Request) -> web.Response:
        return web.Response(status=404)


def files(place: Path, authority: Authority, name: str = "phalanx") -> tuple[str, str]:
    pair = authority.issue(name, hosts=("127.0.0.1",))
    (place / "tls.crt").write_bytes(pair.certificate)
    (place / "tls.key").write_bytes(pair.key)
    return str(place / "tls.crt"), str(place / "tls.key")


def encrypt(key: Path) -> None:
    private = load_pem_private_key(key.read_bytes(), None)
    closed = serialization.BestAvailableEncryption(b"secret")
    key.write_bytes(private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, closed))


async def serve(options: EndpointOptions) -> None:
    async with serving(options, Nobody(), lambda: b""):
        pass


async def test_an_address_without_a_port_is_named() -> None:
    with pytest.raises(EndpointError, match="'nowhere' is not HOST:PORT"):
        await serve(EndpointOptions("nowhere"))


async def test_a_certificate_that_is_not_there_is_named() -> None:
    with pytest.raises(EndpointError, match="No such file"):
        await serve(EndpointOptions("127.0.0.1:0", "/no/such.crt", "/no/such.key"))


async def test_encrypted_key_is_refused_without_a_password_prompt(tmp_path: Path) -> None:
    certificate, key = files(tmp_path, Authority())
    encrypt(Path(key))
    with pytest.raises(EndpointError, match="the key is encrypted"):
        await serve(EndpointOptions("127.0.0.1:0", certificate, key))


async def test_a_renewed_certificate_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "_CERTIFICATE_PERIOD", 0.02)
    old, new = Authority("old"), Authority("new")
    certificate, key = files(tmp_path, old)
    trust = ssl.create_default_context(cadata=new.pem.decode())
    async with serving(EndpointOptions("127.0.0.1:0", certificate, key), Nobody(), lambda: b"") as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        # While one of two files is new they do not fit each other: the old pair stays.
        files(tmp_path, new)
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
                    break
                except ssl.SSLCertVerificationError:
                    await asyncio.sleep(0.02)
        writer.close()


def test_a_certificate_without_its_key_is_refused_at_once() -> None:
    result = CliRunner().invoke(scheduler, ["--metrics-certificate", "tls.crt"])
    assert result.exit_code == 2
    assert "--metrics-certificate and --metrics-key are required together" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--lease-name", "turns"], "--lease-name requires --leader-elect"),
        (["--leader-elect", "--lease-name", "My Lease"], "invalid --lease-name 'My Lease'"),
    ],
)
def test_invalid_lease_options_are_refused_at_once(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(scheduler, arguments)
    assert result.exit_code == 2
    assert words in result.output


@pytest.mark.parametrize(
    ("config", "options", "words"),
    [
        (ClusterConfig("http://127.0.0.1:1"), EndpointOptions("127.0.0.1:99999"), "port must be 0-65535"),
        (
            ClusterConfig("http://127.0.0.1:1"),
            EndpointOptions("127.0.0.1:0", "/no/such.crt", "/no/such.key"),
            "the certificate /no/such.crt with the key /no/such.key",
        ),
        (
            ClusterConfig("https://127.0.0.1:1", tls=TlsSettings(authority=b"nonsense")),
            EndpointOptions(),
            "cannot load the certificate authority",
        ),
    ],
)
async def test_a_plain_mistake_is_one_line_without_a_traceback(
    config: ClusterConfig, options: EndpointOptions, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with KubeClient(config) as client:
        with pytest.raises(ServiceError, match=words) as refused:
            await SchedulerService(client, SchedulerOptions(), Telemetry(options)).run()
    assert "Error:" not in str(refused.value)
    assert not [record for record in caplog.records if record.exc_info]

"""Credentials from an exec plugin (client.authentication.k8s.io v1 and v1beta1)."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from phalanx.kube.auth.credentials import ClientCertificate, ClientIdentity, RenewableCredentials, bearer
from phalanx.kube.errors import ConfigError
from phalanx.kube.timestamps import parse_time
from phalanx.model.text.decoding import decode_json, quoted

__all__ = ["ExecCredentials", "ExecPlugin"]

API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
INTERACTIVE_MODES = ("Never", "IfAvailable", "Always")
#: Seconds after which a plugin without a terminal is killed: it probably waits for input that cannot come.
TIMEOUT = 60.0
_STDERR_SHOWN = 600


@dataclass(frozen=True)
class ExecPlugin:
    """Validated ``exec`` section of a kubeconfig user. ``origin`` names the file and the entry."""

    command: str
    api_version: str
    origin: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    install_hint: str = ""
    interactive_mode: str = "IfAvailable"
    #: The ``cluster`` object for KUBERNETES_EXEC_INFO, or None without provideClusterInfo.
    cluster_info: Mapping[str, Any] | None = field(default=None, hash=False)


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


class ExecCredentials(RenewableCredentials):
    """Credentials of an exec plugin, which runs if there is no credential, if it has expired, and once after a
    401."""

    def __init__(
        self,
        plugin: ExecPlugin,
        *,
        environ: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(wall_clock=wall_clock)
        self.plugin = plugin
        self._environ = environ
        self._timeout = timeout

    async def obtain(self) -> tuple[ClientIdentity, float | None]:
        return self._read(await self._run())

    async def _run(self) -> bytes:
        plugin = self.plugin
        terminal = plugin.interactive_mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
        if plugin.interactive_mode == "Always" and not terminal:
            raise self._error("wants a terminal (interactiveMode: Always) and there is none")
        spec: dict[str, Any] = {"interactive": terminal}
        if plugin.cluster_info is not None:
            spec["cluster"] = plugin.cluster_info
        info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
        environ = dict(os.environ if self._environ is None else self._environ)
        environ.update(plugin.env)
        environ["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(info).decode()
        try:
            process = await asyncio.create_subprocess_exec(
                plugin.command,
                *plugin.args,
                env=environ,
                stdin=None if terminal else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                # A user at a terminal has to see the prompt; without a terminal the text belongs in our error.
                stderr=None if terminal else asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = f"\n{plugin.install_hint}" if plugin.install_hint else ""
            raise self._error(f"cannot be run: {error.strerror or error}{hint}") from error
        try:
            async with asyncio.timeout(None if terminal else self._timeout):
                output, complaint = await process.communicate()
        except TimeoutError as error:
            raise self._error(f"gave no answer within {self._timeout:g} s") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            text = (complaint or b"").decode("utf-8", "replace").strip()[-_STDERR_SHOWN:]
            raise self._error(f"failed with exit code {process.returncode}" + (f": {text}" if text else ""))
        return output

    def _read(self, output: bytes) -> tuple[ClientIdentity, float | None]:
        try:
            answer = decode_json(output, _ExecCredential)
        except msgspec.DecodeError as error:
            raise self._error(f"printed no ExecCredential: {error}") from error
        if answer.kind != "ExecCredential" or answer.api_version != self.plugin.api_version:
            raise self._error(
                f"printed {answer.api_version or 'no apiVersion'} {answer.kind or 'without a kind'}, "
                f"the kubeconfig asks for {self.plugin.api_version} ExecCredential"
            )
        status = answer.status
        if status is None:
            raise self._error("printed an ExecCredential without a status")
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise self._error("gave only one of clientCertificateData and clientKeyData")
        if not status.token and not status.client_certificate_data:
            raise self._error("gave neither a token nor a certificate")
        certificate = None
        if status.client_certificate_data:
            certificate = ClientCertificate(
                status.client_certificate_data.encode(), status.client_key_data.encode()
            )
        expires = None
        if status.expiration_timestamp:
            try:
                expires = parse_time(status.expiration_timestamp)
            except ValueError as error:
                raise self._error(f"expirationTimestamp: {error}") from error
        authorization = bearer(status.token, self.plugin.origin) if status.token else None
        return ClientIdentity(authorization, certificate), expires

    def _error(self, text: str) -> ConfigError:
        return ConfigError(f"{self.plugin.origin}: exec plugin {quoted(self.plugin.command)} {text}")


def cluster_info(
    server: str,
    *,
    tls_server_name: str,
    insecure: bool,
    certificate_authority: bytes | None,
    proxy_url: str,
    config: Any,
) -> dict[str, Any]:
    """Return the ``spec.cluster`` object of KUBERNETES_EXEC_INFO; ``config`` is the kubeconfig extension."""
    info: dict[str, Any] = {"server": server}
    if tls_server_name:
        info["tls-server-name"] = tls_server_name
    if insecure:
        info["insecure-skip-tls-verify"] = True
    if certificate_authority:
        info["certificate-authority-data"] = base64.b64encode(certificate_authority).decode()
    if proxy_url:
        info["proxy-url"] = proxy_url
    if config is not None:
        info["config"] = config
    return info

"""Secret with the certificates of a server that the API server calls, and the TLS context that serves them."""

from __future__ import annotations

import base64
import binascii
import logging
import ssl
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

from phalanx.kube.auth.serving_certificates import CERTIFICATE, KEY, bundle, renewed
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import SECRETS
from phalanx.kube.errors import ApiError
from phalanx.kube.own_objects import LABELS

log = logging.getLogger(__name__)

# Conflicts of replicas that write the Secret at the same time.
_TRIES = 5


class CertificateSecret:
    """Certificates of a server in the Secret `name`; `refresh` updates `context`, `chain` and `bundle`.

    `owner` is the common name of the certificates, `names` are the DNS names and IPs of the server. `now` is the
    time in seconds since the epoch. `chain` has the serving certificate and its key, PEM.
    """

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        name: str,
        owner: str,
        names: Iterable[str],
        now: Callable[[], float],
    ) -> None:
        self._client = client
        self._namespace, self._name, self._owner = namespace, name, owner
        self._names = frozenset(names)
        self._now = now
        self.chain = self.bundle = b""
        self.context = server_context()

    async def refresh(self) -> None:
        """Read the Secret, and write it if a certificate is missing or expires soon.

        Raises ApiError and ConnectionLost; the certificates that are in use remain so.
        """
        for tries_left in reversed(range(_TRIES)):
            try:
                data = await self._read_or_renew()
            except ApiError as error:
                if error.status != 409 or not tries_left:
                    raise
            else:
                self._load(data)
                return

    async def _read_or_renew(self) -> dict[str, bytes]:
        path = SECRETS.path(self._namespace, self._name)
        try:
            secret = await self._client.get(path)
        except ApiError as error:
            if error.status != 404:
                raise
            secret = None
        data = _decoded(secret)
        renewed_data = renewed(data, self._names, int(self._now()), self._owner)
        if renewed_data is None:
            return data
        encoded = {name: base64.b64encode(content).decode() for name, content in renewed_data.items()}
        if secret is None:
            metadata = {"name": self._name, "namespace": self._namespace, "labels": dict(LABELS)}
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": encoded}
            await self._client.create(SECRETS.path(self._namespace), body)
        else:
            # The resourceVersion is included: of replicas that renew at the same time only one succeeds.
            await self._client.replace(path, {**secret, "data": encoded})
        log.info("certificates of %s renewed in secret %s/%s", self._owner, self._namespace, self._name)
        return renewed_data

    def _load(self, data: dict[str, bytes]) -> None:
        self.bundle = bundle(data, int(self._now()))
        chain = data[CERTIFICATE] + data[KEY]
        if chain == self.chain:
            return
        # Open connections continue with the certificate of their handshake.
        load_chain(self.context, chain)
        self.chain = chain


def server_context() -> ssl.SSLContext:
    """Return the TLS context of an HTTP server that has no certificate yet."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def load_chain(context: ssl.SSLContext, chain: bytes) -> None:
    """Load a certificate and its key (PEM) into a TLS context."""
    with tempfile.NamedTemporaryFile(prefix="phalanx-", suffix=".pem") as file:  # created with mode 0600
        file.write(chain)
        file.flush()
        context.load_cert_chain(file.name)


def _decoded(secret: Any) -> dict[str, bytes]:
    content = secret.get("data") if isinstance(secret, dict) else None
    data: dict[str, bytes] = {}
    for name, text in (content or {}).items():
        try:
            data[name] = base64.b64decode(text, validate=True)
        except (binascii.Error, TypeError, ValueError):
            data[name] = b""
    return data

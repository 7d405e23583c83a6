"""Secret with the webhook's certificates, and the TLS context that serves them."""

from __future__ import annotations

import base64
import binascii
import logging
import ssl
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

from phalanx.admission.webhook.certificates import CERTIFICATE, KEY, bundle, renewed
from phalanx.admission.webhook.registration import CERTIFICATES
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import SECRETS
from phalanx.kube.errors import ApiError
from phalanx.kube.own_objects import LABELS

log = logging.getLogger(__name__)

# Conflicts of replicas that write the Secret at the same time.
_TRIES = 5


class CertificateSecret:
    """Certificates of the webhook in a Secret; `refresh` updates `context` and `bundle`. `now` is seconds since the
    epoch."""

    def __init__(self, client: KubeClient, namespace: str, names: Iterable[str], now: Callable[[], float]) -> None:
        self._client = client
        self._namespace = namespace
        self._names = frozenset(names)
        self._now = now
        self._loaded = b""
        self.bundle = b""
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])

    async def refresh(self) -> None:
        """Read the Secret with the webhook's certificates, and write it if a certificate is missing or expires
        soon.

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
        path = SECRETS.path(self._namespace, CERTIFICATES)
        try:
            secret = await self._client.get(path)
        except ApiError as error:
            if error.status != 404:
                raise
            secret = None
        data = _decoded(secret)
        renewed_data = renewed(data, self._names, int(self._now()))
        if renewed_data is None:
            return data
        encoded = {name: base64.b64encode(content).decode() for name, content in renewed_data.items()}
        if secret is None:
            metadata = {"name": CERTIFICATES, "namespace": self._namespace, "labels": dict(LABELS)}
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": encoded}
            await self._client.create(SECRETS.path(self._namespace), body)
        else:
            # The resourceVersion is included: of replicas that renew at the same time only one succeeds.
            await self._client.replace(path, {**secret, "data": encoded})
        log.info("certificates of the webhook renewed in secret %s/%s", self._namespace, CERTIFICATES)
        return renewed_data

    def _load(self, data: dict[str, bytes]) -> None:
        self.bundle = bundle(data, int(self._now()))
        chain = data[CERTIFICATE] + data[KEY]
        if chain == self._loaded:
            return
        with tempfile.NamedTemporaryFile(prefix="phalanx-", suffix=".pem") as file:  # created with mode 0600
            file.write(chain)
            file.flush()
            # Open connections continue with the certificate of their handshake.
            self.context.load_cert_chain(file.name)
        self._loaded = chain


def _decoded(secret: Any) -> dict[str, bytes]:
    content = secret.get("data") if isinstance(secret, dict) else None
    data: dict[str, bytes] = {}
    for name, text in (content or {}).items():
        try:
            data[name] = base64.b64decode(text, validate=True)
        except (binascii.Error, TypeError, ValueError):
            data[name] = b""
    return data

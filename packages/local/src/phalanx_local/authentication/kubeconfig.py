"""Kubeconfigs with embedded credentials, readable only by the file's owner."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import TYPE_CHECKING

from phalanx_local.objects import Json, encode

if TYPE_CHECKING:
    from phalanx_local.authentication.certificates import KeyPair


def kubeconfig(
    url: str,
    *,
    authority: bytes | None,
    token: str | None = None,
    certificate: KeyPair | None = None,
    namespace: str = "default",
) -> Json:
    """Return a kubeconfig with one context, `phalanx`, for the user of a token or of a client certificate."""
    cluster: Json = {"server": url}
    if authority is not None:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    user: Json = {"token": token} if token is not None else {}
    if certificate is not None:
        user["client-certificate-data"] = base64.b64encode(certificate.certificate).decode()
        user["client-key-data"] = base64.b64encode(certificate.key).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "phalanx", "cluster": cluster}],
        "users": [{"name": "phalanx", "user": user}],
        "contexts": [
            {"name": "phalanx", "context": {"cluster": "phalanx", "user": "phalanx", "namespace": namespace}}
        ],
        "current-context": "phalanx",
        "preferences": {},
    }


def write_private(path: Path, config: Json) -> None:
    """Write a kubeconfig with mode 0600 atomically, so that readers never see a partial file. JSON is valid
    YAML."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(encode(config) + b"\n")
    temporary.replace(path)

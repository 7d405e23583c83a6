"""Identity of the server, stored beside the data file so that clients can connect after a restart."""

from __future__ import annotations

import secrets
from pathlib import Path

import msgspec

from phalanx.model.text.decoding import decode_json
from phalanx_local.authentication.certificates import Authority, KeyPair
from phalanx_local.authentication.kubeconfig import write_private
from phalanx_local.objects import Json


class _Stored(msgspec.Struct):
    certificate: str
    key: str
    token: str
    signing_key: str = ""


class ServerIdentity:
    """Certificate authority, administrator token, and signing key of service account tokens."""

    def __init__(self, authority: Authority, token: str, signing_key: str = "") -> None:
        self.authority = authority
        self.token = token
        self._signing_key = signing_key or secrets.token_hex(32)

    @property
    def signing_key(self) -> bytes:
        return self._signing_key.encode()


def new_identity(token: str | None = None) -> ServerIdentity:
    return ServerIdentity(Authority(), token or secrets.token_urlsafe(32))


def stored_identity(data: Path, token: str | None = None) -> ServerIdentity:
    """Return the identity stored beside a data file, or create and store a new identity.

    The file is `<data file>.identity`, readable only by its owner. `token` replaces the stored administrator token.
    An unreadable file is replaced: clients then need the new kubeconfig.
    """
    path = data.with_name(f"{data.name}.identity")
    try:
        kept = decode_json(path.read_bytes(), _Stored)
        pair = KeyPair(kept.certificate.encode(), kept.key.encode())
        identity = ServerIdentity(Authority(pair), token or kept.token, kept.signing_key)
    except (OSError, msgspec.DecodeError, ValueError):
        identity = new_identity(token)
    pair = identity.authority.pair
    document: Json = {
        "certificate": pair.certificate.decode(),
        "key": pair.key.decode(),
        "token": identity.token,
        "signing_key": identity.signing_key.decode(),
    }
    write_private(path, document)
    return identity

"""Who the server is to its clients: kept beside the data file, so that a restart locks nobody out."""

from __future__ import annotations

import secrets
from pathlib import Path

import msgspec

from phalanx.local.certificates import Authority, KeyPair
from phalanx.local.kubeconfig import write_private
from phalanx.local.objects import Json
from phalanx.model.decoding import decode_json


class _Kept(msgspec.Struct):
    certificate: str
    key: str
    token: str


class Identity:
    """The certificate authority and the administrator's token."""

    def __init__(self, authority: Authority, token: str) -> None:
        self.authority = authority
        self.token = token


def new_identity(token: str | None = None) -> Identity:
    return Identity(Authority(), token or secrets.token_urlsafe(32))


def kept_identity(data: Path, token: str | None = None) -> Identity:
    """The identity that belongs to a data file: that of the last start, or a new one that is written down.

    It lies in `<data file>.identity`, readable by its owner alone. `token` replaces the token. A file that cannot
    be read is replaced, as if it were lost: clients then need the new kubeconfig.
    """
    path = data.with_name(f"{data.name}.identity")
    try:
        kept = decode_json(path.read_bytes(), _Kept)
        pair = KeyPair(kept.certificate.encode(), kept.key.encode())
        identity = Identity(Authority(pair), token or kept.token)
    except (OSError, msgspec.DecodeError, ValueError):
        identity = new_identity(token)
    pair = identity.authority.pair
    document: Json = {"certificate": pair.certificate.decode(), "key": pair.key.decode(), "token": identity.token}
    write_private(path, document)
    return identity

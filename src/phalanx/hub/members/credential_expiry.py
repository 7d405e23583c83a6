"""Expiry of a kubeconfig's credential as stated in it. Nothing is verified: the cluster verifies the credential."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import msgspec

from phalanx.hub.members.kubeconfig_secret import read_document
from phalanx.kube.errors import ConfigError

#: Seconds before the expiry at which the warning starts, or the last quarter of a shorter life.
WARNED_BEFORE = 24 * 3600
_QUARTER = 4


class CredentialLife(msgspec.Struct, frozen=True):
    """Validity of a member cluster's credential in seconds since the epoch.

    `begins` is 0 if unknown; `ends` is 0 for a credential that is unlimited or of an unknown kind.
    """

    begins: int = 0
    ends: int = 0

    def ends_soon(self, now: int) -> bool:
        warned = WARNED_BEFORE
        if 0 < self.begins < self.ends:
            warned = min(warned, (self.ends - self.begins) // _QUARTER)
        return bool(self.ends) and now >= self.ends - warned


def credential_life(secret: Mapping[str, Any], name: str) -> CredentialLife:
    """Return the validity of the current user's token or certificate in a kubeconfig Secret."""
    try:
        user = _current_user(read_document(secret, name))
    except ConfigError:
        return CredentialLife()
    token, certificate = user.get("token"), user.get("client-certificate-data")
    if isinstance(token, str):
        return _of_token(token)
    return _of_certificate(certificate) if isinstance(certificate, str) else CredentialLife()


def _current_user(document: Mapping[str, Any]) -> Mapping[str, Any]:
    context = _named(document, "contexts", "context", document.get("current-context"))
    return _named(document, "users", "user", context.get("user"))


def _named(document: Mapping[str, Any], section: str, part: str, name: object) -> Mapping[str, Any]:
    entries = document.get(section)
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(value := entry.get(part), dict):
            return value
    return {}


def _of_token(token: str) -> CredentialLife:
    """Return the validity of a JSON Web Token by its claims iat and exp (RFC 7519, 4.1)."""
    parts = token.split(".")
    if len(parts) != 3:
        return CredentialLife()
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError):
        return CredentialLife()
    begins, ends = (claims.get(key) if isinstance(claims, dict) else None for key in ("iat", "exp"))
    return CredentialLife(
        *(int(claim) if isinstance(claim, int | float) and claim > 0 else 0 for claim in (begins, ends))
    )


def _of_certificate(encoded: str) -> CredentialLife:
    try:
        from cryptography import x509
    except ImportError:
        return CredentialLife()  # it is an extra; the hub works without
    try:
        certificate = x509.load_pem_x509_certificate(base64.b64decode(encoded))
    except (binascii.Error, ValueError):
        return CredentialLife()
    moments = (certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    return CredentialLife(*(int(moment.timestamp()) for moment in moments))

"""Who is asking: bearer tokens and client certificates."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Any

from phalanx.local.errors import unauthorized

ANONYMOUS_PATHS = frozenset(("/healthz", "/livez", "/readyz", "/version"))


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user."""

    name: str
    groups: tuple[str, ...] = ("system:authenticated",)


ADMIN = User("kubernetes-admin", ("system:masters", "system:authenticated"))
ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


class Authenticator:
    """Knows the valid tokens. With `insecure` everyone is the administrator."""

    def __init__(self, token: str, *, insecure: bool) -> None:
        self._admin = f"Bearer {token}".encode()
        self._tokens: dict[str, User] = {}
        self._insecure = insecure

    def accept(self, token: str, user: User) -> None:
        """Makes a token valid for as long as the server runs."""
        self._tokens[token] = user

    def user_of(self, token: str) -> User | None:
        """The user of a token, for TokenReview."""
        if hmac.compare_digest(_bytes(f"Bearer {token}"), self._admin):
            return ADMIN
        return self._tokens.get(token)

    def authenticate(self, path: str, authorization: str | None, transport: Any) -> User:
        """The user of a request. Raises 401."""
        if authorization is not None:
            if hmac.compare_digest(_bytes(authorization), self._admin):
                return ADMIN
            scheme, _, token = authorization.partition(" ")
            user = self._tokens.get(token.strip()) if scheme.lower() == "bearer" else None
            if user is not None:
                return user
            if not self._insecure:
                raise unauthorized()
        if self._insecure:
            return ADMIN
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        if certificate:
            return _certified(certificate)
        if path in ANONYMOUS_PATHS or path.startswith(("/livez/", "/readyz/", "/healthz/")):
            return ANONYMOUS
        raise unauthorized()


def _bytes(header: str) -> bytes:
    """What came; bytes that are no UTF-8 came as lone surrogates."""
    return header.encode("utf-8", "surrogatepass")


def _certified(certificate: dict[str, Any]) -> User:
    names: list[str] = []
    groups: list[str] = []
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                names.append(value)
            elif key == "organizationName":
                groups.append(value)
    return User(names[-1] if names else "", (*groups, "system:authenticated"))

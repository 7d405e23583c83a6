"""Authentication of users by bearer tokens and client certificates."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from phalanx_local.errors import unauthorized

ANONYMOUS_PATHS = frozenset(("/healthz", "/livez", "/readyz", "/version"))


@dataclass(frozen=True, slots=True)
class User:
    """Authenticated user."""

    name: str
    groups: tuple[str, ...] = ("system:authenticated",)
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)


#: User as which the server's controllers act for policies and webhooks.
CONTROLLER_MANAGER: Final = User("system:kube-controller-manager", ("system:authenticated",))


def account_user(namespace: str, name: str) -> str:
    """Return the user name that RBAC uses for a service account."""
    return f"system:serviceaccount:{namespace}:{name}"


def account_groups(namespace: str) -> tuple[str, ...]:
    """Return the groups of the users who authenticate with a service account's token."""
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")


ADMIN = User("kubernetes-admin", ("system:masters", "system:authenticated"))
ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


class Authenticator:
    """Authenticator with the valid tokens: the administrator's, those of `users`, and those that `accounts`
    accepts.

    With `insecure`, users without a valid token are administrators.
    """

    def __init__(
        self,
        token: str,
        *,
        insecure: bool,
        users: Mapping[str, User] | None = None,
        accounts: Callable[[str], User | None] | None = None,
    ) -> None:
        self._admin = f"Bearer {token}".encode()
        self._users = dict(users or {})
        self._accounts = accounts
        self._insecure = insecure

    def user_of(self, token: str) -> User | None:
        """Return the user of a bearer token, for TokenReview; None for an invalid token."""
        if hmac.compare_digest(_bytes(f"Bearer {token}"), self._admin):
            return ADMIN
        return self._known(token)

    def _known(self, token: str) -> User | None:
        user = self._users.get(token)
        if user is None and self._accounts is not None:
            user = self._accounts(token)
        return user

    def authenticate(self, path: str, authorization: str | None, transport: Any) -> User:
        """Return the user of a request by its bearer token or client certificate. Raise 401 without a valid one."""
        if authorization is not None:
            if hmac.compare_digest(_bytes(authorization), self._admin):
                return ADMIN
            scheme, _, token = authorization.partition(" ")
            user = self._known(token.strip()) if scheme.lower() == "bearer" else None
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
    """Encode an HTTP header; bytes outside of UTF-8 arrive as lone surrogates."""
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

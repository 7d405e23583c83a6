"""Client identities and their renewal: static, from a token file, from an exec plugin."""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from phalanx.kube.causes import cause_text
from phalanx.kube.errors import ConfigError

__all__ = ["ClientCertificate", "ClientIdentity", "Credentials", "StaticCredentials", "TokenFileCredentials"]

log = logging.getLogger(__name__)

#: Seconds between two reads of a token file. The kubelet replaces a service account token at 80 % of its
#: lifetime (one hour by default), so a delay of one minute is harmless.
TOKEN_FILE_PERIOD = 60.0


@dataclass(frozen=True)
class ClientCertificate:
    """Client certificate chain and its key, both PEM. The repr hides the key."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "ClientCertificate(...)"


@dataclass(frozen=True)
class ClientIdentity:
    """Identity that a request sends: an Authorization header value, a certificate of an exec plugin, or neither."""

    authorization: str | None = None
    certificate: ClientCertificate | None = None

    def __repr__(self) -> str:
        shown = (self.authorization or "").partition(" ")[0] or "none"
        return f"Identity({shown}, certificate={self.certificate is not None})"


class Credentials(Protocol):
    """Source of client identities. One client, one event loop; the same object may serve many requests at once."""

    def cached(self) -> ClientIdentity | None:
        """Return the cached identity if it is not expired; None if the caller has to await ``current``."""

    async def current(self) -> ClientIdentity:
        """Return the identity for a request now, renewed if it is due. Raises ConfigError without a usable
        identity."""

    async def renew(self, rejected: ClientIdentity) -> ClientIdentity | None:
        """Return another identity than the one that the server rejected with 401; None if there is no other."""


def bearer(token: str, origin: str) -> str:
    """Return the Authorization header value for a token. Raises ConfigError if the token does not fit into one
    header line."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f"{origin}: the token has characters that cannot be in a header")
    return f"Bearer {token}"


@dataclass(frozen=True)
class StaticCredentials:
    """Credentials that never change: a token, a name and password, or nothing (client certificates, anonymous)."""

    identity: ClientIdentity = ClientIdentity()

    @classmethod
    def token(cls, token: str, origin: str = "token") -> StaticCredentials:
        return cls(ClientIdentity(bearer(token, origin)))

    @classmethod
    def basic(cls, username: str, password: str) -> StaticCredentials:
        pair = base64.b64encode(f"{username}:{password}".encode()).decode()
        return cls(ClientIdentity(f"Basic {pair}"))

    def cached(self) -> ClientIdentity | None:
        return self.identity

    async def current(self) -> ClientIdentity:
        return self.identity

    async def renew(self, rejected: ClientIdentity) -> ClientIdentity | None:
        return None if rejected == self.identity else self.identity


class TokenFileCredentials:
    """Credentials from a bearer token in a file that another process rotates.

    The file is read again every ``period`` seconds and after a 401. If it is unreadable, the last valid token
    stays in use, so a half-written rotation is harmless. Without a last token ``fallback`` is used
    (a kubeconfig can have both ``token`` and ``tokenFile``); without a fallback it is a ConfigError.
    """

    def __init__(
        self,
        path: str,
        *,
        fallback: str | None = None,
        origin: str = "tokenFile",
        period: float = TOKEN_FILE_PERIOD,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self._fallback = fallback
        self._origin = origin
        self._period = period
        self._clock = clock
        self._identity: ClientIdentity | None = None
        self._due = float("-inf")

    def cached(self) -> ClientIdentity | None:
        return self._identity if self._clock() < self._due else None

    async def current(self) -> ClientIdentity:
        return self.cached() or self._read()

    async def renew(self, rejected: ClientIdentity) -> ClientIdentity | None:
        renewed = self._read()
        return None if renewed == rejected else renewed

    def _read(self) -> ClientIdentity:
        self._due = self._clock() + self._period
        try:
            token = Path(self.path).read_text(encoding="utf-8").strip()
            if not token:
                raise ConfigError(f"{self._origin}: {self.path} is empty")
            self._identity = ClientIdentity(bearer(token, f"{self._origin}: {self.path}"))
        except (OSError, UnicodeDecodeError, ConfigError) as error:
            if self._identity is not None:
                log.warning("keeping the last good token: %s", error)
            elif self._fallback is not None:
                self._identity = ClientIdentity(bearer(self._fallback, self._origin))
            elif isinstance(error, ConfigError):
                self._due = float("-inf")
                raise
            else:
                self._due = float("-inf")
                raise ConfigError(
                    f"{self._origin}: cannot read the token in {self.path}: {cause_text(error)}"
                ) from error
        return self._identity


class RenewableCredentials:
    """Base of identity sources that answer slowly: one renewal at a time, and all concurrent requests await its
    result.

    A subclass implements ``obtain``: it returns an identity and its expiry (wall clock, Unix seconds; None for
    no expiry).
    """

    def __init__(self, *, wall_clock: Callable[[], float] = time.time) -> None:
        self._wall_clock = wall_clock
        self._identity: ClientIdentity | None = None
        self._expires: float | None = None
        self._renewal = asyncio.Lock()

    async def obtain(self) -> tuple[ClientIdentity, float | None]:
        raise NotImplementedError

    def cached(self) -> ClientIdentity | None:
        if self._expires is not None and self._wall_clock() >= self._expires:
            return None
        return self._identity

    async def current(self) -> ClientIdentity:
        async with self._renewal:
            return self.cached() or await self._replace()

    async def renew(self, rejected: ClientIdentity) -> ClientIdentity | None:
        async with self._renewal:
            known = self.cached()
            if known is not None and known != rejected:
                return known  # another request has already renewed it after the same 401
            renewed = await self._replace()
            return None if renewed == rejected else renewed

    async def _replace(self) -> ClientIdentity:
        self._identity, self._expires = await self.obtain()
        return self._identity

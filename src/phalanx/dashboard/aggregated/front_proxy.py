"""Authentication by the front proxy of the API server: its certificate, and the headers that name the user.

The rules are those of every extension API server: `k8s.io/apiserver`, packages `headerrequest` and `x509`.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from phalanx.dashboard.access import Viewer, ViewerAccessError
from phalanx.kube.auth.certificate_secret import load_chain, server_context
from phalanx.model.text.decoding import decode_json

SUPERUSERS = "system:masters"
_AUTHENTICATED, _UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"
_ANONYMOUS = "system:anonymous"


class FrontProxyError(Exception):
    """Error for a configuration of the front proxy that cannot be used."""


class FrontProxy(msgspec.Struct, frozen=True):
    """Configuration of the front proxy.

    `authorities` (PEM) sign its certificate, whose common name is one of `names` (empty: any). The other fields are
    names of headers with the user name, the uid, the groups, and prefixes of headers with extra values.
    """

    authorities: bytes
    names: tuple[str, ...]
    user_headers: tuple[str, ...]
    uid_headers: tuple[str, ...]
    group_headers: tuple[str, ...]
    extra_prefixes: tuple[str, ...]

    def viewer(self, headers: Mapping[str, str]) -> Viewer:
        """Return the user that the headers of a request name. Raises ViewerAccessError (401).

        Call it only for requests of the front proxy: every other client can send such headers too.
        """
        pairs = [(name.lower(), value) for name, value in headers.items()]
        if not all(value.isprintable() for name, value in pairs if self._names_user(name)):
            raise ViewerAccessError(401, "a header about the user has unprintable characters")
        name = next((value for value in map(_first(pairs), self.user_headers) if value), "")
        if not name:
            raise ViewerAccessError(401, "the front proxy names no user")
        groups = [value for header in self.group_headers for value in _all(pairs, header) if value]
        if name != _ANONYMOUS and not {_AUTHENTICATED, _UNAUTHENTICATED} & set(groups):
            groups.append(_AUTHENTICATED)
        uid = next((value for value in map(_first(pairs), self.uid_headers) if value), "")
        extra: dict[str, tuple[str, ...]] = {}
        for prefix in self.extra_prefixes:
            for header, value in pairs:
                if header.startswith(prefix.lower()):
                    key = unquote(header[len(prefix) :])
                    extra[key] = (*extra.get(key, ()), value)
        return Viewer(name, tuple(groups), uid, tuple(sorted(extra.items())))

    def _names_user(self, header: str) -> bool:
        exact = (*self.user_headers, *self.uid_headers, *self.group_headers)
        prefixes = tuple(prefix.lower() for prefix in self.extra_prefixes)
        return header in map(str.lower, exact) or header.startswith(prefixes)


def read_front_proxy(data: Mapping[str, str]) -> FrontProxy:
    """Return the configuration in the data of the ConfigMap. Raises FrontProxyError."""
    authorities = data.get("requestheader-client-ca-file") or ""
    if not authorities.strip():
        raise FrontProxyError("the API server has no front proxy (--requestheader-client-ca-file)")
    proxy = FrontProxy(
        authorities.encode(),
        _listed(data, "requestheader-allowed-names"),
        _listed(data, "requestheader-username-headers"),
        _listed(data, "requestheader-uid-headers"),
        _listed(data, "requestheader-group-headers"),
        _listed(data, "requestheader-extra-headers-prefix"),
    )
    if not proxy.user_headers:
        raise FrontProxyError("requestheader-username-headers is empty")
    try:
        certificates = x509.load_pem_x509_certificates(proxy.authorities)
    except ValueError as error:
        raise FrontProxyError(f"requestheader-client-ca-file: {error}") from error
    if not proxy.names and _keys(certificates) & _user_keys(data):
        raise FrontProxyError(
            "requestheader-allowed-names is empty, and an authority of the front proxy also signs certificates of "
            "users, so that each user could act as another; set --requestheader-allowed-names"
        )
    return proxy


def _user_keys(data: Mapping[str, str]) -> set[bytes]:
    """Return the public keys of the authorities that sign certificates of users, as far as they are readable."""
    try:
        return _keys(x509.load_pem_x509_certificates((data.get("client-ca-file") or "").encode()))
    except ValueError:
        return set()


def _keys(certificates: Iterable[x509.Certificate]) -> set[bytes]:
    form = PublicFormat.SubjectPublicKeyInfo
    return {item.public_key().public_bytes(Encoding.DER, form) for item in certificates}


class ProxyTrust(ssl.SSLContext):
    """TLS context of the aggregated API. Each new connection is verified by the newest certificates.

    `use` replaces the configuration. A connection that was verified by replaced authorities is refused, as is one
    whose certificate has expired since: `request_viewer` checks each request.
    """

    proxy: FrontProxy | None
    _current: ssl.SSLContext | None
    _loaded: tuple[bytes, bytes]
    _now: Callable[[], float]

    @classmethod
    def new(cls, now: Callable[[], float] = time.time) -> ProxyTrust:
        trust = cls(ssl.PROTOCOL_TLS_SERVER)
        trust.proxy, trust._current, trust._loaded, trust._now = None, None, (b"", b""), now
        return trust

    @property
    def usable(self) -> bool:
        return self._current is not None

    def use(self, proxy: FrontProxy, chain: bytes) -> None:
        """Verify clients by the unexpired authorities of `proxy`, and present the certificate of `chain` (PEM).

        Raises OSError and ValueError for certificates that cannot be loaded; the configuration in use remains so.
        """
        authorities = _unexpired(proxy.authorities, self._now())
        if (authorities, chain) != self._loaded:
            self._current = self._context(authorities, chain)
            self._loaded = (authorities, chain)
        self.proxy = proxy

    @staticmethod
    def _context(authorities: bytes, chain: bytes) -> ssl.SSLContext:
        context = server_context()
        load_chain(context, chain)
        # Probes and discovery of the server itself have no certificate.
        context.verify_mode = ssl.CERT_OPTIONAL
        # As in Go, each listed certificate is an anchor, root or not.
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
        if authorities:
            context.load_verify_locations(cadata=authorities.decode("ascii"))
        # A resumed session would not be verified again.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        return context

    def wrap_bio(self, *arguments: Any, **more: Any) -> ssl.SSLObject:
        """Begin a connection with the newest certificates."""
        assert self._current is not None
        return self._current.wrap_bio(*arguments, **more)

    def request_viewer(self, request: web.Request) -> Viewer:
        """Return the user for whom the front proxy sends a request. Raises ViewerAccessError (401) for a request of
        any other client, whatever its headers."""
        transport = request.transport
        connection = transport.get_extra_info("ssl_object") if transport is not None else None
        certificate = connection.getpeercert() if connection is not None else None
        if connection is None or not certificate or self.proxy is None:
            raise ViewerAccessError(401, "requests need the certificate of the front proxy")
        if connection.context is not self._current or not _is_current(certificate, self._now()):
            # The client connects again, and is verified again.
            raise ViewerAccessError(401, "the certificate of this connection is no longer valid")
        name = _common_name(certificate)
        if self.proxy.names and name not in self.proxy.names:
            raise ViewerAccessError(401, "the certificate is not of the front proxy")
        return self.proxy.viewer(request.headers)


def _listed(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    """Return a list that the API server writes as JSON; () for an absent one."""
    try:
        listed = decode_json((data.get(key) or "[]").encode(), tuple[str, ...])
    except msgspec.DecodeError as error:
        raise FrontProxyError(f"{key}: {error}") from error
    return tuple(stripped for name in listed if (stripped := name.strip()))


def _unexpired(authorities: bytes, now: float) -> bytes:
    certificates = x509.load_pem_x509_certificates(authorities)
    valid = [item for item in certificates if item.not_valid_after_utc.timestamp() > now]
    return b"".join(item.public_bytes(Encoding.PEM) for item in valid)


def _is_current(certificate: Mapping[str, Any], now: float) -> bool:
    return ssl.cert_time_to_seconds(certificate["notAfter"]) > now


def _common_name(certificate: Mapping[str, Any]) -> str:
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return names[-1] if names else ""


def _first(pairs: list[tuple[str, str]]) -> Callable[[str], str]:
    return lambda header: next(iter(_all(pairs, header)), "")


def _all(pairs: list[tuple[str, str]], header: str) -> list[str]:
    return [value for name, value in pairs if name == header.lower()]

"""Tokens of service accounts: signed, with an expiry, and invalid as soon as their bound objects are deleted.

https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#bound-service-account-tokens
"""

from __future__ import annotations

import base64
import csv
import hashlib
import hmac
import uuid
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from phalanx_local.authentication.authenticator import User, account_groups, account_user
from phalanx_local.clock import timestamp
from phalanx_local.errors import FieldCause, conflict, invalid, not_found, wrong_value
from phalanx_local.objects import Json, decode, encode, mapping, sequence, text
from phalanx_local.registry.api import Api
from phalanx_local.storage.records import Key, Record
from phalanx_local.strategies.base import Write

ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
_DEFAULT_SECONDS: Final = 3600
_MIN_SECONDS: Final = 600
_MAX_SECONDS: Final = 1 << 32
_CACHE_SIZE: Final = 1024
_PRIVATE: Final = "kubernetes.io"
_HEADER: Final = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').rstrip(b"=")
# Kinds to which a token can be bound, with their plurals.
_BOUND: Final = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}


class _Claims(msgspec.Struct):
    """JWT claims of a service account token that the server reads."""

    aud: list[str]
    exp: int
    sub: str
    jti: str
    private: dict[str, object] = msgspec.field(name=_PRIVATE)


class _Read(NamedTuple):
    """Decoded service account token: its user, its expiry, and the objects that must still exist (storage, key,
    uid)."""

    user: User
    expires: int
    bound: tuple[tuple[str, Key, str], ...]


class AccountTokens:
    """Issuer and validator of service account tokens. `key` signs them; any holder of `key` can act as every
    service account."""

    def __init__(self, api: Api, key: bytes) -> None:
        self._api = api
        self._key = key
        self._read: dict[str, _Read] = {}

    def issue(self, record: Record, body: Json, write: Write) -> Json:
        """Answer a TokenRequest for a service account. Raise 404, 409 or 422 for an invalid request."""
        spec = mapping(body.get("spec"))
        seconds = spec.get("expirationSeconds")
        seconds = _DEFAULT_SECONDS if seconds is None else seconds
        audiences = [item for item in sequence(spec.get("audiences")) if isinstance(item, str)] or [ISSUER]
        wrong = _check_seconds(seconds)
        if wrong:
            raise invalid(_REQUEST, record.name, wrong)
        now = int(self._api.clock.now())
        private: Json = {
            "namespace": record.namespace,
            "serviceaccount": {"name": record.name, "uid": record.uid},
            **self._bound(record.namespace, mapping(spec.get("boundObjectRef"))),
        }
        claims: Json = {
            "aud": audiences,
            "exp": now + seconds,
            "iat": now,
            "iss": ISSUER,
            "jti": str(uuid.uuid4()),
            _PRIVATE: private,
            "nbf": now,
            "sub": account_user(record.namespace, record.name),
        }
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": record.name, "namespace": record.namespace, "creationTimestamp": write.now},
            "spec": {**spec, "audiences": audiences, "expirationSeconds": seconds},
            "status": {"token": self._sign(claims), "expirationTimestamp": timestamp(now + seconds)},
        }

    def user_of(self, token: str) -> User | None:
        """Return the user of a token; None if the token has another issuer or audience, is expired, or its account
        is deleted."""
        read = self._read.get(token)
        if read is None:
            claims = self._claims(token)
            if claims is None or ISSUER not in claims.aud:
                return None
            if len(self._read) >= _CACHE_SIZE:
                self._read.clear()
            read = self._read[token] = _read(claims)
        if read.expires <= self._api.clock.now():
            return None
        for storage, key, uid in read.bound:
            collection = self._api.store.collections.get(storage)
            record = collection.records.get(key) if collection is not None else None
            if record is None or record.uid != uid:
                return None
        return read.user

    def _bound(self, namespace: str, reference: Json) -> Json:
        """Return the JWT claim about the object to which the token is bound; {} without such an object."""
        if not reference:
            return {}
        kind, name = text(reference.get("kind")), text(reference.get("name"))
        if kind not in _BOUND:
            message = "cannot bind token for serviceaccount to an object of this kind; use Pod, Secret or Node"
            raise invalid(_REQUEST, name, [wrong_value("spec.boundObjectRef", kind, message)])
        type_ = self._api.type("", _BOUND[kind])
        record = self._api.collection(type_).records.get(("" if kind == "Node" else namespace, name))
        if record is None:
            raise not_found(type_, name)
        uid = text(reference.get("uid"))
        if uid and uid != record.uid:
            message = (
                f"the UID in the bound object reference ({uid}) does not match the UID in record ({record.uid}). "
            )
            raise conflict(type_, name, f"{message}The object might have been deleted and then recreated")
        return {kind.lower(): {"name": name, "uid": record.uid}}

    def _sign(self, claims: Json) -> str:
        payload = _HEADER + b"." + base64.urlsafe_b64encode(encode(claims)).rstrip(b"=")
        return (payload + b"." + self._signature(payload)).decode()

    def _signature(self, payload: bytes) -> bytes:
        return base64.urlsafe_b64encode(hmac.digest(self._key, payload, hashlib.sha256)).rstrip(b"=")

    def _claims(self, token: str) -> _Claims | None:
        payload, _, signature = token.encode("utf-8", "replace").rpartition(b".")
        if not hmac.compare_digest(signature, self._signature(payload)):
            return None
        body = payload.partition(b".")[2]
        return msgspec.convert(decode(base64.urlsafe_b64decode(body + b"=" * (-len(body) % 4))), _Claims)


def _read(claims: _Claims) -> _Read:
    private = claims.private
    namespace, account = text(private.get("namespace")), mapping(private.get("serviceaccount"))
    name, uid = text(account.get("name")), text(account.get("uid"))
    bound = [("/serviceaccounts", (namespace, name), uid)]
    extra = {"authentication.kubernetes.io/credential-id": (f"JTI={claims.jti}",)}
    for kind, plural in _BOUND.items():
        reference = mapping(private.get(kind.lower()))
        if reference:
            bound_name, bound_uid = text(reference.get("name")), text(reference.get("uid"))
            bound.append((f"/{plural}", ("" if kind == "Node" else namespace, bound_name), bound_uid))
            if kind != "Secret":
                extra[f"authentication.kubernetes.io/{kind.lower()}-name"] = (bound_name,)
                extra[f"authentication.kubernetes.io/{kind.lower()}-uid"] = (bound_uid,)
    user = User(account_user(namespace, name), account_groups(namespace), uid, extra)
    return _Read(user, claims.exp, tuple(bound))


def read_users(path: Path) -> dict[str, User]:
    """Return users by token from a file for kube-apiserver's --token-auth-file: token,user,uid and groups in one
    field.

    Raises ValueError with file and line for an invalid line.
    """
    try:
        return _read_users(path)
    except csv.Error as error:
        raise ValueError(f"{path}: {error}") from error


def _read_users(path: Path) -> dict[str, User]:
    users: dict[str, User] = {}
    with path.open(encoding="utf-8", newline="") as lines:
        for number, row in enumerate(csv.reader(lines, skipinitialspace=True), start=1):
            if not row:
                continue
            if len(row) < 3 or not row[0] or not row[1]:
                raise ValueError(f'{path}:{number}: write token,user,uid or token,user,uid,"group1,group2"')
            listed = row[3].split(",") if len(row) > 3 else []
            groups = [group.strip() for group in listed if group.strip()]
            users[row[0]] = User(row[1], (*groups, "system:authenticated"), row[2])
    return users


class _Resource:
    group: Final = "authentication.k8s.io"
    plural: Final = "tokenrequests"
    kind: Final = "TokenRequest"


_REQUEST: Final = _Resource()


def _check_seconds(seconds: object) -> list[FieldCause]:
    field = "spec.expirationSeconds"
    if not isinstance(seconds, int) or isinstance(seconds, bool):
        return [wrong_value(field, seconds, "must be a number of seconds")]
    if seconds < _MIN_SECONDS:
        return [wrong_value(field, seconds, "may not specify a duration less than 10 minutes")]
    if seconds > _MAX_SECONDS:
        return [wrong_value(field, seconds, "may not specify a duration larger than 2^32 seconds")]
    return []

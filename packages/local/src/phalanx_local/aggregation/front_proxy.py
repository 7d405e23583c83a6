"""Identity of the API server as a front proxy: certificate, headers, and the ConfigMap that publishes them."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from phalanx_local.authentication.authenticator import User
from phalanx_local.authentication.certificates import Authority, load_pair
from phalanx_local.objects import Json
from phalanx_local.registry.api import Api

CLIENT_NAME: Final = "front-proxy-client"
CONFIG_MAP: Final = "extension-apiserver-authentication"
READER: Final = "extension-apiserver-authentication-reader"
_NAMESPACE: Final = "kube-system"
_RBAC: Final = "rbac.authorization.k8s.io"
_USER, _UID, _GROUP, _EXTRA = "X-Remote-User", "X-Remote-Uid", "X-Remote-Group", "X-Remote-Extra-"
# Headers that name the user here or at another server, or belong to one connection.
_OWN_HEADERS: Final = frozenset(
    (
        "authorization",
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
_OWN_PREFIXES: Final = ("x-remote-", "impersonate-")


class FrontProxyIdentity:
    """Certificate of the front proxy, signed by an authority of its own, new at each start."""

    def __init__(self) -> None:
        self.authority = Authority(name="phalanx-front-proxy-ca")
        self._client = self.authority.client_pair(CLIENT_NAME)

    def load_into(self, context: ssl.SSLContext) -> None:
        """Let connections of a TLS context present the certificate of the front proxy."""
        load_pair(context, self._client)

    def publish(self, api: Api, client_authority: bytes | None) -> None:
        """Write the ConfigMap with the configuration of the front proxy, and the role that allows to read it."""
        data = {
            "requestheader-client-ca-file": self.authority.certificate.decode(),
            "requestheader-allowed-names": json.dumps([CLIENT_NAME]),
            "requestheader-username-headers": json.dumps([_USER]),
            "requestheader-uid-headers": json.dumps([_UID]),
            "requestheader-group-headers": json.dumps([_GROUP]),
            "requestheader-extra-headers-prefix": json.dumps([_EXTRA]),
        }
        if client_authority is not None:
            data["client-ca-file"] = client_authority.decode()
        maps = api.type("", "configmaps").preferred
        stored = api.find("", "configmaps", _NAMESPACE, CONFIG_MAP)
        if stored is None:
            body: Json = {"metadata": {"name": CONFIG_MAP}, "data": data}
            api.create(maps, _NAMESPACE, body, api.write())
        else:
            record = api.record(maps.type, _NAMESPACE, CONFIG_MAP)
            api.save(maps.type, record, {**stored, "data": data}, stored, api.write())
        if not api.exists(_RBAC, "roles", _NAMESPACE, READER):
            rule = {
                "apiGroups": [""],
                "resources": ["configmaps"],
                "resourceNames": [CONFIG_MAP],
                "verbs": ["get", "list", "watch"],
            }
            role: Json = {"metadata": {"name": READER}, "rules": [rule]}
            api.create(api.type(_RBAC, "roles").preferred, _NAMESPACE, role, api.write())


def forwarded_headers(headers: Mapping[str, str], user: User) -> list[tuple[str, str]]:
    """Return the headers of a forwarded request: those of the client without any that name a user, and those that
    name `user`."""
    kept = [
        (name, value)
        for name, value in headers.items()
        if name.lower() not in _OWN_HEADERS and not name.lower().startswith(_OWN_PREFIXES)
    ]
    return [*kept, *user_headers(user)]


def user_headers(user: User) -> list[tuple[str, str]]:
    """Return the headers by which the front proxy names a user."""
    named = [(_USER, user.name), *((_GROUP, group) for group in user.groups)]
    if user.uid:
        named.append((_UID, user.uid))
    for key, values in user.extra.items():
        named += [(f"{_EXTRA}{quote(key, safe='')}", value) for value in values]
    return named

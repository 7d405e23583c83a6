"""Authentication and authorization of callers of the log server, delegated to the API server as a kubelet does it.

https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.paths import Resource
from phalanx.model.text.decoding import decode_json

log = logging.getLogger(__name__)

_TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
# ConfigMap in which a kube-apiserver publishes the CA of client certificates.
_PUBLISHED_AUTHORITY = Resource("", "v1", "configmaps").path("kube-system", "extension-apiserver-authentication")
_GROUP = "system:authenticated"


class Caller(msgspec.Struct, frozen=True):
    """Authenticated client of the node agent's log server."""

    user: str
    groups: tuple[str, ...]


class Refusal(msgspec.Struct, frozen=True):
    """HTTP status and text with which the log server refuses a client."""

    status: int
    text: str


class LogAccess(Protocol):
    """Interface of the access check of a node agent's log server: which clients can read container logs."""

    async def client_authorities(self) -> str:
        """Return the PEM certificates of the authorities whose client certificates the log server accepts."""

    async def refuse(self, authorization: str | None, certificate: Mapping[str, Any] | None) -> Refusal | None:
        """Return the refusal of a client by its Authorization header and verified certificate; None if the client
        can read logs."""


class AnonymousAccess:
    """Access check that allows every local user to read logs."""

    async def client_authorities(self) -> str:
        return ""

    async def refuse(self, authorization: str | None, certificate: Mapping[str, Any] | None) -> Refusal | None:
        return None


class DelegatedAccess:
    """Access check that requires the RBAC right to `get nodes/proxy`, by client certificate or bearer token.

    Certificates are accepted from the authority of the kubeconfig and from the published client authority.
    """

    def __init__(self, client: KubeClient, config: ClusterConfig) -> None:
        self._client = client
        self._tls = config.tls

    async def client_authorities(self) -> str:
        authorities: list[str] = []
        try:
            authorities.append(self._own_authority())
            published = decode_json(await self._client.request("GET", _PUBLISHED_AUTHORITY))
            authorities.append((published.get("data") or {}).get("client-ca-file") or "")
        except (ApiError, ConnectionLost, OSError) as error:
            log.debug("no further authority for callers of the log server: %s", error)
        return "\n".join(authorities)

    def _own_authority(self) -> str:
        if self._tls.authority or not self._tls.authority_file:
            return (self._tls.authority or b"").decode("ascii", "replace")
        return Path(self._tls.authority_file).read_text("ascii", "replace")

    async def refuse(self, authorization: str | None, certificate: Mapping[str, Any] | None) -> Refusal | None:
        try:
            caller = _certified(certificate) if certificate else await self._token_user(authorization)
            if caller is None:
                return Refusal(
                    401,
                    "Unauthorized: logs need a client certificate of the API server (kube-apiserver "
                    "--kubelet-client-certificate) or a bearer token; `phalanx node-agent --anonymous-logs` serves "
                    "every local user",
                )
            if await self._allowed(caller):
                return None
        except (ApiError, ConnectionLost) as error:
            return Refusal(503, f"the API server cannot review the caller: {error}")
        return Refusal(403, f'Forbidden: user "{caller.user}" cannot get nodes/proxy')

    async def _token_user(self, authorization: str | None) -> Caller | None:
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return None
        review = {
            "apiVersion": _TOKEN_REVIEWS.api_version,
            "kind": _TOKEN_REVIEWS.kind,
            "spec": {"token": token.strip()},
        }
        status = (await self._client.create(_TOKEN_REVIEWS.path(), review)).get("status") or {}
        if status.get("authenticated") is not True:
            return None
        user = status.get("user") or {}
        return Caller(user.get("username") or "", tuple(user.get("groups") or ()))

    async def _allowed(self, caller: Caller) -> bool:
        review = {
            "apiVersion": _ACCESS_REVIEWS.api_version,
            "kind": _ACCESS_REVIEWS.kind,
            "spec": {
                "user": caller.user,
                "groups": list(caller.groups),
                "resourceAttributes": {"verb": "get", "resource": "nodes", "subresource": "proxy"},
            },
        }
        answer = await self._client.create(_ACCESS_REVIEWS.path(), review)
        return (answer.get("status") or {}).get("allowed") is True


def _certified(certificate: Mapping[str, Any]) -> Caller:
    """Return the user of a verified client certificate: its common name, and its organizations as groups."""
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    names = [value for key, value in subject if key == "commonName"]
    groups = [value for key, value in subject if key == "organizationName"]
    return Caller(names[-1] if names else "", (*groups, _GROUP))

"""Who may look into the process: by the API server's word, as for its own non-resource paths."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConnectionLost

_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
#: An answer holds for so many seconds, a refusal for fewer: somebody may be waiting for a right.
_ALLOWED_FOR, _REFUSED_FOR = 30.0, 5.0
_MOST_KEPT = 1000


class AccessError(Exception):
    """`status` is the HTTP status of the refusal: 401 who are you, 403 you may not, 503 nobody can tell."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class PathAccess:
    """Asks with a TokenReview who sends a bearer token, and with a SubjectAccessReview whether he may `get` a path,
    or list pods.

    Answers are kept by a hash of the token, so that a poller does not ask the API server each time.
    """

    def __init__(self, client: KubeClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._known: OrderedDict[tuple[bytes, str], tuple[float, AccessError | None]] = OrderedDict()

    async def check(self, authorization: str, path: str) -> None:
        """Returns where the sender of the header may get the path. Raises AccessError."""
        await self._check(authorization, path, {"nonResourceAttributes": {"path": path, "verb": "get"}})

    async def check_pods(self, authorization: str, namespace: str) -> None:
        """The same where he may list the pods of a namespace ("": of all)."""
        asked = {"resourceAttributes": {"verb": "list", "resource": "pods", "namespace": namespace}}
        await self._check(authorization, f"pods of {namespace or 'all namespaces'}", asked)

    async def _check(self, authorization: str, what: str, asked: dict[str, Any]) -> None:
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise AccessError(401, "send a bearer token: `kubectl create token NAME`")
        key = (hashlib.blake2b(token.encode("utf-8", "replace"), digest_size=16).digest(), what)
        until, refusal = self._known.get(key, (0.0, None))
        if until <= self._clock():
            refusal = await self._ask(token.strip(), what, asked)
            if refusal is None or refusal.status != 503:
                until = self._clock() + (_ALLOWED_FOR if refusal is None else _REFUSED_FOR)
                self._known[key] = (until, refusal)
                self._known.move_to_end(key)
                while len(self._known) > _MOST_KEPT:
                    self._known.popitem(last=False)
        if refusal is not None:
            raise refusal

    async def _ask(self, token: str, what: str, attributes: dict[str, Any]) -> AccessError | None:
        try:
            review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
            status = (await self._client.create(_TOKENS, review)).get("status") or {}
            if not status.get("authenticated"):
                return AccessError(401, "the API server does not know this token")
            user = status.get("user") or {}
            asked = {
                "user": user.get("username", ""),
                "groups": user.get("groups") or [],
                "uid": user.get("uid", ""),
                "extra": user.get("extra") or {},
                **attributes,
            }
            access = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": asked}
            answer = (await self._client.create(_ACCESS, access)).get("status") or {}
        except (ApiError, ConnectionLost) as error:
            return AccessError(503, f"the API server cannot tell who may look: {error}")
        if answer.get("allowed"):
            return None
        wanted = f"get the path {what}" if "nonResourceAttributes" in attributes else f"list the {what}"
        return AccessError(403, f"user {asked['user']!r} may not {wanted}")

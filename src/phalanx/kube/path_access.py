"""Access to the HTTP endpoints of this process, authorized by the API server as for its non-resource paths."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.model.text.decoding import quoted

_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
#: Seconds for which an answer is cached; a refusal for less, because the user can be waiting for a new right.
_ALLOWED_FOR, _REFUSED_FOR = 30.0, 5.0
_MAX_CACHED = 1000


class AccessError(Exception):
    """Refusal of a request to an endpoint of this process. `status` is the HTTP status: 401 unknown token, 403
    forbidden, 503 API server does not answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class PathAccess:
    """Check of access to this process's endpoints: a TokenReview identifies the sender of a bearer token, and a
    SubjectAccessReview decides about `get` of a path or `list` of pods.

    Answers are cached by a hash of the token, so that a polling client does not cause a request each time.
    """

    def __init__(self, client: KubeClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._cache: OrderedDict[tuple[bytes, str], tuple[float, AccessError | None]] = OrderedDict()

    async def check(self, authorization: str, path: str) -> None:
        """Raise AccessError unless the sender of the Authorization header is allowed to get the path."""
        await self._check(authorization, path, {"nonResourceAttributes": {"path": path, "verb": "get"}})

    async def check_pods(self, authorization: str, namespace: str) -> None:
        """Raise AccessError unless the sender of the Authorization header is allowed to list the pods of a
        namespace ("": of all)."""
        attributes = {"resourceAttributes": {"verb": "list", "resource": "pods", "namespace": namespace}}
        await self._check(authorization, f"pods of {namespace or 'all namespaces'}", attributes)

    async def _check(self, authorization: str, target: str, attributes: dict[str, Any]) -> None:
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise AccessError(401, "send a bearer token: `kubectl create token NAME`")
        key = (hashlib.blake2b(token.encode("utf-8", "replace"), digest_size=16).digest(), target)
        until, refusal = self._cache.get(key, (0.0, None))
        if until <= self._clock():
            refusal = await self._review(token.strip(), target, attributes)
            if refusal is None or refusal.status != 503:
                until = self._clock() + (_ALLOWED_FOR if refusal is None else _REFUSED_FOR)
                self._cache[key] = (until, refusal)
                self._cache.move_to_end(key)
                while len(self._cache) > _MAX_CACHED:
                    self._cache.popitem(last=False)
        if refusal is not None:
            raise refusal

    async def _review(self, token: str, target: str, attributes: dict[str, Any]) -> AccessError | None:
        try:
            review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
            status = (await self._client.create(_TOKENS, review)).get("status") or {}
            if not status.get("authenticated"):
                return AccessError(401, "the API server does not know this token")
            user = status.get("user") or {}
            access_spec = {
                "user": user.get("username", ""),
                "groups": user.get("groups") or [],
                "uid": user.get("uid", ""),
                "extra": user.get("extra") or {},
                **attributes,
            }
            access = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": access_spec}
            answer = (await self._client.create(_ACCESS, access)).get("status") or {}
        except (ApiError, ConnectionLost) as error:
            return AccessError(503, f"cannot check the access at the API server: {error}")
        if answer.get("allowed"):
            return None
        action = f"get the path {target}" if "nonResourceAttributes" in attributes else f"list the {target}"
        return AccessError(403, f"user {quoted(access_spec['user'])} is not allowed to {action}")

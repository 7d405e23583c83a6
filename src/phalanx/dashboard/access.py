"""Authentication and authorization of the page's viewers by the API server, with cached answers."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConnectionLost

_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
#: Seconds that an answer is cached. Refusals expire sooner, so that a newly granted right takes effect soon.
ALLOWED_FOR, REFUSED_FOR = 30.0, 5.0
_MOST_KEPT = 5000
_MOST_SESSIONS = 64
_LONGEST_TOKEN = 16_384

T = TypeVar("T")


class ViewerAccessError(Exception):
    """Refused request of a viewer of the page.

    `status` is the HTTP status: 401 not authenticated, 403 forbidden, 503 review unavailable.
    """

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Viewer(msgspec.Struct, frozen=True):
    """User of the page. A `trusted` viewer sees all data: the process runs with the credentials of this user."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    trusted: bool = False

    @property
    def home(self) -> str:
        """Namespace of the viewer's service account; "" for any other user."""
        parts = self.name.split(":")
        return parts[2] if len(parts) == 4 and self.name.startswith("system:serviceaccount:") else ""


class Right(msgspec.Struct, frozen=True):
    """Resource attributes of a SubjectAccessReview; `namespace` "" means all namespaces, `name` "" any name."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def words(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else " in all namespaces"
        return f"{self.verb} {self.resource}{f'/{self.name}' if self.name else ''}{where}"


class Login(Protocol):
    """Authentication method of the page. `name` is the value of option --login."""

    name: str

    async def viewer(self, token: str) -> Viewer:
        """Return the viewer whom a bearer token authenticates. Raises ViewerAccessError."""
        ...

    async def may(self, viewer: Viewer, right: Right, *, again: bool = False) -> bool:
        """Return whether the viewer has a right in the cluster.

        With `again`, a cached refusal lives as long as a permission. Raises ViewerAccessError (503) if the review
        fails.
        """
        ...

    def exchange(self, ticket: str) -> str:
        """Return a bearer token for the one-time ticket in the page's address. Raises ViewerAccessError."""
        ...


class AddressLogin:
    """Login by the address of the page, for a process that runs with the viewer's own kubeconfig.

    The address carries a ticket that is valid for one login, so an address in a browser history is useless. The
    server calls `renewed` with each new ticket. Commands with the same kubeconfig send `own_token`, the bearer
    token of the process itself ("" for none): its holder has the rights of the process.
    """

    name = "address"

    def __init__(
        self, user: str, renewed: Callable[[str], None] = lambda ticket: None, own_token: str = ""
    ) -> None:
        self._viewer = Viewer(user, trusted=True)
        self.renewed = renewed
        self._own = _digest(own_token) if own_token else b""
        self._sessions: OrderedDict[bytes, None] = OrderedDict()
        self.ticket = ""
        self.renew()

    def renew(self) -> None:
        self.ticket = secrets.token_urlsafe(24)
        self.renewed(self.ticket)

    async def viewer(self, token: str) -> Viewer:
        digest = _digest(token)
        if digest not in self._sessions and not hmac.compare_digest(digest, self._own):
            raise ViewerAccessError(
                401, "this address was used already, or the dashboard was restarted: open the new one"
            )
        return self._viewer

    async def may(self, viewer: Viewer, right: Right, *, again: bool = False) -> bool:
        return True

    def exchange(self, ticket: str) -> str:
        if not hmac.compare_digest(ticket.encode("utf-8", "replace"), self.ticket.encode()):
            raise ViewerAccessError(
                401, "this address was used already: open the one that the dashboard printed last"
            )
        token = secrets.token_urlsafe(32)
        self._sessions[_digest(token)] = None
        while len(self._sessions) > _MOST_SESSIONS:
            self._sessions.popitem(last=False)
        self.renew()
        return token


class TokenLogin:
    """Login by bearer tokens of the API server, for a process in the cluster.

    TokenReview and SubjectAccessReview are cached (ALLOWED_FOR, REFUSED_FOR). Only hashes of tokens are stored.
    """

    name = "token"

    def __init__(
        self, client: KubeClient, audiences: tuple[str, ...] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._audiences = list(audiences)
        self._viewers: _Kept[bytes, Viewer | None] = _Kept(clock)
        self._rights: _Kept[tuple[Viewer, Right], bool] = _Kept(clock)

    async def viewer(self, token: str) -> Viewer:
        if not token or len(token) > _LONGEST_TOKEN or not token.isascii() or not token.isprintable():
            raise ViewerAccessError(401, "invalid bearer token: create one with `kubectl create token NAME`")
        key = _digest(token)
        cached = self._viewers.get(key, lambda viewer: ALLOWED_FOR if viewer is not None else REFUSED_FOR)
        if cached is None:
            cached = (await self._viewers.ask(key, lambda: self._review(token)),)
        (viewer,) = cached
        if viewer is None:
            raise ViewerAccessError(401, "the API server rejects this token: it is unknown or expired")
        return viewer

    async def may(self, viewer: Viewer, right: Right, *, again: bool = False) -> bool:
        refused_for = ALLOWED_FOR if again else REFUSED_FOR
        cached = self._rights.get((viewer, right), lambda allowed: ALLOWED_FOR if allowed else refused_for)
        if cached is None:
            return await self._rights.ask((viewer, right), lambda: self._ask(viewer, right))
        return cached[0]

    def exchange(self, ticket: str) -> str:
        raise ViewerAccessError(400, "log in with a bearer token")

    async def _review(self, token: str) -> Viewer | None:
        spec: dict[str, object] = {"token": token}
        if self._audiences:
            spec["audiences"] = self._audiences
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        try:
            status = (await self._client.create(_TOKENS, review)).get("status") or {}
        except (ApiError, ConnectionLost) as error:
            raise ViewerAccessError(503, "the API server cannot review this token now") from error
        if not status.get("authenticated"):
            return None
        if self._audiences and not set(self._audiences) & set(status.get("audiences") or ()):
            return None
        user = status.get("user") or {}
        return Viewer(
            str(user.get("username", "")),
            tuple(user.get("groups") or ()),
            str(user.get("uid", "")),
            tuple(sorted((str(key), tuple(values or ())) for key, values in (user.get("extra") or {}).items())),
        )

    async def _ask(self, viewer: Viewer, right: Right) -> bool:
        attributes = {"verb": right.verb, "group": right.group, "resource": right.resource}
        if right.namespace:
            attributes["namespace"] = right.namespace
        if right.name:
            attributes["name"] = right.name
        spec = {
            "user": viewer.name,
            "groups": list(viewer.groups),
            "uid": viewer.uid,
            "extra": {key: list(values) for key, values in viewer.extra},
            "resourceAttributes": attributes,
        }
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        try:
            status = (await self._client.create(_ACCESS, review)).get("status") or {}
        except (ApiError, ConnectionLost) as error:
            raise ViewerAccessError(503, "the API server cannot review access rights now") from error
        return status.get("allowed") is True


K = TypeVar("K")


class _Kept(Generic[K, T]):
    """Cache of review results that drops the oldest first. Concurrent lookups of one key share one review."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: OrderedDict[K, tuple[float, T]] = OrderedDict()
        self._asked: dict[K, asyncio.Task[T]] = {}

    def get(self, key: K, holds_for: Callable[[T], float]) -> tuple[T] | None:
        """Return the cached result in a tuple; None if it is unknown or older than `holds_for` seconds."""
        known = self._known.get(key)
        if known is None or self._clock() >= known[0] + holds_for(known[1]):
            return None
        return (known[1],)

    async def ask(self, key: K, question: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of the review `question`, shared between all waiting callers. Raises its errors.

        A cancelled caller does not cancel the question.
        """
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = asyncio.create_task(self._find(key, question))
        return await asyncio.shield(asked)

    async def _find(self, key: K, question: Callable[[], Coroutine[Any, Any, T]]) -> T:
        begun = self._clock()
        try:
            answer = await question()
        finally:
            del self._asked[key]
        self._known[key] = (begun, answer)
        self._known.move_to_end(key)
        while len(self._known) > _MOST_KEPT:
            self._known.popitem(last=False)
        return answer


def _digest(token: str) -> bytes:
    return hashlib.blake2b(token.encode("utf-8", "replace"), digest_size=24).digest()

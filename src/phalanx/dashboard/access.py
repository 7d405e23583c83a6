"""Who looks, and what he may see: by the API server's word, asked as seldom as is right."""

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
#: An answer holds for so many seconds, a refusal for fewer: somebody may be waiting for a right.
ALLOWED_FOR, REFUSED_FOR = 30.0, 5.0
_MOST_KEPT = 5000
_MOST_SESSIONS = 64
_LONGEST_TOKEN = 16_384

T = TypeVar("T")


class ViewerAccessError(Exception):
    """`status` is the HTTP status of the refusal: 401 who are you, 403 you may not, 503 nobody can tell."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Viewer(msgspec.Struct, frozen=True):
    """Who looks; `trusted` sees what this process sees (it runs with his own credentials)."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    trusted: bool = False

    @property
    def home(self) -> str:
        """The namespace of a service account, "" for others."""
        parts = self.name.split(":")
        return parts[2] if len(parts) == 4 and self.name.startswith("system:serviceaccount:") else ""


class Right(msgspec.Struct, frozen=True):
    """What may be allowed, as in a SubjectAccessReview; `namespace` "" for all, `name` "" for any."""

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
    """How people prove who they are. `name` is that of the option."""

    name: str

    async def viewer(self, token: str) -> Viewer:
        """Whose bearer token it is. Raises AccessError."""
        ...

    async def may(self, viewer: Viewer, right: Right, *, again: bool = False) -> bool:
        """Raises AccessError(503) where nobody can tell. `again`: a refusal may be as old as a permission."""
        ...

    def exchange(self, ticket: str) -> str:
        """A bearer token for what the address carries. Raises AccessError."""
        ...


class AddressLogin:
    """For a process that runs with the viewer's own kubeconfig: whoever has the address may look.

    The address carries a ticket that is good for one login, so that one that stays in a history opens nothing.
    `renewed` is called with each new ticket.
    """

    name = "address"

    def __init__(self, user: str, renewed: Callable[[str], None] = lambda ticket: None) -> None:
        self._viewer = Viewer(user, trusted=True)
        self.renewed = renewed
        self._sessions: OrderedDict[bytes, None] = OrderedDict()
        self.ticket = ""
        self.renew()

    def renew(self) -> None:
        self.ticket = secrets.token_urlsafe(24)
        self.renewed(self.ticket)

    async def viewer(self, token: str) -> Viewer:
        if _digest(token) not in self._sessions:
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
    """For a process in the cluster: bearer tokens of the API server, and rights by its word.

    TokenReview and SubjectAccessReview are asked once per answer's time; tokens are kept as hashes only.
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
            raise ViewerAccessError(401, "this is no bearer token: `kubectl create token NAME` makes one")
        key = _digest(token)
        found = self._viewers.get(key, lambda viewer: ALLOWED_FOR if viewer is not None else REFUSED_FOR)
        if found is None:
            found = (await self._viewers.ask(key, lambda: self._review(token)),)
        (viewer,) = found
        if viewer is None:
            raise ViewerAccessError(401, "the API server does not know this token (any more)")
        return viewer

    async def may(self, viewer: Viewer, right: Right, *, again: bool = False) -> bool:
        refused_for = ALLOWED_FOR if again else REFUSED_FOR
        found = self._rights.get((viewer, right), lambda allowed: ALLOWED_FOR if allowed else refused_for)
        if found is None:
            return await self._rights.ask((viewer, right), lambda: self._ask(viewer, right))
        return found[0]

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
            raise ViewerAccessError(503, "the API server cannot tell whose token this is") from error
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
            raise ViewerAccessError(503, "the API server cannot tell who may see what") from error
        return status.get("allowed") is True


K = TypeVar("K")


class _Kept(Generic[K, T]):
    """Answers for as long as they hold, the oldest forgotten first; one question is asked once at a time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: OrderedDict[K, tuple[float, T]] = OrderedDict()
        self._asked: dict[K, asyncio.Task[T]] = {}

    def get(self, key: K, holds_for: Callable[[T], float]) -> tuple[T] | None:
        """None for what is not known, or is older than its seconds."""
        known = self._known.get(key)
        if known is None or self._clock() >= known[0] + holds_for(known[1]):
            return None
        return (known[1],)

    async def ask(self, key: K, question: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Who gives up waiting does not end it for the others. Raises what the question raises."""
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

"""API client: one cluster, one identity, JSON requests and responses, errors as exceptions."""

from __future__ import annotations

import copy
import enum
import logging
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

import msgspec

from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.auth.credentials import ClientIdentity
from phalanx.kube.contact import Contact
from phalanx.kube.errors import ApiError, ConnectionLost, Fenced, api_error
from phalanx.kube.http.connections import Connections, Transports
from phalanx.kube.http.transport import HttpRequest, HttpResponse
from phalanx.kube.reads_ahead import ReadsAhead
from phalanx.model.text.decoding import decode_json, quoted

__all__ = ["KubeClient", "Params", "PatchType"]

log = logging.getLogger(__name__)

#: Query parameters; a value of None is omitted, True and False are written as the API server reads them.
Params = Mapping[str, str | int | bool | None]
JSON = "application/json"


class _Object(msgspec.Struct):
    """Any JSON object, without its fields."""


_OBJECT = msgspec.json.Decoder(_Object)
# A path of one printable word in ASCII.
_PATH = re.compile(r"/[!-~]*").fullmatch
_READS = frozenset({"GET", "HEAD"})
_REPEATABLE = frozenset({"GET", "HEAD", "PUT"})
#: How often a paged list restarts after an expired continue token before one list without pages.
_LIST_RESTARTS = 3


class PatchType(enum.Enum):
    """Patch format; the value is the content type. STRATEGIC is for built-in kinds: custom resources answer 415."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class KubeClient:
    """Client of one API server. Use it as an async context manager, within one event loop.

    Every method raises ApiError for an error response, ConnectionLost without a complete response, and
    ConfigError if the credentials cannot be renewed. The client itself retries only in two harmless cases: once
    after a 401 with renewed credentials, and once on a dead kept-alive connection for repeatable requests
    (GET, PUT, DELETE with a uid). All other retries are RetryPolicy's, at the caller's choice.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        user_agent: str = "phalanx",
        max_connections: int = 64,
        clock: Callable[[], float] = time.monotonic,
        transports: Transports | None = None,
    ) -> None:
        self.config = config
        #: Default timeout of a request in seconds.
        self.request_timeout = 30.0
        #: Called with the Retry-After in seconds of each response that reports an overloaded server.
        self.throttled: Callable[[float | None], None] = lambda retry_after: None
        self.namespace = config.namespace
        #: Called for each request: method (WATCH when a watch begins), path, status (0: no response), seconds.
        self.answered: Callable[[str, str, int, float], object] = lambda method, path, status, seconds: None
        #: Reachability of the server, shared by all copies of this client.
        self.contact = Contact()
        self._may_write: Callable[[], bool] | None = None
        self._check: Callable[[str, str], Awaitable[None]] | None = None
        #: Shared by all copies of this client.
        self._ahead = ReadsAhead()
        self._credentials = config.credentials()
        self._connections = Connections(
            config, user_agent=user_agent, max_connections=max_connections, clock=clock, transports=transports
        )

    def fenced(self, may_write: Callable[[], bool]) -> KubeClient:
        """Return a copy of this client that sends only reads once `may_write` returns False.

        `may_write` is called last, after the wait for a connection (behind a proxy: before it), so that a delayed
        request cannot write an outdated decision."""
        copied = copy.copy(self)
        copied._may_write = may_write
        return copied

    def checked(self, check: Callable[[str, str], Awaitable[None]]) -> KubeClient:
        """Return a copy of this client that awaits ``check`` with the method and the path before each request, but
        not before a watch. ``check`` raises ApiError for a request that must not be sent."""
        copied = copy.copy(self)
        copied._check = check
        return copied

    def read_ahead(self, path: str, params: Params | None = None, *, timeout: float | None = None) -> None:
        """Send a GET now. The next equal request of this client or of a copy receives its response."""
        sender = copy.copy(self)
        sender._ahead, sender.answered = ReadsAhead(), lambda *answer: None
        read = partial(sender.request, "GET", path, params=params, timeout=timeout)
        self._ahead.begin(self._target(path, params), read)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._ahead.close()
        await self._connections.close()

    # -- requests ----------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout: float | None = None,  # noqa: ASYNC109 - every caller has a plain number
        repeatable: bool | None = None,
    ) -> bytes:
        """Send one request. Return the body of a 2xx response.

        ``path`` is already escaped (Resource.path). ``timeout`` covers the whole request in seconds (default
        ``request_timeout``). ``repeatable`` overrides whether the request is sent once more after a dead
        kept-alive connection.
        """
        if self._check is not None:
            await self._check(method, path)
        if repeatable is None:
            repeatable = method in _REPEATABLE
        may_send = None if method in _READS else self._may_write
        target = self._target(path, params)
        if self._ahead and method == "GET" and (read := await self._ahead.take(target)) is not None:
            self.answered(method, path, 200, read[1])
            return read[0]
        limit = self.request_timeout if timeout is None else timeout
        call = HttpRequest(method, target, body, content_type, accept, limit, repeatable, may_send)
        begun = time.perf_counter()
        try:
            identity = self._credentials.cached() or await self._credentials.current()
            with self._connections.lease(identity) as transport:
                answer = await transport.request(call, identity)
            if answer.status == 401:
                answer = await self._sent_anew(call, identity) or answer
        except Fenced:
            raise
        except ConnectionLost:
            self.answered(method, path, 0, time.perf_counter() - begun)
            raise
        if self.contact.answered():
            self._log_return()
        self.answered(method, path, answer.status, time.perf_counter() - begun)
        if 200 <= answer.status < 300:
            return answer.body
        failure = _failure(answer, method, path)
        # The server also answers 429 if a budget forbids an eviction, which is no overload.
        if answer.status == 429 and not path.endswith("/eviction"):
            self.throttled(failure.retry_after)
        raise failure

    def _log_return(self) -> None:
        log.info("the API server at %s answers again", self.config.server)

    async def identity(self) -> ClientIdentity:
        """Return the identity that requests send now. Raises ConfigError without a usable one."""
        return self._credentials.cached() or await self._credentials.current()

    async def _sent_anew(self, call: HttpRequest, rejected: ClientIdentity) -> HttpResponse | None:
        """Send a request again with renewed credentials. Return None if there are none."""
        renewed = await self._credentials.renew(rejected)
        if renewed is None:
            return None
        with self._connections.lease(renewed) as transport:
            return await transport.request(call, renewed)

    def _target(self, path: str, params: Params | None) -> str:
        # Last protection against request smuggling: the path must be a single word, whatever its source.
        if _PATH(path) is None:
            raise ValueError(f"not an escaped path: {quoted(path)}")
        query = (
            urlencode([(key, _text(value)) for key, value in params.items() if value is not None]) if params else ""
        )
        return f"{path}?{query}" if query else path

    async def get(self, path: str, params: Params | None = None, *, accept: str = JSON) -> Any:
        """Send a GET for ``path`` and return the decoded JSON."""
        return _read(await self.request("GET", path, params=params, accept=accept))

    async def create(self, path: str, obj: Any, params: Params | None = None, *, read: bool = True) -> Any:
        """Send a POST of ``obj`` (a dict or a Struct) to a collection, or to a create-only subresource like
        binding. Without ``read`` the answer is only checked, and None returned."""
        answer = await self.request("POST", path, params=params, body=_encode(obj))
        return _read(answer) if read else _check(answer)

    async def replace(self, path: str, obj: Any, params: Params | None = None) -> Any:
        """Send a PUT of ``obj``. With the resourceVersion that was read, it fails with 409 if another writer was
        faster."""
        return _read(await self.request("PUT", path, params=params, body=_encode(obj)))

    async def patch(
        self,
        path: str,
        patch: Any,
        patch_type: PatchType,
        *,
        field_manager: str | None = None,
        force: bool = False,
        read: bool = True,
    ) -> Any:
        """Send a PATCH of an object. Server-side apply needs a field manager; ``force`` takes over fields of other
        managers. Without ``read`` the answer is only checked, and None returned."""
        if patch_type is PatchType.APPLY and not field_manager:
            raise ValueError("server-side apply needs a field_manager")
        params: Params | None = None
        if field_manager:
            params = {"fieldManager": field_manager, "force": True if force else None}
        answer = await self.request(
            "PATCH", path, params=params, body=_encode(patch), content_type=patch_type.value
        )
        return _read(answer) if read else _check(answer)

    async def delete(
        self,
        path: str,
        *,
        uid: str | None = None,
        version: str | None = None,
        grace_seconds: int | None = None,
        propagation: str | None = None,
        dry_run: bool = False,
    ) -> Any:
        """Send a DELETE of an object; with ``dry_run`` the server only validates the request.

        With ``uid`` only that very object is deleted, never a successor of the same name; with ``version`` (its
        resourceVersion) only in the state that was read (else 409).
        """
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if version is not None:
            options.setdefault("preconditions", {})["resourceVersion"] = version
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if propagation is not None:
            options["propagationPolicy"] = propagation
        if dry_run:
            options["dryRun"] = ["All"]
        answer = await self.request("DELETE", path, body=_encode(options), repeatable=uid is not None)
        return _read(answer)

    async def list_all(
        self,
        path: str,
        params: Params | None = None,
        limit: int = 500,
        *,
        progress: Callable[[int, int], object] = lambda read, remaining: None,
    ) -> Any:
        """Return all pages of a list as one list object: ``{"items": [...], "metadata": {...}, ...}``.

        The resourceVersion is the one of the first page, which all pages share. An expired continue token restarts
        the list, at last without pages. ``progress`` is called after each page with the number of items read and
        the number that remain according to the server.
        """
        for size in (*[limit] * _LIST_RESTARTS, 0):
            try:
                return await self._list_pages(path, dict(params or {}), size, progress)
            except ApiError as error:
                if not error.gone or size == 0:
                    raise
        raise AssertionError("the last round returns or raises")

    async def _list_pages(
        self,
        path: str,
        params: dict[str, str | int | bool | None],
        limit: int,
        progress: Callable[[int, int], object],
    ) -> Any:
        params["limit"] = limit or None
        merged = await self.get(path, params)
        metadata = merged.setdefault("metadata", {})
        items = merged["items"] = merged.get("items") or []
        progress(len(items), metadata.get("remainingItemCount") or 0)
        while token := metadata.pop("continue", None):
            params["continue"] = token
            page = await self.get(path, params)
            items += page.get("items") or []
            page_metadata = page.get("metadata") or {}
            metadata["continue"] = page_metadata.get("continue")
            progress(len(items), page_metadata.get("remainingItemCount") or 0)
        metadata.pop("remainingItemCount", None)
        return merged

    # -- streams -----------------------------------------------------------------------------------------

    async def stream(
        self, path: str, params: Params | None = None, *, read_timeout: float
    ) -> AsyncGenerator[bytes, None]:
        """Yield the complete lines of a watch, without their newlines. End when the server ends it cleanly.

        Raises ConnectionLost after ``read_timeout`` seconds without a byte, or if the stream ends inside a line.
        Close it (contextlib.aclosing) if you stop early.
        """
        async with aclosing(self.stream_batches(path, params, read_timeout=read_timeout)) as batches:
            async for lines in batches:
                for line in lines:
                    yield line

    async def stream_batches(
        self, path: str, params: Params | None = None, *, read_timeout: float
    ) -> AsyncGenerator[Sequence[bytes], None]:
        """Yield the lines of a watch in batches, one batch per read, which is cheaper than ``stream``.

        The first batch is empty and signals that the server accepted; later empty batches signal received bytes.
        """
        target = self._target(path, params)
        identity = self._credentials.cached() or await self._credentials.current()
        unfinished: list[bytes] = []
        for renewable in (True, False):
            begins = True
            with self._connections.lease(identity) as transport:
                async with aclosing(transport.stream(target, identity, JSON, read_timeout)) as pieces:
                    async for piece in pieces:
                        if begins:
                            begins = False
                            if self.contact.answered():
                                self._log_return()
                            self.answered("WATCH", path, piece.status, 0.0)
                        if piece.status == 401 and renewable:
                            break
                        if not 200 <= piece.status < 300:
                            raise _failure(piece, "GET", path)
                        yield _complete_lines(unfinished, piece.body)
                    else:
                        if unfinished:
                            raise ConnectionLost(f"GET {path}: the stream ended inside a line")
                        return
            renewed = await self._credentials.renew(identity)
            if renewed is None:
                raise _failure(piece, "GET", path)
            identity = renewed


def _complete_lines(unfinished: list[bytes], piece: bytes) -> Sequence[bytes]:
    """Return the lines that the received ``piece`` completes. ``unfinished`` collects the parts of the last
    line."""
    if b"\n" not in piece:
        if piece:
            unfinished.append(piece)
        return ()
    lines = piece.split(b"\n")
    if unfinished:
        lines[0] = b"".join((*unfinished, lines[0]))
        unfinished.clear()
    last = lines.pop()
    if last:
        unfinished.append(last)
    return [line for line in lines if line]


def _encode(obj: Any) -> bytes:
    return obj if isinstance(obj, bytes) else msgspec.json.encode(obj)


def _text(value: str | int | bool | None) -> str:
    if value is True:
        return "true"
    return "false" if value is False else str(value)


def _failure(answer: HttpResponse, method: str, path: str) -> ApiError:
    return api_error(answer.status, answer.body, answer.retry_after, request=f"{method} {path}", now=time.time())


def _read(answer: bytes) -> Any:
    try:
        return decode_json(answer)
    except msgspec.DecodeError as error:
        raise ConnectionLost(f"the answer cannot be read: {error}") from error


def _check(answer: bytes) -> None:
    """Raise the error of `_read` for an answer that it cannot read, in a fifth of its time."""
    try:
        _OBJECT.decode(answer)
    except (msgspec.DecodeError, RecursionError):
        _read(answer)

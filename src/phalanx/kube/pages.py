"""Reading of a list from the API: in one response if it is short enough, else page by page."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import partial
from typing import Generic, TypeVar

from phalanx.kube.client import KubeClient, Params
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.wire import ItemForm, ListPage, read_page

__all__ = ["PAGE_SIZE", "ListPages", "first_page"]

T = TypeVar("T")

log = logging.getLogger(__name__)

LIST_TIMEOUT = 60.0
#: Default number of objects of a page.
PAGE_SIZE = 4000
#: Lists that are estimated to be shorter than this (bytes) are read without pages: API servers serve only the first
#: page from their cache, and read the others from etcd at about five times the cost (decision 025).
WHOLE_LIST = 64 * 2**20
# Cost of an object of a further page, relative to an object of the whole list.
_TIMES_DEARER = 5
#: No further page is requested while received pages of more than this size (bytes) wait for the consumer.
MOST_AHEAD = 16 * 2**20

# Leading bytes of a page that contain the continue token: it precedes the items, so no decoding is needed.
_HEAD = 4096
_ITEMS = b'"items"'
_TOKEN = re.compile(rb'"continue"\s*:\s*"([^"\\]+)"')


def first_page(page_size: int = PAGE_SIZE, selectors: Mapping[str, str | None] | None = None) -> Params:
    """Return the query parameters of the first request of a list."""
    return _page(selectors or {}, page_size, None)


def _page(selectors: Mapping[str, str | None], page_size: int, token: str | None) -> Params:
    # No resourceVersion: the consistent read. A list of version "0" can be older than the known state, and an
    # absence in an old list is not a deletion.
    return {**selectors, "limit": page_size or None, "continue": token}


class ListPages(Generic[T]):
    """Reader of lists of one resource; ``selectors`` are query parameters of each request."""

    def __init__(
        self, client: KubeClient, path: str, selectors: Mapping[str, str | None], form: ItemForm[T] | None = None
    ) -> None:
        self._client = client
        self._path = path
        self._selectors = selectors
        self._form = form
        #: Whether a short list can be requested without pages.
        self._whole = True

    async def read(self, page_size: int, *, formed: bool = True) -> AsyncGenerator[ListPage[T]]:
        """Yield all pages of the list, each of `page_size` objects (0: one page); raise the errors of the requests.

        The server prepares further pages while the consumer handles the previous ones. Without `formed` all items
        stay JSON.
        """
        form = self._form if formed else None
        body = await self._request(page_size, None)
        page = self._page(body, form)
        if self._is_short(page, len(body)):
            page = await self._whole_list(form) or page
        del body
        pages_ahead: _PagesAhead | None = None
        following: str | None = None
        try:
            while page.token:
                if pages_ahead is None or following != page.token:
                    if pages_ahead is not None:
                        pages_ahead.close()
                    pages_ahead = _PagesAhead(partial(self._request, page_size), page.token)
                await asyncio.sleep(0)
                yield page
                body, following = await pages_ahead.next()
                page = self._page(body, form)
                del body
            yield page
        finally:
            if pages_ahead is not None:
                pages_ahead.close()

    def _page(self, body: bytes, form: ItemForm[T] | None) -> ListPage[T]:
        return (form.page(body) if form is not None else None) or read_page(body)

    async def _request(self, page_size: int, token: str | None) -> bytes:
        params = _page(self._selectors, page_size, token)
        return await self._client.request("GET", self._path, params=params, timeout=LIST_TIMEOUT)

    def _is_short(self, page: ListPage[T], length: int) -> bool:
        count, remaining = len(page), page.remaining
        if not self._whole or not count or _TIMES_DEARER * remaining < count + remaining:
            return False
        return length * (count + remaining) < WHOLE_LIST * count

    async def _whole_list(self, form: ItemForm[T] | None) -> ListPage[T] | None:
        """Read the list without pages. Return None, and disable reads without pages, if the server fails."""
        try:
            return self._page(await self._request(0, None), form)
        except (ApiError, ConnectionLost) as error:
            log.info("%s: cannot read the list without pages, reading pages: %s", self._path, error)
            self._whole = False
            return None


class _PagesAhead:
    """Prefetch of list pages: requests the next page before the consumer needs it.

    A pause of the server, such as a garbage collection, does not delay a consumer that has pages left.
    """

    def __init__(self, request: Callable[[str], Awaitable[bytes]], token: str) -> None:
        self._request = request
        self._pages: asyncio.Queue[tuple[bytes, str | None] | Exception] = asyncio.Queue()
        self._waiting = 0
        self._consumed = asyncio.Event()
        self._task = asyncio.ensure_future(self._run(token))

    async def next(self) -> tuple[bytes, str | None]:
        """Return a page and the token of the next page: "" for none, None if unknown. Raise the error of its
        request.

        Do not call it again after a page without a token.
        """
        page = await self._pages.get()
        if isinstance(page, Exception):
            raise page
        self._waiting -= len(page[0])
        self._consumed.set()
        return page

    def close(self) -> None:
        self._task.cancel()

    async def _run(self, token: str | None) -> None:
        try:
            while token:
                while self._waiting > MOST_AHEAD:
                    self._consumed.clear()
                    await self._consumed.wait()
                body = await self._request(token)
                token = _next_token(body)
                self._waiting += len(body)
                self._pages.put_nowait((body, token))
        except Exception as error:  # `next` raises it in place of this page
            self._pages.put_nowait(error)


def _next_token(page: bytes) -> str | None:
    """Return the continue token of a list page: "" for none, None if only decoding can find it."""
    head = page[:_HEAD]
    items = head.find(_ITEMS)
    if items < 0:
        return None
    match = _TOKEN.search(head, 0, items)
    return match[1].decode("ascii", "replace") if match is not None else ""

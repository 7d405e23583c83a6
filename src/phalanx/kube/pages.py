"""A list as it comes: as a whole where it is not too long, else page by page."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import partial
from typing import Generic, TypeVar

from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.wire import ItemForm, ListPage, read_page

__all__ = ["ListPages"]

T = TypeVar("T")

log = logging.getLogger(__name__)

LIST_TIMEOUT = 60.0
#: A list that may be so long in all (bytes) is asked for whole: of pages API servers give only the first from their
#: cache, the others are read and decoded from etcd, which costs a server some five times as much (decision 025).
WHOLE_LIST = 64 * 2**20
# How much more a server spends on an object of a further page than on one of the whole list.
_TIMES_DEARER = 5
#: While pages of so many bytes in all wait to be taken in no further one is asked for.
MOST_AHEAD = 64 * 2**20

# Where API servers say it: before the items, so that it can be read before the page is decoded.
_HEAD = 4096
_ITEMS = b'"items"'
_TOKEN = re.compile(rb'"continue"\s*:\s*"([^"\\]+)"')


class ListPages(Generic[T]):
    """The lists of one resource; ``selectors`` are query parameters of each request."""

    def __init__(
        self, client: KubeClient, path: str, selectors: Mapping[str, str | None], form: ItemForm[T] | None = None
    ) -> None:
        self._client = client
        self._path = path
        self._selectors = selectors
        self._form = form
        #: Whether a list that is not too long may be asked for without pages.
        self._whole = True

    async def read(self, page_size: int, *, formed: bool = True) -> AsyncGenerator[ListPage[T]]:
        """All pages, each of `page_size` objects (0: no pages at all); raises what a request raises.

        The server makes further pages while those that have come are taken in. Without `formed` all items are JSON.
        """
        form = self._form if formed else None
        body = await self._ask(page_size, None)
        page = self._page(body, form)
        if self._may_be_whole(page, len(body)):
            page = await self._whole_list(form) or page
        del body
        ahead: _PagesAhead | None = None
        following: str | None = None
        try:
            while page.token:
                if ahead is None or following != page.token:
                    if ahead is not None:
                        ahead.close()
                    ahead = _PagesAhead(partial(self._ask, page_size), page.token)
                await asyncio.sleep(0)
                yield page
                body, following = await ahead.next()
                page = self._page(body, form)
                del body
            yield page
        finally:
            if ahead is not None:
                ahead.close()

    def _page(self, body: bytes, form: ItemForm[T] | None) -> ListPage[T]:
        return (form.page(body) if form is not None else None) or read_page(body)

    async def _ask(self, page_size: int, token: str | None) -> bytes:
        # No resourceVersion: the consistent read. "0" could be older than what we know, and an absence
        # in an old list is not a deletion.
        params = {**self._selectors, "limit": page_size or None, "continue": token}
        return await self._client.request("GET", self._path, params=params, timeout=LIST_TIMEOUT)

    def _may_be_whole(self, page: ListPage[T], length: int) -> bool:
        count, rest = len(page), page.remaining
        if not self._whole or not count or _TIMES_DEARER * rest < count + rest:
            return False
        return length * (count + rest) < WHOLE_LIST * count

    async def _whole_list(self, form: ItemForm[T] | None) -> ListPage[T] | None:
        """None, and not asked for again, where the server cannot do it in time."""
        try:
            return self._page(await self._ask(0, None), form)
        except (ApiError, ConnectionLost) as error:
            log.info("%s: the list cannot be had as a whole, so by pages: %s", self._path, error)
            self._whole = False
            return None


class _PagesAhead:
    """Asks for one page after the other, ahead of whoever takes them in: a server that stops for a while, to
    collect its garbage say, is not waited for by whom it has given enough to do before."""

    def __init__(self, ask: Callable[[str], Awaitable[bytes]], token: str) -> None:
        self._ask = ask
        self._pages: asyncio.Queue[tuple[bytes, str | None] | Exception] = asyncio.Queue()
        self._waiting = 0
        self._taken = asyncio.Event()
        self._task = asyncio.ensure_future(self._run(token))

    async def next(self) -> tuple[bytes, str | None]:
        """A page, and the token of the page that is asked for next: "" for none, None where it is not known; raises
        what its request raised. Not to be called again after a page without token."""
        page = await self._pages.get()
        if isinstance(page, Exception):
            raise page
        self._waiting -= len(page[0])
        self._taken.set()
        return page

    def close(self) -> None:
        self._task.cancel()

    async def _run(self, token: str | None) -> None:
        try:
            while token:
                while self._waiting > MOST_AHEAD:
                    self._taken.clear()
                    await self._taken.wait()
                body = await self._ask(token)
                token = _next_token(body)
                self._waiting += len(body)
                self._pages.put_nowait((body, token))
        except Exception as error:  # whoever comes to that page is told
            self._pages.put_nowait(error)


def _next_token(page: bytes) -> str | None:
    """ "" for a page without one, None where only decoding tells."""
    head = page[:_HEAD]
    items = head.find(_ITEMS)
    if items < 0:
        return None
    found = _TOKEN.search(head, 0, items)
    return found[1].decode("ascii", "replace") if found is not None else ""

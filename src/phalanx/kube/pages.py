"""A list as it comes: as a whole where it is not too long, else page by page."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
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

        The server makes the next page while the last one is taken in. Without `formed` all items are JSON.
        """
        coming = self._ask(page_size, None)
        form = self._form if formed else None
        try:
            body = await coming
            page = self._page(body, form)
            if self._may_be_whole(page, len(body)):
                page = await self._whole_list(form) or page
            while page.token:
                coming = self._ask(page_size, page.token)
                await asyncio.sleep(0)
                yield page
                page = self._page(await coming, form)
            yield page
        finally:
            coming.cancel()

    def _page(self, body: bytes, form: ItemForm[T] | None) -> ListPage[T]:
        return (form.page(body) if form is not None else None) or read_page(body)

    def _ask(self, page_size: int, token: str | None) -> asyncio.Task[bytes]:
        # No resourceVersion: the consistent read. "0" could be older than what we know, and an absence
        # in an old list is not a deletion.
        params = {**self._selectors, "limit": page_size or None, "continue": token}
        return asyncio.ensure_future(self._client.request("GET", self._path, params=params, timeout=LIST_TIMEOUT))

    def _may_be_whole(self, page: ListPage[T], length: int) -> bool:
        count = len(page)
        rest = bool(self._whole and count and page.remaining)
        return rest and length * (count + page.remaining) < WHOLE_LIST * count

    async def _whole_list(self, form: ItemForm[T] | None) -> ListPage[T] | None:
        """None, and not asked for again, where the server cannot do it in time."""
        try:
            return self._page(await self._ask(0, None), form)
        except (ApiError, ConnectionLost) as error:
            log.info("%s: the list cannot be had as a whole, so by pages: %s", self._path, error)
            self._whole = False
            return None

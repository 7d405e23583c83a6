"""Commands of viewers to a gang, executed with the viewer's own rights: hold, release, cancel."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

from phalanx.dashboard.access import Viewer, ViewerAccessError
from phalanx.dashboard.limits import RateLimits
from phalanx.dashboard.rows.entries import BulkOrderAnswer, BulkOrderEntry, OrderAnswer, OrderRequest
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.model.gang import owner_of_name
from phalanx.model.text.decoding import MAX_NAME
from phalanx.orders import cancelling, holding
from phalanx.orders.errors import OrderError
from phalanx.orders.target import Target, TargetFinder, text_of_row

T = TypeVar("T")

audit = logging.getLogger("phalanx.dashboard.audit")

_ORDERS: dict[str, Callable[[KubeClient, Target], Awaitable[str]]] = {
    "hold": holding.hold,
    "release": holding.release,
    "cancel": cancelling.cancel,
}
_REFUSED = frozenset({400, 403, 404, 409, 422, 429})
#: Orders a second of all viewers together.
_IN_ALL = 20.0
#: Orders of one request.
MOST_ORDERS = 50


class Orders:
    """Executor of viewers' commands to gangs. `enabled` is True if the operator permits writes; `per_viewer` is the
    number of commands per second, with bursts of twice as many.
    """

    def __init__(self, client: KubeClient, *, enabled: bool, per_viewer: float) -> None:
        self._client = client
        self.enabled = enabled
        self._limits = RateLimits(per_viewer, max(_IN_ALL, per_viewer))
        self._under_way: set[asyncio.Task[Any]] = set()
        # Viewers whose several orders are being executed.
        self._busy: set[str] = set()

    async def give(self, viewer: Viewer, verb: str, order: OrderRequest) -> OrderAnswer:
        """Execute a viewer's command if it is `confirmed`; else return its predicted effect. Raises
        ViewerAccessError."""
        self._check(verb, [order])
        return await self._completed(self._noted(viewer, verb, order))

    async def give_all(self, viewer: Viewer, verb: str, orders: Sequence[OrderRequest]) -> BulkOrderAnswer:
        """Execute a viewer's commands one after the other, or predict their effects; see `give`.

        They count as one command for the limits. A refused command does not stop the next one. Raises
        ViewerAccessError if no command is executed.
        """
        self._check(verb, orders)
        if viewer.name in self._busy or not self._limits.allow(viewer.name):
            raise ViewerAccessError(429, "too many orders: try again in a moment")
        self._busy.add(viewer.name)
        return await self._completed(self._noted_in_turn(viewer, verb, orders))

    def _check(self, verb: str, orders: Sequence[OrderRequest]) -> None:
        """Raise ViewerAccessError for commands that cannot be executed for any viewer."""
        if not self.enabled:
            raise ViewerAccessError(403, "this page is read-only: the operator can enable orders with --writes")
        if verb not in _ORDERS:
            raise ViewerAccessError(404, f"unknown order: use one of {', '.join(_ORDERS)}")
        for order in orders:
            # A slash is valid only in the name of an owner, and between kind and name of a job.
            job = text_of_row(order.name, pod=False) == order.name and order.name.count("/") == 1
            strange = "/" in order.name and not job and not owner_of_name(order.name)[0]
            if not order.name or strange or len(order.name) > MAX_NAME:
                raise ViewerAccessError(400, "invalid name of a gang")

    async def _completed(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`, which is completed and logged even if the viewer disconnects."""
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._over)
        return await asyncio.shield(task)

    async def _noted_in_turn(self, viewer: Viewer, verb: str, orders: Sequence[OrderRequest]) -> BulkOrderAnswer:
        answers = []
        try:
            for order in orders:
                entry = BulkOrderEntry(namespace=order.namespace, name=order.name)
                try:
                    done = await self._noted(viewer, verb, order, limited=False)
                    entry.message, entry.object, entry.uid = done.message, done.object, done.uid
                except ViewerAccessError as error:
                    entry.error = str(error)
                answers.append(entry)
        finally:
            self._busy.discard(viewer.name)
        return BulkOrderAnswer(answers=answers)

    async def close(self) -> None:
        """Wait for the commands in progress."""
        if self._under_way:
            await asyncio.wait(self._under_way)

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            # The exception is retrieved, so that asyncio logs no warning after the viewer disconnected.
            task.exception()

    async def _noted(self, viewer: Viewer, verb: str, order: OrderRequest, *, limited: bool = True) -> OrderAnswer:
        """Execute a viewer's command and write one line into the audit log if the command would write to the
        API."""
        objects: list[Target] = []
        outcome = "unknown: the order did not complete"
        try:
            if limited and not self._limits.allow(viewer.name):
                raise ViewerAccessError(429, "too many orders: try again in a moment")
            done = await self._carried_out(viewer, verb, order, objects)
            outcome = done.message
        except ViewerAccessError as error:
            outcome = f"{error.status} {error}"
            raise
        except ConnectionLost as error:
            outcome = f"not known: {error}"
            raise ViewerAccessError(
                502, "the API server did not answer: check whether the order was executed"
            ) from error
        finally:
            if order.confirmed:
                target = objects[0] if objects else None
                audit.info(
                    "write: user=%r verb=%s namespace=%r gang=%r object=%r uid=%r answer=%r",
                    *(viewer.name, verb, order.namespace, order.name),
                    *(target.title if target else "", target.uid if target else "", outcome),
                )
        return done

    async def _carried_out(
        self, viewer: Viewer, verb: str, order: OrderRequest, objects: list[Target]
    ) -> OrderAnswer:
        try:
            async with self._acting_as(viewer) as client:
                finder = TargetFinder(client, order.namespace)
                target = await finder.find(text_of_row(order.name, pod=order.pod))
                objects.append(target)
                if verb == "cancel":
                    cancelling.refuse_foreign_members(target)
                if not order.confirmed:
                    return OrderAnswer(message=foretold(verb, target), object=target.title, uid=target.uid)
                if target.uid != order.uid:
                    raise ViewerAccessError(409, f"{target.title} was replaced by another object: reload the page")
                message = await _ORDERS[verb](client, target)
                return OrderAnswer(message=message, object=target.title, uid=target.uid, done=True)
        except OrderError as error:
            raise ViewerAccessError(409, error.message) from error
        except ApiError as error:
            if error.status == 403 and "cannot impersonate" in error.message:
                raise ViewerAccessError(
                    503, "the dashboard's service account cannot act as you: it lacks the right `impersonate`"
                ) from error
            status = error.status if error.status in _REFUSED else 502
            raise ViewerAccessError(status, f"the API server refused: {error.message}") from error

    @contextlib.asynccontextmanager
    async def _acting_as(self, viewer: Viewer) -> AsyncIterator[KubeClient]:
        """Yield an API client that impersonates the viewer as authenticated by the API server.

        Raises ViewerAccessError.
        """
        if viewer.trusted:
            yield self._client
            return
        config = dataclasses.replace(self._client.config, headers=impersonation(viewer))
        async with KubeClient(config, user_agent="phalanx-dashboard") as client:
            yield client


def foretold(verb: str, target: Target) -> str:
    """Return the predicted effect of a command (hold, release, cancel) as a sentence."""
    if verb == "cancel":
        return f"Deletes {cancelling.described(target)}. This cannot be undone."
    where = f"{target.title} in namespace {target.namespace}"
    if verb == "hold":
        return f"Holds {where}: it does not start until released. A running job cannot be held."
    return f"Releases {where}: it is queued again."


def impersonation(viewer: Viewer) -> tuple[tuple[str, str], ...]:
    """Return the HTTP headers that impersonate the viewer. Raises ViewerAccessError if headers cannot contain the
    viewer's name.

    Without a user name the request would run with the rights of this process.
    """
    headers = [("Impersonate-User", viewer.name)]
    headers += [("Impersonate-Group", group) for group in viewer.groups]
    if viewer.uid:
        headers.append(("Impersonate-Uid", viewer.uid))
    for key, values in viewer.extra:
        headers += [(f"Impersonate-Extra-{quote(key, safe='')}", value) for value in values]
    if not viewer.name or not all(value.isascii() and value.isprintable() for _, value in headers):
        raise ViewerAccessError(403, "your user name cannot be sent in an HTTP header: use kubectl or phalanx")
    return tuple(headers)

"""What viewers may tell a gang from the page, each by his own rights: hold, release, cancel."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import quote

from phalanx.dashboard.access import Viewer, ViewerAccessError
from phalanx.dashboard.limits import RateLimits
from phalanx.dashboard.rows.entries import OrderAnswer, OrderRequest
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.model.gang import owner_of_name
from phalanx.model.text.decoding import MAX_NAME
from phalanx.orders import cancelling, holding
from phalanx.orders.errors import OrderError
from phalanx.orders.target import Target, TargetFinder

audit = logging.getLogger("phalanx.dashboard.audit")

_ORDERS: dict[str, Callable[[KubeClient, Target], Awaitable[str]]] = {
    "hold": holding.hold,
    "release": holding.release,
    "cancel": cancelling.cancel,
}
_REFUSED = frozenset({400, 403, 404, 409, 422, 429})
#: Orders a second from all viewers together.
_IN_ALL = 20.0


class Orders:
    """`enabled` is whether the operator has switched writes on; `per_viewer` is orders a second, twice as many at
    once."""

    def __init__(self, client: KubeClient, *, enabled: bool, per_viewer: float) -> None:
        self._client = client
        self.enabled = enabled
        self._limits = RateLimits(per_viewer, max(_IN_ALL, per_viewer))
        self._under_way: set[asyncio.Task[OrderAnswer]] = set()

    async def give(self, viewer: Viewer, verb: str, order: OrderRequest) -> OrderAnswer:
        """Says what would happen or, with `confirmed`, what has. Raises AccessError."""
        if not self.enabled:
            raise ViewerAccessError(403, "this page changes nothing: whoever runs it can switch that on (--writes)")
        if verb not in _ORDERS:
            raise ViewerAccessError(404, f"there is no such order: write one of {', '.join(_ORDERS)}")
        # (Only a gang that is named by its owner has slashes in its name.)
        strange = "/" in order.name and not owner_of_name(order.name)[0]
        if not order.name or strange or len(order.name) > MAX_NAME:
            raise ViewerAccessError(400, "this cannot be the name of a gang")
        # Once it has begun it is done and written down, whether or not the viewer waits for it.
        task = asyncio.create_task(self._noted(viewer, verb, order))
        self._under_way.add(task)
        task.add_done_callback(self._over)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Waits for orders that are under way."""
        if self._under_way:
            await asyncio.wait(self._under_way)

    def _over(self, task: asyncio.Task[OrderAnswer]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            # (Taken, so that nobody warns of it where the viewer has gone.)
            task.exception()

    async def _noted(self, viewer: Viewer, verb: str, order: OrderRequest) -> OrderAnswer:
        """With one line in the audit log for each order that would write."""
        objects: list[Target] = []
        outcome = "not known: the order did not end"
        try:
            if not self._limits.allow(viewer.name):
                raise ViewerAccessError(429, "too many orders: try again in a moment")
            done = await self._carried_out(viewer, verb, order, objects)
            outcome = done.message
        except ViewerAccessError as error:
            outcome = f"{error.status} {error}"
            raise
        except ConnectionLost as error:
            outcome = f"not known: {error}"
            raise ViewerAccessError(
                502, "the API server did not answer; whether it was done is not known"
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
                target = await finder.find(f"{'pod' if order.pod else 'podgroup'}/{order.name}")
                objects.append(target)
                if verb == "cancel":
                    cancelling.refuse_foreign_members(target)
                if not order.confirmed:
                    return OrderAnswer(message=foretold(verb, target), object=target.title, uid=target.uid)
                if target.uid != order.uid:
                    raise ViewerAccessError(409, f"{target.title} is another one by now: look again")
                message = await _ORDERS[verb](client, target)
                return OrderAnswer(message=message, object=target.title, uid=target.uid, done=True)
        except OrderError as error:
            raise ViewerAccessError(409, error.message) from error
        except ApiError as error:
            if error.status == 403 and "cannot impersonate" in error.message:
                raise ViewerAccessError(
                    503, "the dashboard's own account may not act as you: it lacks the right `impersonate`"
                ) from error
            status = error.status if error.status in _REFUSED else 502
            raise ViewerAccessError(status, f"the API server refused: {error.message}") from error

    @contextlib.asynccontextmanager
    async def _acting_as(self, viewer: Viewer) -> AsyncIterator[KubeClient]:
        """A client with the viewer's identity, as the API server itself has told it. Raises AccessError."""
        if viewer.trusted:
            yield self._client
            return
        config = dataclasses.replace(self._client.config, headers=impersonation(viewer))
        async with KubeClient(config, user_agent="phalanx-dashboard") as client:
            yield client


def foretold(verb: str, target: Target) -> str:
    """What an order would do, in a sentence."""
    if verb == "cancel":
        return f"Deletes {cancelling.described(target)}. This cannot be undone."
    where = f"{target.title} in namespace {target.namespace}"
    if verb == "hold":
        return f"Keeps {where} from starting until it is released. What runs already is refused."
    return f"Lets {where} take its turn again."


def impersonation(viewer: Viewer) -> tuple[tuple[str, str], ...]:
    """The headers by which the API server judges a request by the viewer's rights, and by his alone. Raises
    AccessError for whom they cannot name: without a user they would be this process's own rights."""
    headers = [("Impersonate-User", viewer.name)]
    headers += [("Impersonate-Group", group) for group in viewer.groups]
    if viewer.uid:
        headers.append(("Impersonate-Uid", viewer.uid))
    for key, values in viewer.extra:
        headers += [(f"Impersonate-Extra-{quote(key, safe='')}", value) for value in values]
    if not viewer.name or not all(value.isascii() and value.isprintable() for _, value in headers):
        raise ViewerAccessError(403, "your name cannot be handed on to the API server: use kubectl or phalanx")
    return tuple(headers)

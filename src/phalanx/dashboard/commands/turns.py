"""One computing question per user at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from phalanx.dashboard.access import Viewer, ViewerAccessError

_BUSY = "your earlier question is still being answered: wait for its answer"


class UserTurns:
    """Turns of users whose questions need a computation.

    A user has one question in progress and up to `waiting` that wait for it; a further one is refused (429). So no
    user can occupy the dry runs that all users share.
    """

    def __init__(self, waiting: int = 0) -> None:
        self._waiting = waiting
        self._locks: dict[str, asyncio.Lock] = {}
        self._questions: dict[str, int] = {}

    @contextlib.asynccontextmanager
    async def turn(self, viewer: Viewer) -> AsyncIterator[None]:
        """Run the body as the only question of the viewer. Raises ViewerAccessError (429)."""
        if viewer.trusted:
            # The page runs on the machine of this user.
            yield
            return
        user = viewer.name
        if self._questions.get(user, 0) > self._waiting:
            raise ViewerAccessError(429, _BUSY)
        self._questions[user] = self._questions.get(user, 0) + 1
        try:
            async with self._locks.setdefault(user, asyncio.Lock()):
                yield
        finally:
            self._questions[user] -= 1
            if not self._questions[user]:
                del self._questions[user], self._locks[user]

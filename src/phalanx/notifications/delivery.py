"""Delivery of stored notifications: concurrent by target, rate-limited, and retried with growing pauses."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from phalanx.notifications.channels import SendError, send
from phalanx.notifications.notice import Notice
from phalanx.notifications.settings import NoticeTarget, Settings

log = logging.getLogger(__name__)

#: Age in seconds after which an undelivered notification is dropped.
GIVE_UP = 24 * 3600
#: Seconds between two looks at the stored notifications.
SEND_PERIOD = 1.0
_FIRST_PAUSE = 5
_LONGEST_PAUSE = 1800
_AT_ONCE = 50


class StoredNotice(msgspec.Struct, frozen=True):
    """Notification that is due; `attempts` have failed."""

    notice: Notice
    target: str
    recipient: str
    created: int
    attempts: int


class Outbox(Protocol):
    """Storage of notifications. `claim` reserves due ones for this process for a minute, so that no second process
    sends them too."""

    async def claim(self, now: int, limit: int) -> list[StoredNotice]: ...

    async def sent(self, stored: StoredNotice, now: int) -> None: ...

    async def postpone(self, stored: StoredNotice, due: int, *, failed: bool) -> None: ...

    async def drop(self, stored: StoredNotice, now: int) -> None: ...


Send = Callable[[NoticeTarget, Notice, str], Awaitable[None]]


class Delivery:
    """Sender of stored notifications. `clock` returns seconds since the epoch.

    A notification is stored with the event that it reports, so none is lost. It is sent once, unless the process
    ends between the answer of the server and the record of it: then the next process sends it again, with the
    same id.
    """

    def __init__(
        self, settings: Settings, outbox: Outbox, clock: Callable[[], float], send_one: Send | None = None
    ) -> None:
        self._settings = settings
        self._outbox = outbox
        self._clock = clock
        self._send = send_one or self._send_checked
        self._recent: dict[tuple[str, str], deque[int]] = {}

    async def send_due(self) -> int:
        """Send the notifications that are due, each target's one after the other. Return their number."""
        claimed = await self._outbox.claim(int(self._clock()), _AT_ONCE)
        by_target: dict[str, list[StoredNotice]] = {}
        for stored in claimed:
            by_target.setdefault(stored.target, []).append(stored)
        await asyncio.gather(*map(self._send_to_target, by_target.values()))
        return len(claimed)

    async def _send_to_target(self, due: list[StoredNotice]) -> None:
        for stored in due:
            await self._send_stored(stored)

    async def _send_stored(self, stored: StoredNotice) -> None:
        now, target = int(self._clock()), self._settings.targets.get(stored.target)
        if target is None or now - stored.created > GIVE_UP:
            log.warning(
                "notification %s to target %s is dropped: %s",
                stored.notice.id,
                stored.target,
                "the target is not defined" if target is None else "it could not be sent for a day",
            )
            await self._outbox.drop(stored, now)
            return
        if wait := self._wait(target, stored.notice.namespace, now):
            await self._outbox.postpone(stored, now + wait, failed=False)
            return
        try:
            await self._send(target, stored.notice, stored.recipient)
        except SendError as error:
            log.warning("notification %s to target %s failed: %s", stored.notice.id, stored.target, error)
            if error.final:
                await self._outbox.drop(stored, now)
            else:
                pause = min(_FIRST_PAUSE * 2 ** min(stored.attempts, 10), _LONGEST_PAUSE)
                await self._outbox.postpone(stored, now + pause, failed=True)
        else:
            await self._outbox.sent(stored, now)

    async def _send_checked(self, target: NoticeTarget, notice: Notice, recipient: str) -> None:
        await send(target, notice, recipient, self._settings.allowed)

    def _wait(self, target: NoticeTarget, namespace: str, now: int) -> int:
        """Return the seconds until a target accepts a further notification of a namespace; count it if these are
        0."""
        recent = self._recent.setdefault((target.name, namespace), deque())
        while recent and recent[0] <= now - 60:
            recent.popleft()
        if len(recent) >= target.per_minute:
            return recent[0] + 60 - now
        recent.append(now)
        return 0

"""Log of unexpected failures that must not end the process: each one is logged once and always counted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from phalanx.kube.retry import Backoff
from phalanx.model.text.decoding import quoted

__all__ = ["Failures"]

log = logging.getLogger(__name__)

# Distinct failures that are remembered; beyond that the oldest is forgotten and can be logged again.
_REMEMBERED = 1000
_HEALTHY = 60.0


class Failures:
    """Log of failures: one line with a traceback per distinct failure, however often it occurs.

    `count` is called each time with the part that failed (one of a few words: the label of a metric).
    """

    def __init__(self, count: Callable[[str], None] = lambda part: None) -> None:
        self._count = count
        self._logged: dict[tuple[str, str, str], None] = {}

    def record_failure(self, part: str, subject: str, error: BaseException | str, trace: str = "") -> bool:
        """Count a failure, and log it if it is new. Return True if it is new.

        `subject` names the failed object or task; `error` is its exception, or a text; `trace` is its traceback."""
        self._count(part)
        text = error if isinstance(error, str) else f"{type(error).__name__}: {quoted(str(error))}"
        key = (part, subject, text)
        if key in self._logged:
            return False
        if len(self._logged) >= _REMEMBERED:
            del self._logged[next(iter(self._logged))]
        self._logged[key] = None
        if isinstance(error, BaseException):
            log.error("%s: %s failed and is skipped: %s", part, subject, text, exc_info=error)
        else:
            log.error("%s: %s failed and is skipped: %s\n%s", part, subject, text, trace)
        return True

    def guard(self, part: str, subject: str, call: Callable[[], object]) -> None:
        """Call a function, and record the failure if it raises."""
        try:
            call()
        except Exception as error:
            self.record_failure(part, subject, error)

    async def keep_running(self, subject: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run a task until it returns; restart it with growing delays when it raises."""
        backoff, clock = Backoff(base=1.0, cap=60.0), asyncio.get_running_loop().time
        while True:
            begun = clock()
            try:
                await run()
                return
            except Exception as error:
                self.record_failure("task", subject, error)
            if clock() - begun > _HEALTHY:
                backoff.reset()
            await asyncio.sleep(backoff.next())


def first_failure(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first exception of a group that is not a group itself."""
    failure: BaseException = failures
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure

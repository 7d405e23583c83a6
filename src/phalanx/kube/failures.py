"""What should not have happened and must not end the process: told once, counted always."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from phalanx.kube.retry import Backoff
from phalanx.model.text.decoding import quoted

__all__ = ["Failures"]

log = logging.getLogger(__name__)

# Distinct failures that are remembered; of more the oldest may be told again.
_REMEMBERED = 1000
_HEALTHY = 60.0


class Failures:
    """Each distinct failure is one log line with its traceback, however often it happens.

    `count` is called with the part that failed (one of a few words: the label of a metric) each time.
    """

    def __init__(self, count: Callable[[str], None] = lambda part: None) -> None:
        self._count = count
        self._told: dict[tuple[str, str, str], None] = {}

    def record_failure(self, part: str, what: str, error: BaseException | str, trace: str = "") -> bool:
        """`what` names the object or task that failed, `error` is what it raised, or its text with the traceback.
        True if that is news."""
        self._count(part)
        text = error if isinstance(error, str) else f"{type(error).__name__}: {quoted(str(error))}"
        key = (part, what, text)
        if key in self._told:
            return False
        if len(self._told) >= _REMEMBERED:
            del self._told[next(iter(self._told))]
        self._told[key] = None
        if isinstance(error, BaseException):
            log.error("%s: %s failed and is passed over: %s", part, what, text, exc_info=error)
        else:
            log.error("%s: %s failed and is passed over: %s\n%s", part, what, text, trace)
        return True

    def guard(self, part: str, what: str, call: Callable[[], object]) -> None:
        """Calls, and notes what it raises."""
        try:
            call()
        except Exception as error:
            self.record_failure(part, what, error)

    async def keep_running(self, what: str, run: Callable[[], Awaitable[None]]) -> None:
        """Runs a task until it ends by itself; begins it anew, ever more slowly, if it raises."""
        backoff, clock = Backoff(base=1.0, cap=60.0), asyncio.get_running_loop().time
        while True:
            begun = clock()
            try:
                await run()
                return
            except Exception as error:
                self.record_failure("task", what, error)
            if clock() - begun > _HEALTHY:
                backoff.reset()
            await asyncio.sleep(backoff.next())


def first_failure(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first exception of a group that is not a group itself."""
    found: BaseException = failures
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found

"""When the write of a status is tried again, and when it is given up."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.kube.retry import Backoff, RetryPolicy

log = logging.getLogger(__name__)

Failure = ApiError | ConnectionLost | ConfigError


@dataclass(frozen=True)
class NextTry:
    """`pause` is in seconds, None where the write is not tried again. `refused` tells that the API server does not
    want it although the object is there."""

    pause: float | None
    refused: bool = False


def next_try(what: str, error: Failure, backoff: Backoff, retry: RetryPolicy) -> NextTry:
    """What to do after a failed try; the status is to be derived anew for the next one. Says it once in the log."""
    status = error.status if isinstance(error, ApiError) else 0
    tries = backoff.failures + 1
    passing = isinstance(error, ConfigError) or retry.retryable(error, "PATCH", guarded=True)
    # While a definition is replaced there is nothing at the place of an object that is there.
    if passing or (status in (404, 409) and tries < retry.attempts):
        if tries == retry.attempts:
            log.warning("the status of %s was not written, it is tried on: %s", what, error)
        return NextTry(backoff.next(error.retry_after if isinstance(error, ApiError) else None))
    # 404 and 409: the object is gone, or another of its name; the watch tells.
    refused = status not in (404, 409)
    if refused:
        log.warning("the status of %s was not written, it is given up: %s", what, error)
    return NextTry(None, refused)

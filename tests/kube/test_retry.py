"""A request is repeated only where that is safe and may help."""

from __future__ import annotations

import pytest

from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost, Unreachable
from phalanx.kube.retry import Backoff, RetryPolicy

from .conftest import FakeTime


def refused(status: int, retry_after: float | None = None) -> ApiError:
    return ApiError(status, "Reason", "message", retry_after=retry_after)


@pytest.mark.parametrize(
    ("error", "read", "guarded", "bare"),
    [
        (Unreachable(), True, True, True),
        (refused(429), True, True, True),
        (ConnectionLost(), True, True, False),
        (refused(500), True, True, False),
        (refused(503), True, True, False),
        (refused(504), True, True, False),
        (refused(409), False, False, False),
        (refused(404), False, False, False),
        (refused(403), False, False, False),
        (refused(422), False, False, False),
        (ConfigError(), False, False, False),
        (ValueError(), False, False, False),
    ],
    ids=lambda value: repr(value) if isinstance(value, Exception) else None,
)
def test_retryable_errors_are_recognised(error: Exception, read: bool, guarded: bool, bare: bool) -> None:
    policy = RetryPolicy()
    assert policy.retryable(error, "GET") is read
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert policy.retryable(error, method, guarded=True) is guarded
        assert policy.retryable(error, method) is bare


async def test_repeats_until_it_succeeds(fake_time: FakeTime) -> None:
    answers: list[Exception | str] = [refused(429), refused(429, 7), "done"]

    async def send() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    policy = RetryPolicy(base=1, random=lambda: 0.5, sleep=fake_time.sleep)
    assert await policy.run(send, "POST") == "done"
    assert fake_time.pauses == pytest.approx([0.75, 7.35])


async def test_gives_up_after_its_attempts_with_the_last_error(fake_time: FakeTime) -> None:
    sent = 0

    async def send() -> None:
        nonlocal sent
        sent += 1
        raise refused(429)

    with pytest.raises(ApiError, match="429"):
        await RetryPolicy(attempts=3, sleep=fake_time.sleep).run(send, "POST")
    assert (sent, len(fake_time.pauses)) == (3, 2)


async def test_a_final_answer_is_final(fake_time: FakeTime) -> None:
    async def send() -> None:
        raise refused(409)

    with pytest.raises(ApiError):
        await RetryPolicy(sleep=fake_time.sleep).run(send, "PATCH", guarded=True)
    assert fake_time.pauses == []


def test_pauses_double_up_to_their_cap_and_never_vanish() -> None:
    lowest = Backoff(base=1, cap=10, random=lambda: 0.0)
    highest = Backoff(base=1, cap=10, random=lambda: 0.999999)
    assert [lowest.next() for _ in range(6)] == [0.5, 1, 2, 4, 5, 5]
    assert [round(highest.next(), 3) for _ in range(6)] == [1, 2, 4, 8, 10, 10]
    lowest.reset()
    assert lowest.next() == 0.5


def test_retry_after_is_a_floor_with_a_ceiling() -> None:
    backoff = Backoff(base=1, cap=10, random=lambda: 0.0)
    assert backoff.next(8) == 8
    assert backoff.next(1e9) == 40
    assert backoff.next(0.1) == 2


def test_a_thousand_failures_do_not_overflow() -> None:
    backoff = Backoff(random=lambda: 1.0)
    assert [backoff.next() for _ in range(2000)][-1] == 30

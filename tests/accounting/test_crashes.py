"""Killed before and after every statement and commit: no gang is in the accounts twice, and none is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from sqlalchemy import event

from phalanx.accounting.database import Database
from phalanx.accounting.facts import PodFact, PodOutcome
from phalanx.accounting.recorder import Recorder
from phalanx.accounting.records import Clock
from phalanx.accounting.retention import prune, pseudonymise
from phalanx.accounting.sums import DAY
from tests.accounting.conftest import empty
from tests.accounting.world import T0, a_gang, a_pod, changes, rows

_COMPARED = ("runs", "members", "usage")


class Killed(BaseException):
    """A killed process: no code catches it."""


class Countdown:
    """Kills at the given boundary; counts them all where that is None."""

    def __init__(self, at: int | None) -> None:
        self.at = at
        self.seen = 0

    def pass_boundary(self, *told: Any) -> None:
        if "BEGIN IMMEDIATE" in told:
            # Nothing has happened yet, and here no process ends that holds the lock.
            return
        self.seen += 1
        if self.seen - 1 == self.at:
            if told:
                # The database rolls back for a dead process; here the test has to.
                told[0].connection.dbapi_connection.rollback()
            raise Killed


@contextmanager
def watched_for_boundaries(database: Database, countdown: Countdown) -> Iterator[None]:
    names = ("before_cursor_execute", "after_cursor_execute", "commit")
    for name in names:
        event.listen(database.engine, name, countdown.pass_boundary)
    try:
        yield
    finally:
        for name in names:
            event.remove(database.engine, name, countdown.pass_boundary)


def steps() -> list[tuple[int, list[PodFact]]]:
    """Return (now, all objects): two gangs of pods, one evicted and continued, one run twice, and a single pod."""

    def bound(uid: str, at: int, **what: Any) -> PodFact:
        return a_pod(uid, **{"bound": T0 + at, "created": T0 + at - 5, **what})

    def ended(fact: PodFact, at: int, outcome: PodOutcome = PodOutcome.SUCCEEDED, **what: Any) -> PodFact:
        return msgspec.structs.replace(fact, ended=T0 + at, outcome=outcome, **what)

    a, b = bound("a", 10, user="ada"), bound("b", 11, user="ada")
    again = bound("a2", DAY + 50, user="ada")
    other, alone = bound("o", 12, gang="h"), bound("s", 20, gang="")
    out = {"evicted": T0 + 39, "reason": "PreemptionByScheduler"}
    return [
        (6, [a_pod("a", created=T0 + 5, user="ada"), other]),
        (15, [a, b, other, alone]),
        (45, [ended(a, 40, PodOutcome.EVICTED, **out), ended(b, 41, PodOutcome.EVICTED, **out), other, alone]),
        (DAY + 60, [again, ended(other, DAY + 3), ended(alone, 60, PodOutcome.FAILED)]),
        (DAY + 90, [ended(again, DAY + 80), bound("o2", DAY + 85, gang="h"), ended(other, DAY + 3)]),
        (DAY + 99, [ended(bound("o2", DAY + 85, gang="h"), DAY + 95)]),
    ]


def play(location: str, countdown: Countdown) -> list[list[dict[str, Any]]]:
    """Pass the objects to a recorder, step by step. A killed recorder is replaced by a new one, which lists."""
    gang = a_gang()
    database = Database(location)
    try:
        for now, there in steps():
            while True:
                try:
                    with watched_for_boundaries(database, countdown):
                        Recorder(database).record(changes(*there, gang=gang), Clock(T0 + now, True))
                        countdown.pass_boundary()
                    break
                except Killed:
                    database.close()
                    database = Database(location)
        return [without_numbers(rows(database, table)) for table in _COMPARED]
    finally:
        database.close()


def without_numbers(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kept = [{name: value for name, value in line.items() if name not in ("id", "run")} for line in lines]
    return sorted(kept, key=lambda line: [str(each) for each in line.values()])


@pytest.mark.slow_but_first
@pytest.mark.timeout(900)
@pytest.mark.parametrize("every", [12, 1])
def test_accounts_are_equal_for_a_recorder_killed_at_any_write(
    database: Database, location: str, every: int
) -> None:
    whole = Countdown(None)
    expected = play(location, whole)
    assert [run["name"] for run in expected[0]] == ["g", "h", "h", "s"]
    assert [run["evictions"] for run in expected[0]] == [1, 0, 0, 0]
    assert whole.seen > 60
    for boundary in range(0, whole.seen, every):
        empty(database)
        assert play(location, Countdown(boundary)) == expected, f"killed at boundary {boundary} of {whole.seen}"


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    "change",
    [
        lambda connection: prune(connection, T0 + DAY, T0 + DAY, T0 + DAY),
        lambda connection: pseudonymise(connection, "ada", T0),
    ],
    ids=["prune", "erase"],
)
def test_removal_is_complete_or_undone_after_a_crash(
    database: Database, location: str, change: Callable[[Any], object]
) -> None:
    play(location, Countdown(None))
    before = [rows(database, table) for table in _COMPARED]
    boundary, done = 0, False
    while not done:
        try:
            with watched_for_boundaries(database, Countdown(boundary)), database.writing() as connection:
                change(connection)
            done = True
        except Killed:
            assert [rows(database, table) for table in _COMPARED] == before
            boundary += 1
    assert boundary > 5
    assert [rows(database, table) for table in _COMPARED] != before

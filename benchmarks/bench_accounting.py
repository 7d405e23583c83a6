"""How long reports and listings take over a million gangs that have ended, and how fast they are written down."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.report import Row, in_own_process, show
from phalanx.accounting.database import Database
from phalanx.accounting.facts import PodFact, PodOutcome, Precision
from phalanx.accounting.history import read_runs
from phalanx.accounting.questions import RunFilter
from phalanx.accounting.recorder import GangChange, Recorder
from phalanx.accounting.records import Clock
from phalanx.accounting.report import read_report
from phalanx.accounting.sums import DAY, encode_parts, split, usage_by_day
from phalanx.accounting.tables import members, payers, runs, usage
from phalanx.model.gang import GangKey

GANGS = 1_000_000
# Seconds for a month of a million gangs.
PROMISE = 2.0
QUEUES, USERS = 20, 10
BEGIN = 1_793_491_200  # 2026-11-01
DAYS = 30
_AMOUNTS = {"cpu": 4000, "memory": 2**34, "nvidia.com/gpu": 1, "pods": 1}
_AT_ONCE = 20_000
# What pods say of themselves: they come, get their node, end.
_LIFE: tuple[dict[str, Any], ...] = (
    {},
    {"placed": True, "bound": BEGIN + 1},
    {"ended": BEGIN + 2, "outcome": PodOutcome.SUCCEEDED},
)


def fill(location: str, gangs: int) -> None:
    """Gangs of two pods that end in one month, each with waits and hours of its own. The rows are made as the
    recorder makes them, but many at a time."""
    database = Database(location)
    database.upgrade()
    chance = random.Random(1)
    with database.writing() as connection:
        whose = [
            (number, f"team-{number % QUEUES}", f"user-{number // QUEUES}") for number in range(QUEUES * USERS)
        ]
        rows = [{"id": n + 1, "namespace": queue, "queue": queue, "user": user} for n, queue, user in whose]
        connection.execute(payers.insert(), rows)
        sums: dict[tuple[int, int, str], list[int]] = {}
        for first in range(0, gangs, _AT_ONCE):
            some_runs: list[dict[str, Any]] = []
            some_members: list[dict[str, Any]] = []
            for number in range(first, min(first + _AT_ONCE, gangs)):
                _one(number, chance, some_runs, some_members, sums)
            connection.execute(runs.insert(), some_runs)
            connection.execute(members.insert(), some_members)
        connection.execute(usage.insert(), [_usage(key, numbers) for key, numbers in sums.items()])
    database.close()


def _one(
    number: int,
    chance: random.Random,
    some_runs: list[dict[str, Any]],
    some_members: list[dict[str, Any]],
    sums: dict[tuple[int, int, str], list[int]],
) -> None:
    payer = number % (QUEUES * USERS) + 1
    started = BEGIN + chance.randrange(DAYS * DAY - 40_000)
    wait, ended = int(chance.expovariate(1 / 900)), started + 1 + int(chance.expovariate(1 / 7200)) % 39_000
    outcome = chance.choices([PodOutcome.SUCCEEDED, PodOutcome.FAILED, PodOutcome.EVICTED], [90, 7, 3])[0]
    state = {"Succeeded": "COMPLETED", "Failed": "FAILED", "Evicted": "PREEMPTED"}[outcome]
    some_runs.append(
        {
            "id": number + 1,
            "uid": f"run-{number:036}",
            "namespace": f"team-{(payer - 1) % QUEUES}",
            "name": f"gang-{number}",
            "gang": f"gang-{number}",
            "gang_uid": f"{number:036}",
            "kind": "PodGroup",
            "payer": payer,
            "state": state,
            "reason": "",
            "submitted": started - wait,
            "admitted": None,
            "admitted_precision": 0,
            "started": started,
            "wait": wait,
            "ended": ended,
            "end_precision": 0,
            "members": 2,
            "evictions": int(state == "PREEMPTED"),
        }
    )
    parts = [(started, ended, _AMOUNTS)]
    some_members.extend(
        {
            "uid": f"{number:034}-{index}",
            "run": number + 1,
            "payer": payer,
            "name": f"g-{number}-{index}",
            "role": "",
            "node": "n",
            "created": started - wait,
            "bound": started,
            "bound_precision": 0,
            "ended": ended,
            "end_precision": Precision.REPORTED,
            "ended_before": None,
            "leaves": None,
            "outcome": outcome,
            "reason": "",
            "evicted": None,
            "parts": encode_parts(parts),
        }
        for index in range(2)
    )
    for (day, resource), amount in usage_by_day(parts).items():
        numbers = sums.setdefault((day, payer, resource), [0, 0, 0])
        numbers[0] += 2 * amount
        numbers[1] += 2 * amount * (outcome is PodOutcome.EVICTED)
        numbers[2] += 2 * amount * (outcome is PodOutcome.FAILED)


def _usage(key: tuple[int, int, str], numbers: list[int]) -> dict[str, Any]:
    row: dict[str, Any] = dict(zip(("day", "payer", "resource"), key, strict=True))
    for name, number in zip(("used", "evicted", "failed"), numbers, strict=True):
        row[f"{name}_high"], row[f"{name}_low"] = split(number)
    return row


def month_report(location: str, gangs: int, by: str) -> Row:
    """Wall seconds, the connection included."""
    start = time.perf_counter()
    database = Database(location)
    with database.reading() as connection:
        lines = read_report(connection, by.split(","), BEGIN, BEGIN + DAYS * DAY, BEGIN + DAYS * DAY)
    seconds = time.perf_counter() - start
    assert sum(line.started for line in lines) == gangs
    database.close()
    return Row(
        f"month of {gangs:,} gangs by {by}", seconds, PROMISE if gangs == GANGS else None, f"{len(lines)} lines"
    )


def part_of_a_day(location: str, gangs: int) -> Row:
    """A window whose ends are within days."""
    start = time.perf_counter()
    database = Database(location)
    with database.reading() as connection:
        begin = BEGIN + 5 * DAY + 30_000
        lines = read_report(connection, ["queue"], begin, begin + 9 * DAY + 7777, BEGIN + DAYS * DAY)
    database.close()
    return Row(f"nine days and a part of {gangs:,} gangs", time.perf_counter() - start, None, f"{len(lines)} lines")


def one_day(location: str, gangs: int) -> Row:
    start = time.perf_counter()
    database = Database(location)
    with database.reading() as connection:
        begin = BEGIN + 15 * DAY
        found = read_runs(connection, RunFilter(begin, begin + DAY, users=("user-1",)), BEGIN + DAYS * DAY)
    database.close()
    return Row(f"history of a user's day, {gangs:,} gangs", time.perf_counter() - start, None, f"{len(found)} runs")


def recorded(location: str, gangs: int) -> Row:
    """Gangs of two pods that come, start and end, as the recorder is told: three transactions for each 250."""
    database = Database(location)
    database.upgrade()
    recorder, now = Recorder(database), BEGIN
    start = time.perf_counter()
    for first in range(0, gangs, 250):
        pods = [_fact(number, member, now) for number in range(first, first + 250) for member in range(2)]
        for step, what in enumerate(_LIFE):
            pods = [_changed(pod, what) for pod in pods]
            told = [GangChange(GangKey(each.namespace, each.gang), None, []) for each in pods[::2]]
            for place, change in enumerate(told):
                change.pods = pods[2 * place : 2 * place + 2]
            recorder.record(told, Clock(now + step, True))
    seconds = time.perf_counter() - start
    database.close()
    return Row(f"{gangs:,} gangs of two pods written down", seconds, None, f"{gangs / seconds:,.0f} gangs/s")


def _fact(number: int, member: int, now: int) -> PodFact:
    uid, queue = f"new-{number}-{member}", f"team-{number % QUEUES}"
    amounts = tuple(sorted(_AMOUNTS.items()))
    return PodFact(uid, queue, uid, f"new-{number}", "", queue, "ada", "n", amounts, now, False, 0)


def _changed(fact: PodFact, what: dict[str, Any]) -> PodFact:
    return msgspec.structs.replace(fact, **what)


def rows(gangs: int = GANGS, location: str = "") -> Iterator[Row]:
    """On a file of its own; `location` names another database, which is filled where it is empty."""
    with tempfile.TemporaryDirectory() as directory:
        place = location or str(Path(directory) / "accounts.db")
        fill(place, gangs)
        for by in ("queue", "queue,user"):
            yield in_own_process(month_report, place, gangs, by)
        yield in_own_process(part_of_a_day, place, gangs)
        yield in_own_process(one_day, place, gangs)
        yield in_own_process(recorded, place, 5000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gangs", type=int, default=GANGS)
    parser.add_argument("--database", default="", help="an empty database; by default a file of SQLite")
    options = parser.parse_args()
    sys.exit(0 if show(rows(options.gangs, options.database)) else 1)


if __name__ == "__main__":
    main()

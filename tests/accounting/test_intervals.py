"""For any times of observation and any repetition, the accounts equal a plain reading of the pods' lives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.accounting.database import Database
from phalanx.accounting.facts import PodFact, PodOutcome, Precision
from phalanx.accounting.recorder import GangChange, Recorder
from phalanx.accounting.records import Clock, Lost
from phalanx.accounting.report import read_report
from phalanx.accounting.runs import REQUEUED_WITHIN
from phalanx.accounting.sums import DAY, joined
from tests.accounting.conftest import empty, make_tables
from tests.accounting.world import T0, a_pod, changes, rows
from tests.extent import examples

#: Lives are sampled in steps of this many seconds around a midnight: many cross it, and moments coincide.
STEP = 40
MIDNIGHT = T0 + DAY
HORIZON = 60


class Life(msgspec.Struct, frozen=True):
    """A pod's, in steps; `bound` is None where it never got a node."""

    uid: str
    gang: str
    created: int
    bound: int | None
    ended: int
    outcome: PodOutcome
    cpu: int
    user: str

    def at(self, step: int) -> PodFact:
        fact = a_pod(
            self.uid,
            gang=self.gang,
            created=moment(self.created),
            user=self.user,
            amounts=(("cpu", self.cpu),),
        )
        if self.bound is not None and self.bound <= step:
            fact = msgspec.structs.replace(fact, placed=True, bound=moment(self.bound))
        if self.ended <= step:
            evicted = moment(self.ended) if self.outcome is PodOutcome.EVICTED else 0
            fact = msgspec.structs.replace(fact, ended=moment(self.ended), outcome=self.outcome, evicted=evicted)
        return fact


def moment(step: int) -> int:
    return MIDNIGHT + (step - HORIZON // 2) * STEP


@st.composite
def lives(draw: st.DrawFn) -> list[Life]:
    made = []
    for number in range(draw(st.integers(1, 8))):
        created = draw(st.integers(0, HORIZON - 10))
        waits, runs = draw(st.integers(0, 6)), draw(st.integers(0, 30))
        placed = draw(st.booleans()) or draw(st.booleans())
        outcome = draw(st.sampled_from([PodOutcome.SUCCEEDED, PodOutcome.FAILED, PodOutcome.EVICTED]))
        made.append(
            Life(
                uid=f"p{number}",
                gang=draw(st.sampled_from(["g", "h", ""])),
                created=created,
                bound=created + waits if placed else None,
                ended=min(created + waits + runs, HORIZON),
                outcome=outcome if placed else PodOutcome.DELETED,
                cpu=draw(st.sampled_from([1, 500, 4000])),
                user=draw(st.sampled_from(["ada", "bea"])),
            )
        )
    return made


looks = st.lists(st.integers(0, HORIZON), max_size=6).map(lambda steps: [*sorted(steps), HORIZON, HORIZON])


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("accounts") / "accounts.db"
    make_tables(str(file))
    return file


@pytest.mark.thorough
@given(lives=lives(), looks=looks)
@settings(max_examples=examples(40))
def test_accounts_equal_the_lives_of_pods(accounts: Path, lives: list[Life], looks: list[int]) -> None:
    database = emptied(accounts)
    try:
        for step in looks:
            there = [life.at(step) for life in lives if life.created <= step]
            Recorder(database).record(changes(*there), Clock(moment(step), False))
        check(database, lives)
    finally:
        database.close()


@pytest.mark.thorough
@given(lives=lives(), looks=looks)
@settings(max_examples=examples(40))
def test_nothing_is_charged_that_is_not_known_to_have_been_held(
    accounts: Path, lives: list[Life], looks: list[int]
) -> None:
    """Pods that end without a trace: each is charged until its last observation."""
    database = emptied(accounts)
    try:
        last = -1
        for step in looks:
            there = {life.uid: life for life in lives if life.created <= step < life.ended}
            told = changes(*(life.at(step) for life in there.values()))
            for known in Recorder(database).open_members():
                if known.uid not in there:
                    lost = Lost(known.uid, moment(last), moment(step))
                    told.append(GangChange(known.key, None, [], [lost]))
            Recorder(database).record(told, Clock(moment(step), False))
            last = step
        seen = {life.uid: [step for step in looks if life.created <= step < life.ended] for life in lives}
        found = {row["uid"]: row for row in rows(database, "members")}
        assert set(found) == {uid for uid, steps in seen.items() if steps}
        for life in lives:
            if seen[life.uid]:
                row, at = found[life.uid], moment(seen[life.uid][-1])
                assert row["ended"] == max(at, row["bound"] or row["created"])
                assert row["ended"] <= moment(life.ended) <= row["ended_before"]
                assert (row["end_precision"], row["outcome"]) == (Precision.ESTIMATED, PodOutcome.UNKNOWN)
        held = {key: used for key, (used, _, _) in held_per_second(lives).items()}
        assert all(used <= held[key] for key, (used, _, _) in days(database).items())
    finally:
        database.close()


def emptied(accounts: Path) -> Database:
    database = Database(str(accounts))
    empty(database)
    return database


def check(database: Database, lives: list[Life]) -> None:
    assert sorted(row["uid"] for row in rows(database, "members")) == sorted(life.uid for life in lives)
    partition: dict[int, set[str]] = {}
    for row in rows(database, "members"):
        partition.setdefault(row["run"], set()).add(row["uid"])
    assert sorted(map(sorted, partition.values())) == sorted(map(sorted, sessions(lives)))
    assert days(database) == held_per_second(lives)
    # A window that begins and ends within a day.
    begin, end = moment(HORIZON // 2 - 7) + 3, moment(HORIZON // 2 + 9) - 1
    with database.reading() as connection:
        lines = read_report(connection, ["user"], begin, end, moment(HORIZON))
    found = {line.group[0]: line.resources["cpu"].used for line in lines if line.resources}
    assert {user: used for user, used in found.items() if used} == window(lives, begin, end)


def sessions(lives: list[Life]) -> list[set[str]]:
    """The runs, by the whole lives."""
    found: list[set[str]] = [{life.uid} for life in lives if not life.gang]
    for gang in ("g", "h"):
        runs: list[list[Life]] = []
        for life in sorted(
            (each for each in lives if each.gang == gang), key=lambda each: (each.created, each.uid)
        ):
            last = max((each.ended for each in runs[-1]), default=-1) if runs else -1
            evicted = bool(runs) and any(
                each.outcome is PodOutcome.EVICTED for each in runs[-1] if each.ended == last
            )
            soon = (life.created - last) * STEP <= REQUEUED_WITHIN
            if runs and (life.created <= last or (evicted and soon)):
                runs[-1].append(life)
            else:
                runs.append([life])
        found += [{each.uid for each in run} for run in runs]
    return found


def held_per_second(lives: list[Life]) -> dict[tuple[int, str], tuple[int, int, int]]:
    """(day, user) -> CPU used, evicted, failed; counted second by second."""
    sums: dict[tuple[int, str], list[int]] = {}
    for life in lives:
        for second in range(moment(life.bound), moment(life.ended)) if life.bound is not None else ():
            entry = sums.setdefault((second // DAY, life.user), [0, 0, 0])
            entry[0] += life.cpu
            entry[1] += life.cpu if life.outcome is PodOutcome.EVICTED else 0
            entry[2] += life.cpu if life.outcome is PodOutcome.FAILED else 0
    return {key: (used, evicted, failed) for key, (used, evicted, failed) in sums.items()}


def window(lives: list[Life], begin: int, end: int) -> dict[str, int]:
    sums: dict[str, int] = {}
    for life in lives:
        if life.bound is not None:
            seconds = min(end, moment(life.ended)) - max(begin, moment(life.bound))
            sums[life.user] = sums.get(life.user, 0) + life.cpu * max(0, seconds)
    return {user: used for user, used in sums.items() if used}


def days(database: Database) -> dict[tuple[int, str], tuple[int, int, int]]:
    found: dict[tuple[int, str], tuple[int, int, int]] = {}
    for row in rows(database, "usage"):
        numbers: Any = [joined(row[f"{name}_high"], row[f"{name}_low"]) for name in ("used", "evicted", "failed")]
        before = found.get((row["day"], row["user"]), (0, 0, 0))
        found[row["day"], row["user"]] = tuple(map(sum, zip(before, numbers, strict=True)))  # type: ignore[assignment]
    return found

"""Removed accounting data is deleted, does not return, and leaves the remaining data unchanged."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from phalanx.accounting.database import Database
from phalanx.accounting.facts import PodOutcome, deleted_fact
from phalanx.accounting.recorder import Recorder
from phalanx.accounting.report import read_report
from phalanx.accounting.retention import delete_user, prune, pseudonymise
from phalanx.accounting.sums import DAY
from phalanx.accounting.tables import forgotten, metadata
from tests.accounting.world import T0, a_gang, a_pod, rows, tell

DONE = {"outcome": PodOutcome.SUCCEEDED}
OLD = a_pod("old", gang="zoe-train", user="zoe", name="zoe-train-0", bound=T0, ended=T0 + 100, **DONE)
NEW = a_pod("new", gang="h", user="bea", created=T0 + DAY, bound=T0 + DAY, ended=T0 + DAY + 50, **DONE)
NOW = 3 * DAY


def told(database: Database) -> None:
    tell(database, NOW, OLD, NEW, a_pod("running", gang="zoe-more", user="zoe", bound=T0 + 5))


def hours(database: Database, *by: str) -> dict[tuple[str, ...], int]:
    with database.reading() as connection:
        lines = read_report(connection, by, T0 - DAY, T0 + 2 * DAY, T0 + 2 * DAY)
    return {line.group: line.resources["cpu"].used for line in lines}


def test_prune_deletes_old_runs_and_preserves_running_ones(database: Database) -> None:
    told(database)
    before = hours(database)
    with database.writing() as connection:
        removed = prune(connection, T0 + DAY, 0, T0 + NOW)
    assert (removed.runs, removed.pods, removed.days) == (1, 1, 0)
    assert {run["name"] for run in rows(database, "runs")} == {"zoe-more", "h"}
    # Whole days need the sums only.
    assert hours(database) == before
    with database.writing() as connection:
        assert prune(connection, T0 + DAY, T0 + DAY, T0 + NOW).days == 2
    assert hours(database) != before


@pytest.mark.parametrize("how", [delete_user, pseudonymise, lambda c, user, now: prune(c, T0 + DAY, T0 + DAY, now)])
def test_removed_run_is_not_recorded_again_from_its_objects(database: Database, how: Any) -> None:
    told(database)
    tell(database, NOW, gang=a_gang("U", "zoe-train"))
    with database.writing() as connection:
        how(connection, "zoe", T0 + NOW)
    before = [rows(database, table) for table in ("runs", "members", "usage")]
    tell(database, NOW, OLD, NEW, watched=False)
    tell(database, NOW, gang=a_gang("U", "zoe-train"), watched=False)
    after = [rows(database, table) for table in ("runs", "members", "usage")]
    assert after[1:] == before[1:]
    assert [run["uid"] for run in after[0]] == [run["uid"] for run in before[0]]


def test_deleted_objects_are_removed_from_memory(database: Database) -> None:
    told(database)
    with database.writing() as connection:
        delete_user(connection, "zoe", T0 + NOW)
    Recorder(database).prune_forgotten(["old", "new"])
    with database.reading() as connection:
        assert connection.scalars(select(forgotten.c.uid)).all() == ["old"]


def test_a_pseudonym_takes_the_name_and_leaves_the_sums(database: Database) -> None:
    told(database)
    before = hours(database, "queue")
    with database.writing() as connection:
        pseudonym, removed = pseudonymise(connection, "zoe", T0 + NOW)
    assert (removed.runs, removed.pods, removed.under_way) == (1, 1, 1)
    assert hours(database, "queue") == before
    assert set(hours(database, "user")) == {("zoe",), ("bea",), (pseudonym,)}
    # After the end of their last run, no row identifies the user.
    tell(database, NOW + 9, deleted_fact(a_pod("running", gang="zoe-more", user="zoe", bound=T0 + 5), T0 + NOW + 9))
    with database.writing() as connection:
        second, removed = pseudonymise(connection, "zoe", T0 + NOW)
        assert (removed.runs, removed.under_way) == (1, 0)
    assert second != pseudonym
    assert "zoe" not in everything(database)


def test_deleting_a_user_takes_their_hours(database: Database) -> None:
    told(database)
    with database.writing() as connection:
        removed = delete_user(connection, "zoe", T0 + NOW)
    assert (removed.runs, removed.pods, removed.under_way) == (1, 1, 1)
    assert {run["name"] for run in rows(database, "runs")} == {"zoe-more", "h"}
    assert {row["user"] for row in rows(database, "usage")} == {"bea"}


def test_erasing_an_unknown_user_changes_nothing(database: Database) -> None:
    told(database)
    before = [rows(database, table) for table in ("runs", "members", "usage")]
    with database.writing() as connection:
        pseudonymise(connection, "nobody", T0)
        delete_user(connection, "nobody", T0)
    assert [rows(database, table) for table in ("runs", "members", "usage")] == before


def everything(database: Database) -> str:
    with database.reading() as connection:
        return str([connection.execute(select(table)).all() for table in metadata.sorted_tables])

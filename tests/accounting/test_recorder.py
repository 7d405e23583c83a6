"""Runs and charges that the recorder derives from changes of pods and gangs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import event

from phalanx.accounting.database import Database, DatabaseError
from phalanx.accounting.facts import PodFact, PodOutcome, Precision, deleted_fact
from phalanx.accounting.recorder import GangChange, Recorder
from phalanx.accounting.records import Clock, Lost
from phalanx.accounting.sums import DAY, decode_parts, joined
from phalanx.model.gang import GangKey
from tests.accounting.world import T0, a_gang, a_pod, changes, only, rows, tell

DONE = {"outcome": PodOutcome.SUCCEEDED}
EVICTED = {"outcome": PodOutcome.EVICTED, "reason": "PreemptionByScheduler"}


def bound(uid: str, at: int, **what: Any) -> PodFact:
    return a_pod(uid, bound=T0 + at, **what)


def used(database: Database, column: str = "used") -> dict[str, int]:
    sums: dict[str, int] = {}
    for row in rows(database, "usage"):
        number = joined(row[f"{column}_high"], row[f"{column}_low"])
        sums[row["resource"]] = sums.get(row["resource"], 0) + number
    return {name: number for name, number in sums.items() if number}


def test_a_gang_waits_runs_and_completes(database: Database) -> None:
    tell(database, 1, a_pod("a"), a_pod("b", created=T0 + 1))
    assert (only(database)["state"], only(database)["submitted"]) == ("PENDING", T0)
    tell(database, 11, bound("a", 10), bound("b", 10, created=T0 + 1))
    run = only(database)
    assert (run["state"], run["started"], run["wait"], run["members"]) == ("RUNNING", T0 + 10, 10, 2)
    assert used(database) == {}
    tell(database, 30, bound("a", 10, ended=T0 + 20, **DONE), bound("b", 10, created=T0 + 1))
    assert only(database)["state"] == "RUNNING"
    tell(database, 40, bound("b", 10, created=T0 + 1, ended=T0 + 35, **DONE))
    run = only(database)
    assert (run["state"], run["ended"], run["end_precision"]) == ("COMPLETED", T0 + 35, Precision.REPORTED)
    assert used(database) == {"cpu": 1000 * (10 + 25), "memory": 2**30 * (10 + 25)}


def test_repeated_observation_changes_nothing(database: Database) -> None:
    told = (bound("a", 10, ended=T0 + 20, **DONE), bound("b", 10), a_pod("c"))
    tell(database, 30, *told)
    before = [rows(database, table) for table in ("runs", "members", "usage")]
    for now in (31, 5000):
        tell(database, now, *told, watched=False)
    assert [rows(database, table) for table in ("runs", "members", "usage")] == before


def test_ended_pod_does_not_change(database: Database) -> None:
    tell(database, 30, bound("a", 10, ended=T0 + 20, **DONE))
    tell(database, 50, bound("a", 10, ended=T0 + 45, user="mallory", outcome=PodOutcome.FAILED))
    assert (only(database)["state"], only(database)["ended"]) == ("COMPLETED", T0 + 20)
    assert used(database)["cpu"] == 10_000


def test_a_gang_that_comes_back_after_its_end_runs_again(database: Database) -> None:
    tell(database, 30, bound("a", 10, ended=T0 + 20, **DONE))
    tell(database, 60, bound("b", 50, created=T0 + 40, ended=T0 + 55, **DONE))
    assert [(run["uid"], run["submitted"], run["ended"]) for run in rows(database, "runs")] == [
        ("a", T0, T0 + 20),
        ("b", T0 + 40, T0 + 55),
    ]


def test_runs_that_ended_unobserved_are_distinguished(database: Database) -> None:
    first, second = bound("a", 10, ended=T0 + 20, **DONE), bound("b", 50, created=T0 + 40, ended=T0 + 55, **DONE)
    tell(database, 100, second, first, bound("c", 80, created=T0 + 70), watched=False)
    found = [(run["state"], run["submitted"]) for run in rows(database, "runs")]
    assert found == [("COMPLETED", T0), ("COMPLETED", T0 + 40), ("RUNNING", T0 + 70)]


def test_member_that_arrives_while_its_gang_runs_joins_the_run(database: Database) -> None:
    tell(database, 100, bound("a", 10, ended=T0 + 60, **DONE), bound("b", 50, created=T0 + 40), watched=False)
    assert only(database)["members"] == 2


def test_evicted_gang_continues_its_run(database: Database) -> None:
    gang = a_gang()
    away = (
        bound("a", 10, evicted=T0 + 29, ended=T0 + 30, **EVICTED),
        bound("b", 10, evicted=T0 + 30, ended=T0 + 31, **EVICTED),
    )
    tell(database, 40, *away, gang=gang)
    run = only(database)
    assert (run["state"], run["evictions"], run["ended"]) == ("PENDING", 1, None)
    again = (bound("a2", 5000, created=T0 + 4000), bound("b2", 5000, created=T0 + 4000))
    tell(database, 5001, *again, gang=gang)
    assert (only(database)["state"], only(database)["members"]) == ("RUNNING", 4)
    ends = [msgspec.structs.replace(each, ended=T0 + 5100, outcome=PodOutcome.SUCCEEDED) for each in again]
    tell(database, 5200, *ends, gang=gang)
    run = only(database)
    assert (run["state"], run["evictions"], run["started"]) == ("COMPLETED", 1, T0 + 10)
    assert used(database, "evicted")["cpu"] == 1000 * (20 + 21)
    assert used(database)["cpu"] == 1000 * (20 + 21 + 200)


def test_label_gang_ends_on_eviction_and_continues_if_it_returns_soon(
    database: Database,
) -> None:
    tell(database, 40, bound("a", 10, evicted=T0 + 30, ended=T0 + 30, **EVICTED))
    run = only(database)
    assert (run["state"], run["reason"], run["ended"]) == ("PREEMPTED", "PreemptionByScheduler", T0 + 30)
    tell(database, 50, a_pod("a2", created=T0 + 45))
    assert (only(database)["state"], only(database)["ended"], only(database)["evictions"]) == ("PENDING", None, 1)
    tell(database, 60, deleted_fact(a_pod("a2", created=T0 + 45), T0 + 60))
    tell(database, 9000, a_pod("late", created=T0 + 8000))
    assert len(rows(database, "runs")) == 2


def test_evictions_within_a_minute_are_one(database: Database) -> None:
    pods = [
        bound(f"p{number}", 0, evicted=T0 + at, ended=T0 + at, **EVICTED) for number, at in enumerate((5, 50, 300))
    ]
    tell(database, 400, *pods)
    assert only(database)["evictions"] == 2


def test_a_gang_object_is_a_run_before_it_has_pods(database: Database) -> None:
    gang = a_gang(admission=True, admitted=False)
    tell(database, 5, gang=gang)
    assert (only(database)["state"], only(database)["admitted"]) == ("PENDING", None)
    gang = msgspec.structs.replace(gang, admitted=True)
    tell(database, 7, gang=gang)
    tell(database, 20, bound("a", 15, created=T0 + 9), gang=gang)
    run = only(database)
    assert (run["submitted"], run["admitted"], run["wait"]) == (T0, T0 + 7, 15)
    assert run["admitted_precision"] == Precision.OBSERVED
    assert run["kind"] == "PodGroup.scheduling.volcano.sh"


def test_without_admission_pods_submit_a_gang_however_old_its_object_is(database: Database) -> None:
    tell(database, 5, gang=a_gang())
    tell(database, 520, bound("a", 515, created=T0 + 500), gang=a_gang())
    assert (only(database)["submitted"], only(database)["wait"]) == (T0 + 500, 15)


def test_a_gang_that_is_withdrawn_before_it_started_is_cancelled(database: Database) -> None:
    tell(database, 5, gang=a_gang())
    tell(database, 9, gone="g")
    assert (only(database)["state"], only(database)["ended"]) == ("CANCELLED", T0 + 9)


def test_new_object_of_one_name_is_another_gang(database: Database) -> None:
    tell(database, 5, bound("a", 3), gang=a_gang("G1"))
    tell(database, 9, a_pod("b", created=T0 + 8), gang=a_gang("G2"))
    states = {run["gang_uid"]: (run["state"], run["members"]) for run in rows(database, "runs")}
    assert states == {"G1": ("RUNNING", 1), "G2": ("PENDING", 1)}


def test_pods_on_their_own_are_runs_of_their_own(database: Database) -> None:
    tell(
        database,
        50,
        bound("a", 1, gang="", name="job-1", outcome=PodOutcome.FAILED, ended=T0 + 11),
        bound("b", 2, gang=""),
    )
    found = {run["name"]: (run["state"], run["kind"]) for run in rows(database, "runs")}
    assert found == {"job-1": ("FAILED", "Pod"), "b": ("RUNNING", "Pod")}
    assert used(database, "failed")["cpu"] == 10_000


def test_the_last_of_each_name_says_how_a_run_ended(database: Database) -> None:
    failed = bound("a1", 1, name="a", outcome=PodOutcome.FAILED, ended=T0 + 11)
    tell(database, 90, failed, bound("a2", 20, name="a", created=T0 + 9, ended=T0 + 80, **DONE))
    assert only(database)["state"] == "COMPLETED"


def test_a_deadline_is_a_timeout(database: Database) -> None:
    tell(database, 90, bound("a", 1, outcome=PodOutcome.FAILED, reason="DeadlineExceeded", ended=T0 + 11))
    assert only(database)["state"] == "TIMEOUT"


def test_a_pod_that_says_it_is_in_another_gang_stays_where_it_was(database: Database) -> None:
    tell(database, 12, bound("a", 10))
    tell(database, 20, bound("a", 10, gang="h"), bound("b", 10, gang="h"))
    assert {run["name"]: run["members"] for run in rows(database, "runs")} == {"g": 1, "h": 1}
    both = [*changes(bound("c", 30, created=T0 + 15)), *changes(bound("c", 30, created=T0 + 15, gang="h"))]
    Recorder(database).record(both, Clock(T0 + 40, True))
    assert sum(run["members"] for run in rows(database, "runs")) == 3


class TestMoments:
    def test_missing_timestamp_is_replaced_by_our_clock(self, database: Database) -> None:
        tell(database, 12, a_pod("a", placed=True))
        tell(database, 30, a_pod("a", placed=True, **DONE))
        (row,) = rows(database, "members")
        assert (row["bound"], row["ended"]) == (T0 + 12, T0 + 30)
        assert (row["bound_precision"], row["end_precision"]) == (Precision.OBSERVED, Precision.OBSERVED)

    def test_unobserved_time_is_an_estimate_that_favours_no_account(self, database: Database) -> None:
        tell(database, 500, a_pod("a", placed=True, ended=T0 + 100, **DONE), watched=False)
        (row,) = rows(database, "members")
        assert (row["bound"], row["bound_precision"]) == (T0 + 100, Precision.ESTIMATED)
        assert used(database) == {}

    def test_a_pod_that_vanished_unseen_ran_as_long_as_it_is_known_to_have(self, database: Database) -> None:
        tell(database, 12, bound("a", 10))
        lost = GangChange(GangKey("ml", "g"), None, [], [Lost("a", T0 + 60, T0 + 900)])
        Recorder(database).record([lost], Clock(T0 + 900, False))
        (row,) = rows(database, "members")
        assert (row["ended"], row["ended_before"], row["outcome"]) == (T0 + 60, T0 + 900, "Unknown")
        assert only(database)["state"] == "UNKNOWN"
        assert used(database)["cpu"] == 50_000

    def test_or_until_its_grace_was_over(self, database: Database) -> None:
        tell(database, 12, bound("a", 10, leaves=T0 + 70, evicted=T0 + 12, reason="EvictionByEvictionAPI"))
        lost = GangChange(GangKey("ml", "g"), None, [], [Lost("a", T0 + 60, T0 + 900)])
        Recorder(database).record([lost], Clock(T0 + 900, False))
        assert (only(database)["state"], only(database)["ended"]) == ("EVICTED", T0 + 70)

    def test_none_is_in_the_future_or_before_the_one_before_it(self, database: Database) -> None:
        tell(database, 50, bound("a", -100, ended=T0 + 9999, **DONE), bound("b", 20, ended=T0 + 10, **DONE))
        found = {row["uid"]: (row["bound"] - T0, row["ended"] - T0) for row in rows(database, "members")}
        assert found == {"a": (0, 50), "b": (20, 20)}


class TestUsage:
    def test_is_kept_by_day(self, database: Database) -> None:
        tell(database, 3 * DAY, bound("a", DAY - 10, ended=T0 + 2 * DAY + 5, **DONE))
        days = {
            row["day"]: joined(row["used_high"], row["used_low"])
            for row in rows(database, "usage")
            if row["resource"] == "cpu"
        }
        first = T0 // DAY
        assert days == {first: 10_000, first + 1: DAY * 1000, first + 2: 5_000}

    def test_is_exact_beyond_63_bits(self, database: Database) -> None:
        pods = [
            bound(f"p{number}", 0, amounts=(("memory", 2**50 + 1),), ended=T0 + DAY, **DONE) for number in range(5)
        ]
        for pod in pods:
            tell(database, 2 * DAY, pod)
        assert used(database) == {"memory": 5 * (2**50 + 1) * DAY}
        assert 5 * (2**50 + 1) * DAY > 2**63

    def test_follows_a_resize_in_place(self, database: Database) -> None:
        tell(database, 10, bound("a", 10))
        tell(database, 20, bound("a", 10, amounts=(("cpu", 3000), ("memory", 2**30))))
        tell(database, 40, bound("a", 10, amounts=(("cpu", 3000), ("memory", 2**30)), ended=T0 + 25, **DONE))
        assert used(database)["cpu"] == 1000 * 10 + 3000 * 5
        (row,) = rows(database, "members")
        assert [part[:2] for part in decode_parts(row["parts"])] == [(T0 + 10, T0 + 20), (T0 + 20, T0 + 25)]

    def test_pod_is_charged_to_the_account_that_it_named_when_it_was_bound(self, database: Database) -> None:
        tell(database, 5, a_pod("a", user="ada"))
        tell(database, 11, bound("a", 10, user="bea", queue="research"))
        tell(database, 20, bound("a", 10, user="mallory", queue="other"))
        tell(database, 40, bound("a", 10, user="mallory", queue="other", ended=T0 + 35, **DONE))
        assert {(row["user"], row["queue"]) for row in rows(database, "usage")} == {("bea", "research")}
        assert (only(database)["user"], only(database)["queue"]) == ("bea", "research")


def test_accounts_of_two_clusters_are_separate(database: Database) -> None:
    recorder = Recorder(database)
    assert recorder.adopt("uid-1") == 0
    recorder.record_watched_until(T0)
    recorder.record_watched_until(T0 - 5)
    assert recorder.adopt("uid-1") == T0
    with pytest.raises(DatabaseError, match="another cluster"):
        recorder.adopt("uid-2")


def test_recorder_reads_by_index_for_any_size_of_the_accounts(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "accounts.db"))
    database.upgrade()
    plans: list[str] = []

    @event.listens_for(database.engine, "before_cursor_execute")
    def explain(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("SELECT"):
            raw = connection.connection.dbapi_connection.cursor()
            plans.extend(line[3] for line in raw.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall())

    tell(database, 12, bound("a", 10), gang=a_gang())
    tell(database, 20, bound("a", 10, ended=T0 + 15, **EVICTED), a_pod("b"), gang=a_gang())
    database.close()
    assert len(plans) > 10
    assert [plan for plan in plans if plan.startswith("SCAN") and "CONSTANT" not in plan] == []

"""CronJobs: started runs, retained jobs, and status, also over a death of the controller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from phalanx.kube.errors import ApiError
from tests.controllers.cron_jobs import BEGIN, CRON_JOBS, CronWorld, run
from tests.controllers.jobs import JOBS

Story = Callable[[CronWorld], Awaitable[None]]


async def test_a_run_begins_when_it_is_due() -> None:
    world = CronWorld()
    world.submit(timeZone="Asia/Kolkata")
    await world.at(4, 59)
    assert world.jobs() == []
    assert world.wake == 1.0
    await world.at(5)
    assert world.jobs() == [5]
    job = world.api.get_object(JOBS, run(5))
    assert job["metadata"]["labels"] == {"a": "b"}
    stamp = job["metadata"]["annotations"]["volcano.sh/cronjob-scheduled-timestamp"]
    assert stamp == "2026-01-01T05:35:00+05:30"
    owner = job["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["controller"]) == ("CronJob", True)
    assert job["spec"] == {"tasks": [{"name": "w", "replicas": 1}]}
    assert world.status()["lastScheduleTime"] == "2026-01-01T00:05:00Z"
    assert world.active() == [5]
    assert world.reasons() == ["SuccessfulCreate"]


async def test_nothing_is_written_between_the_runs() -> None:
    world = CronWorld()
    world.submit()
    await world.at(5)
    writes = len(world.api.writes)
    for minute in range(6, 10):
        await world.at(minute)
    world.restart()
    await world.settle()
    assert len(world.api.writes) == writes


async def test_a_job_that_has_ended_is_active_no_more() -> None:
    world = CronWorld()
    world.submit()
    await world.at(5)
    world.end(run(5))
    await world.at(6)
    assert world.active() == []
    assert world.status()["lastSuccessfulTime"] == "2026-01-01T00:05:00Z"
    assert world.reasons()[-1] == "SawCompletedJob"


@pytest.mark.parametrize(
    ("policy", "jobs", "reason"),
    [
        ("Allow", [5, 10], "SuccessfulCreate"),
        ("Forbid", [5], "ForbidConcurrent"),
        ("Replace", [10], "SuccessfulCreate"),
    ],
)
async def test_a_run_that_meets_the_one_before_it(policy: str, jobs: list[int], reason: str) -> None:
    world = CronWorld()
    world.submit(concurrencyPolicy=policy)
    await world.at(5)
    await world.at(10)
    assert world.jobs() == world.active() == jobs
    assert world.reasons()[-1] == reason
    writes = len(world.api.writes)
    await world.at(11)
    assert len(world.api.writes) == writes


async def test_a_run_that_had_to_wait_begins_when_the_one_before_it_has_ended() -> None:
    world = CronWorld()
    world.submit(concurrencyPolicy="Forbid")
    await world.at(5)
    await world.at(12)
    world.end(run(5))
    await world.at(13)
    assert world.jobs() == [5, 10]


@pytest.mark.parametrize(("late", "jobs"), [(30, [5]), (31, [])])
async def test_a_run_that_is_too_late_does_not_begin(late: int, jobs: list[int]) -> None:
    world = CronWorld()
    world.submit(startingDeadlineSeconds=30)
    await world.at(5, late)
    assert world.jobs() == jobs
    assert world.wake == 300 - late


async def test_a_schedule_of_intervals_has_a_deadline_too() -> None:
    world = CronWorld()
    world.submit("@every 90s", startingDeadlineSeconds=5)
    await world.at(1, 30)
    assert world.jobs() == [1]
    await world.at(3)
    assert world.jobs() == [1, 3]
    assert world.status()["lastScheduleTime"] == "2026-01-01T00:03:00Z"


async def test_last_of_many_missed_runs_starts_and_a_warning_counts_the_missed_ones() -> None:
    world = CronWorld()
    world.submit("* * * * *")
    await world.at(100)
    assert world.jobs() == [100]
    assert "TooManyMissedTimes" not in world.reasons()
    await world.at(201, 40)
    assert world.jobs() == [100, 201]
    assert world.reasons().count("TooManyMissedTimes") == 1


async def test_a_suspended_one_begins_nothing_but_tidies_up() -> None:
    world = CronWorld()
    world.submit()
    await world.at(5)
    world.edit(suspend=True, successfulJobsHistoryLimit=0)
    world.end(run(5))
    await world.at(30)
    assert world.jobs() == []
    assert world.wake is None
    world.edit(suspend=False)
    await world.at(31)
    assert world.jobs() == [30]


async def test_history_limits_retain_the_latest_jobs_and_terminated_ones_count_as_failed() -> None:
    world = CronWorld()
    world.submit(successfulJobsHistoryLimit=2, failedJobsHistoryLimit=1)
    for index, phase in enumerate(("Completed", "Failed", "Completed", "Terminated", "Completed", "Running")):
        minute = 5 * (index + 1)
        await world.at(minute)
        world.end(run(minute), phase)
    await world.at(31)
    assert world.jobs() == [15, 20, 25, 30]
    assert world.active() == [30]


async def test_history_limits_default_to_those_of_the_definition() -> None:
    world = CronWorld()
    world.submit()
    for minute in range(5, 30, 5):
        await world.at(minute)
        world.end(run(minute))
    await world.at(26)
    assert world.jobs() == [15, 20, 25]


async def test_foreign_job_is_not_changed() -> None:
    world = CronWorld()
    world.submit()
    world.api.apply(JOBS, {"metadata": {"name": run(5)}, "spec": {"mine": True}})
    await world.at(5)
    assert world.api.get_object(JOBS, run(5))["spec"] == {"mine": True}
    assert world.reasons() == ["ForeignJob"]
    assert world.api.writes == []
    await world.at(10)
    assert world.jobs() == [5, 10]


async def test_a_job_of_another_time_does_not_hold_back_the_runs() -> None:
    world = CronWorld()
    world.submit()
    uid = world.api.get_object(CRON_JOBS, "c")["metadata"]["uid"]
    owner = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "CronJob",
        "name": "c",
        "uid": uid,
        "controller": True,
    }
    world.api.apply(JOBS, {"metadata": {"name": "c-999999999999", "ownerReferences": [owner]}, "spec": {}})
    await world.at(5)
    assert run(5) in [job["metadata"]["name"] for job in world.api.all(JOBS)]
    assert world.status()["lastScheduleTime"] == "2026-01-01T00:05:00Z"


async def test_job_deleted_by_a_user_is_reported_and_not_started_again() -> None:
    world = CronWorld()
    world.submit()
    await world.at(5)
    world.api.erase(JOBS, run(5))
    await world.at(6)
    assert world.jobs() == world.active() == []
    assert world.reasons()[-1] == "StaleReference"


async def test_a_job_that_the_status_has_forgotten_is_taken_into_it_again() -> None:
    world = CronWorld()
    world.submit(concurrencyPolicy="Forbid")
    await world.at(5)
    world.api.update(CRON_JOBS, "c", lambda body: body["status"].pop("active"))
    await world.at(6)
    assert world.active() == [5]
    assert world.reasons()[-1] == "OrphanedJob"


@pytest.mark.parametrize(
    ("schedule", "spec", "reason"),
    [
        ("every five minutes", {}, "UnParseableCronJobSchedule"),
        ("* * * * *", {"timeZone": "Mars/Olympus"}, "InvalidTimeZone"),
        ("0 0 31 2 *", {}, "InvalidSchedule"),
        ("* * * * *", {"suspend": "yes"}, "InvalidCronJob"),
        ("* * * * *", {"startingDeadlineSeconds": [1]}, "InvalidCronJob"),
    ],
)
async def test_unreadable_schedule_starts_nothing_and_is_reported_once(
    schedule: str, spec: dict[str, Any], reason: str
) -> None:
    world = CronWorld()
    world.submit(schedule, **spec)
    world.submit(name="good")
    await world.at(5)
    await world.at(6)
    assert [job["metadata"]["name"].rpartition("-")[0] for job in world.api.all(JOBS)] == ["good"]
    assert world.reasons().count(reason) == 1


async def test_a_zone_in_the_schedule_works_with_a_warning() -> None:
    world = CronWorld()
    world.submit("TZ=Asia/Kolkata 35 5 * * *", timeZone="UTC")
    await world.at(5)
    assert world.jobs() == [5]
    assert world.reasons()[0] == "UnsupportedSchedule"


async def test_refused_job_is_reported_and_retried() -> None:
    world = CronWorld()

    def refuse(collection: str, body: dict[str, Any]) -> None:
        raise ApiError(403, "Forbidden", "no such queue")

    world.api.refuse = refuse
    world.submit()
    await world.at(5)
    assert world.api.events == [("c", "FailedCreate", "Failed to create job: no such queue")]
    world.api.refuse = lambda collection, body: None
    await world.at(6)
    assert world.jobs() == [5]


async def runs(world: CronWorld) -> None:
    world.submit()
    await world.at(5)
    await world.at(10)


async def replaces(world: CronWorld) -> None:
    world.submit(concurrencyPolicy="Replace")
    await world.at(5)
    await world.at(10)


async def keeps_a_history(world: CronWorld) -> None:
    world.submit(successfulJobsHistoryLimit=1, failedJobsHistoryLimit=0)
    for minute, phase in ((5, "Completed"), (10, "Failed"), (15, "Completed")):
        await world.at(minute)
        world.end(run(minute), phase)
        await world.at(minute + 1)


async def keeps_its_intervals(world: CronWorld) -> None:
    world.submit("@every 90s")
    for seconds in (90, 150, 180, 240, 270):
        await world.at(0, seconds)


@pytest.mark.parametrize(
    "story", [runs, replaces, keeps_a_history, keeps_its_intervals], ids=lambda story: story.__name__
)
async def test_no_death_changes_the_end(story: Story) -> None:
    undisturbed = CronWorld()
    await story(undisturbed)
    expected, writes = (undisturbed.jobs(), _told(undisturbed)), len(undisturbed.api.writes)
    assert writes > 3
    for number in range(1, writes + 1):
        for applied in (False, True):
            world = CronWorld()
            world.api.dies_at = (number, applied)
            await story(world)
            assert world.deaths == 1
            assert (world.jobs(), _told(world)) == expected, f"dead {'after' if applied else 'before'} {number}"
            # Each run was begun once.
            created = [verb for verb, _ in world.api.writes].count("create")
            assert created == [verb for verb, _ in undisturbed.api.writes].count("create")
            assert "OrphanedJob" not in world.reasons()


def _told(world: CronWorld) -> dict[str, Any]:
    return {**world.status(), "active": world.active()}


def test_the_beginning_is_a_full_hour() -> None:
    assert BEGIN % 3600 == 0

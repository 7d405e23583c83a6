"""Plan of a CronJob: the job to create, the jobs to delete, and the next status.

The name of a CronJob's job contains its scheduled minute, so a job that is created twice for one minute is the same
job. The status follows from the existing jobs: a scheduled time whose job exists is done, regardless of the status.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, tzinfo

import msgspec
from msgspec.structs import replace

from phalanx.dialects.times import format_time, parse_time
from phalanx.jobs.child_jobs import ChildJob
from phalanx.jobs.cron_schedule import CronSchedule, find_zone, parse_cron, split_zone
from phalanx.jobs.notes import EventNote
from phalanx.jobs.spec import BATCH, VERSION, ActiveJob, CronJob, CronJobStatus, JobPhase
from phalanx.model.text.decoding import parse_whole, quoted

# Defaults of the kind's definition.
_SUCCESSFUL, _FAILED = 3, 1
# Number of missed runs after which an event is recorded.
_MANY = 100


class CronPlan(msgspec.Struct, frozen=True):
    """Steps for a CronJob, in this order: delete `replaced`, create the job of the scheduled time `start`
    (seconds), write `status`, delete `to_delete`.

    `zone` is the time zone of the schedule. `wake_at` is the next scheduled time, None if there is none.
    """

    status: CronJobStatus
    events: tuple[EventNote, ...] = ()
    start: int | None = None
    replaced: tuple[ChildJob, ...] = ()
    to_delete: tuple[ChildJob, ...] = ()
    zone: tzinfo = UTC
    wake_at: int | None = None


def child_name(cron_job: str, moment: int) -> str:
    return f"{cron_job}-{moment // 60}"


def scheduled_timestamp(moment: int, zone: tzinfo) -> str:
    """Return the value of the annotation with a job's scheduled time."""
    text = datetime.fromtimestamp(moment, zone).isoformat(timespec="seconds")
    return text.removesuffix("+00:00") + "Z" if zone is UTC else text


def plan_runs(cron_job: CronJob, jobs: Sequence[ChildJob], now: int) -> CronPlan:
    """Return the next steps of a CronJob. `jobs` are the jobs of the namespace with the name of one of its
    scheduled times, of any owner."""
    children = sorted(
        (job for job in jobs if job.owner == cron_job.metadata.uid), key=lambda job: (job.created, job.name)
    )
    status = _status(cron_job, children, now)
    events = [*_changes(cron_job, children, status)]
    plan = CronPlan(status, to_delete=(*_old(cron_job, children),))
    if not cron_job.spec.suspend:
        plan = _runs(cron_job, plan, {job.name: job for job in jobs}, events, now)
    return replace(plan, events=tuple(events))


def _status(cron_job: CronJob, children: Iterable[ChildJob], now: int) -> CronJobStatus:
    status, name = cron_job.status, cron_job.metadata.name
    active, scheduled, successful = [], [], []
    for child in children:
        if not child.ended:
            active.append(child)
        elif child.phase == JobPhase.COMPLETED:
            successful.append(child.finished)
        minute = parse_whole(child.name.removeprefix(f"{name}-"), 0) if child.name.startswith(f"{name}-") else None
        # A job written by a user can have any name.
        if minute is not None and minute * 60 <= now:
            # Runs of an interval need not start at a full minute: the job's stated second counts if its name
            # agrees.
            scheduled.append(child.scheduled if child.scheduled // 60 == minute else minute * 60)
    return CronJobStatus(
        active=tuple(_reference(cron_job, child) for child in active),
        last_schedule_time=_latest(status.last_schedule_time, scheduled),
        last_successful_time=_latest(status.last_successful_time, successful),
    )


def _reference(cron_job: CronJob, child: ChildJob) -> ActiveJob:
    return ActiveJob(
        api_version=f"{BATCH}/{VERSION}",
        kind="Job",
        name=child.name,
        namespace=cron_job.metadata.namespace,
        uid=child.uid,
    )


def _latest(recorded: str | None, moments: Iterable[int]) -> str | None:
    """Return the last scheduled time that the status records, or the latest of `moments` if that is later."""
    latest = max(moments, default=0)
    return format_time(latest) if latest > parse_time(recorded) else recorded


def _changes(cron_job: CronJob, children: Sequence[ChildJob], status: CronJobStatus) -> Iterator[EventNote]:
    """Yield events about jobs that started, finished or vanished since the CronJob's former status."""
    known = {child.uid: child for child in children}
    by_name = {child.name: child for child in children}
    for reference in cron_job.status.active:
        child, namesake = known.get(reference.uid), by_name.get(reference.name)
        if child is not None and child.ended:
            note = f"Saw completed job: {child.name} in active, remove"
            yield EventNote("Normal", "SawCompletedJob", note, reference.uid)
        elif child is None and namesake is not None:
            note = (
                f"Active job reference {reference.name} points to a different UID "
                f"(expected: {reference.uid}, actual: {namesake.uid})"
            )
            yield EventNote("Warning", "StaleReference", note, reference.uid)
        elif child is None:
            note = f"Active job {reference.name} no longer exists (UID: {reference.uid})"
            yield EventNote("Warning", "StaleReference", note, reference.uid)
    listed = {reference.uid for reference in cron_job.status.active}
    if status.last_schedule_time != cron_job.status.last_schedule_time:
        return  # a run has started, but its status is written only now
    for reference in status.active:
        if reference.uid not in listed:
            note = (
                f"Detected orphaned job forgotten or not managed by controller: {reference.name} "
                f"(UID: {reference.uid})"
            )
            yield EventNote("Warning", "OrphanedJob", note, reference.uid)


def _old(cron_job: CronJob, children: Iterable[ChildJob]) -> Iterator[ChildJob]:
    """Yield the finished jobs of a CronJob beyond its history limits, oldest first."""
    ended = [child for child in children if child.ended and not child.deleting]
    good = [child for child in ended if child.phase == JobPhase.COMPLETED]
    bad = [child for child in ended if child.phase != JobPhase.COMPLETED]
    spec = cron_job.spec
    for listed, limit, default in (
        (good, spec.successful_jobs_history_limit, _SUCCESSFUL),
        (bad, spec.failed_jobs_history_limit, _FAILED),
    ):
        yield from listed[: max(0, len(listed) - max(0, default if limit is None else limit))]


def _runs(
    cron_job: CronJob, plan: CronPlan, by_name: dict[str, ChildJob], events: list[EventNote], now: int
) -> CronPlan:
    timing = _schedule(cron_job, events)
    if timing is None:
        return plan
    schedule, zone = timing
    # Runs before the last started run, or before the creation of the CronJob, are skipped.
    since = max(parse_time(plan.status.last_schedule_time), parse_time(cron_job.metadata.creation_timestamp))
    due = schedule.last_between(since, now, zone)
    following = schedule.next_after(max(due or since, since if schedule.every else now), zone)
    plan = replace(plan, zone=zone, wake_at=following)
    if following is None and due is None:
        note = "Error getting schedule time: the schedule matches no day of the next years"
        events.append(EventNote("Warning", "InvalidSchedule", note, cron_job.spec.schedule))
    deadline = cron_job.spec.starting_deadline_seconds
    earliest = since if deadline is None else max(since, now - max(0, deadline) - 1)
    if due is None or due <= earliest:
        return plan
    return _begin(cron_job, plan, due, earliest, by_name, events, (schedule, now))


def _begin(
    cron_job: CronJob,
    plan: CronPlan,
    due: int,
    earliest: int,
    by_name: dict[str, ChildJob],
    events: list[EventNote],
    timing: tuple[CronSchedule, int],
) -> CronPlan:
    metadata, subject = cron_job.metadata, str(due)
    name = child_name(metadata.name, due)
    present = by_name.get(name)
    if present is not None:
        if present.owner != metadata.uid:
            owner = present.owner or "none"
            note = f"Job {name} exists but is not owned by this CronJob (current owner: {owner})"
            events.append(EventNote("Warning", "ForeignJob", note, subject))
        return plan
    schedule, now = timing
    if _missed_many(schedule, earliest, now, plan.zone):
        note = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
        events.append(EventNote("Warning", "TooManyMissedTimes", note, subject))
    running = tuple(job for job in by_name.values() if job.owner == metadata.uid and not job.ended)
    if running and cron_job.spec.concurrency_policy == "Forbid":
        note = "Skipping job creation because another job is already running"
        events.append(EventNote("Warning", "ForbidConcurrent", note, subject))
        return plan
    if running and cron_job.spec.concurrency_policy == "Replace":
        events.append(EventNote("Warning", "ReplaceConcurrent", "Replacing active job for CronJob", subject))
        plan = replace(plan, replaced=tuple(job for job in running if not job.deleting))
    return replace(plan, start=due)


def _missed_many(schedule: CronSchedule, after: int, now: int, zone: tzinfo) -> bool:
    at: int | None = after
    for _ in range(_MANY + 1):
        at = schedule.next_after(at, zone) if at is not None else None
        if at is None or at > now:
            return False
    return True


def _schedule(cron_job: CronJob, events: list[EventNote]) -> tuple[CronSchedule, tzinfo] | None:
    """Return the CronJob's schedule and its time zone; None, and an event, if one of them is invalid."""
    text, name = cron_job.spec.schedule, cron_job.spec.time_zone
    prefix, expression = split_zone(text)
    if prefix is not None:
        note = (
            f"CRON_TZ or TZ in the schedule {quoted(text)} is not officially supported. "
            "If set, the TimeZone field will be ignored during execution."
        )
        events.append(EventNote("Warning", "UnsupportedSchedule", note, text))
        name = prefix
    zone = UTC if name is None else find_zone(name)
    if zone is None:
        note = f"Invalid time zone {quoted(name)}: use an IANA name such as Europe/Paris"
        events.append(EventNote("Warning", "InvalidTimeZone", note, name or ""))
        return None
    schedule = parse_cron(expression)
    if schedule is None:
        note = f"unparseable schedule for cronjob: {quoted(text)}"
        events.append(EventNote("Warning", "UnParseableCronJobSchedule", note, text))
        return None
    return schedule, zone

"""Pods that exist at the beginning of a simulation: their grouping into jobs, and the end of running ones."""

from __future__ import annotations

import enum
import math

import msgspec

from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.gang import GangKey
from phalanx.model.pod import MemberState, Pod, PodPhase
from phalanx.scheduling.gangs.quorum import quorum_requirement
from phalanx.scheduling.reservations.pod_ends import after_overrun
from phalanx.simulation.history import JobHistory
from phalanx.simulation.job import SimulatedJob

_ENDED = (MemberState.SUCCEEDED, MemberState.FAILED)


class AssumedRunTimes(enum.StrEnum):
    """Assumed run time of pods without a known one."""

    LIMITS = "limits"  # until they are killed, which is the latest possible end
    ESTIMATES = "estimates"  # the users' estimates, without one until they are killed


class PresentJob(msgspec.Struct):
    """An existing job. `pods` are its live pods, each with the seconds from its start to its end (None: unknown).

    `ended` are the uids of pods that have ended and still exist. `gang` is None for a single pod."""

    job: SimulatedJob
    history: JobHistory
    gang: GangKey | None
    pods: list[tuple[Pod, int | None]]
    ended: list[str]


def present_jobs(state: ClusterState, now: int, run_times: AssumedRunTimes) -> list[PresentJob]:
    """Return the jobs by name, without placeholders. Waiting pods of another scheduler are jobs that never
    start."""
    groups: dict[tuple[str, str], tuple[GangKey | None, list[PodRecord]]] = {}
    for record in state.pods.values():
        pod = record.pod
        if pod.placeholder:
            continue
        key = record.gang.key if record.gang is not None else None
        name = key.path if key is not None else pod.key
        groups.setdefault((name, "" if key is not None else pod.uid), (key, []))[1].append(record)
    return [
        _job(state, name, key, sorted(records, key=lambda record: record.order), now, run_times)
        for (name, _), (key, records) in sorted(groups.items())
        if any(record.state not in _ENDED for record in records)
    ]


def _job(
    state: ClusterState,
    name: str,
    key: GangKey | None,
    records: list[PodRecord],
    now: int,
    run_times: AssumedRunTimes,
) -> PresentJob:
    alive = [record.pod for record in records if record.state not in _ENDED]
    first, minimum, preemptable = alive[0], 1, all(pod.preemptable for pod in alive)
    queue, created = first.queue, min(pod.created or now for pod in alive)
    gang = state.gangs.get(key) if key is not None else None
    if gang is not None and gang.spec is not None:
        minimum = max(1, gang.spec.min_member)
        need = quorum_requirement(gang, gang.spec)
        # A started gang that needs only some members now does not restart when it loses one.
        minimum = 1 if need.satisfied and gang.active and minimum > gang.active else minimum
        queue, created = gang.spec.queue, gang.spec.created or created
        preemptable = preemptable and gang.spec.preemptable
    job = SimulatedJob(
        name,
        min(created, now),
        None,
        first.pod_class,
        pods=len(records),
        minimum=min(minimum, len(records)),
        width=len(records),
        queue=queue,
        user=first.user,
        namespace=first.namespace,
        priority=first.priority,
        preemptable=preemptable,
        grace=first.grace,
    )
    history = JobHistory(
        name, job.submit, job.width, job.pods, queue, first.user, first.run_time.limit, first.priority
    )
    running = sorted(pod.started or pod.bound or now for pod in alive if pod.node and not pod.terminating)
    if running:
        history.start, history.node = running[-1], next(pod.node for pod in alive if pod.node)
    pods = [(pod, _length(pod, now, run_times)) for pod in alive]
    return PresentJob(job, history, key, pods, [record.pod.uid for record in records if record.state in _ENDED])


def _length(pod: Pod, now: int, run_times: AssumedRunTimes) -> int | None:
    """Return the seconds from the pod's (future) start to its end. An overdue pod gets some more time."""
    start, stated = pod.started or now, pod.run_time
    limit = stated.latest_end(start, pod.grace)
    end = limit
    if run_times is AssumedRunTimes.ESTIMATES and stated.expected():
        end = start + stated.expected()
        if end <= now and limit is not None:
            end = limit
    if end is None:
        return None
    return math.ceil(end if end > now else after_overrun(end, now)) - start


def replacement(pod: Pod, name: str, now: int) -> Pod:
    """Return the pod that a controller creates in place of a deleted one."""
    return msgspec.structs.replace(
        pod,
        name=name,
        uid=f"{pod.namespace}/{name}",
        node="",
        phase=PodPhase.PENDING,
        terminating=False,
        condemned="",
        created=now,
        nominated_node="",
        mark=None,
        started=0,
        bound=0,
        checkpoint=0,
        leaves=0,
        cards=(),
    )

"""Counts and flags that decide a gang's state, from API documents: a job or PodGroup with its pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from phalanx.jobs.suspended import HOLD, QUEUE_LABEL
from phalanx.reports.jobs.entries import SUSPENDED, JobEntry, PodEntry
from phalanx.reports.jobs.kinds import GANG, JOB, JOB_SET
from phalanx.views.gang_state import GangFacts, GangState

Json = Mapping[str, Any]

_ENDS: Mapping[str, GangState] = MappingProxyType(
    {"Completed": GangState.COMPLETED, "Failed": GangState.FAILED, "Terminated": GangState.CANCELLED}
)
_STOPPING = frozenset({"Aborting", "Terminating", "Completing", "Restarting"})


def document_facts(job: JobEntry, document: Json, pods: Sequence[PodEntry]) -> GangFacts:
    """Return the counts and flags that decide the state of a job or gang. Readable pods take precedence over its
    status."""
    alive = [pod for pod in pods if not pod.finished and not pod.terminating]
    waiting = [pod for pod in alive if not pod.node]
    running = sum(bool(pod.node) and pod.phase == "Running" for pod in alive)
    gone = [pod for pod in pods if pod.terminating and not pod.finished]
    # The scheduler writes the status of a PodGroup with a delay, so the pods are newer; only a job decides its own
    # end.
    owned = job.kind != GANG
    phase = job.phase if owned or not pods else ""
    return GangFacts(
        minimum=job.minimum,
        pending=sum(not pod.gated for pod in waiting) if pods else job.pending,
        gated=sum(pod.gated for pod in waiting),
        placed=len(alive) - len(waiting) - running,
        running=running if pods else job.running,
        succeeded=max(job.succeeded, sum(pod.phase == "Succeeded" for pod in pods)),
        failed=max(job.failed, sum(pod.phase == "Failed" for pod in pods)),
        terminating=len(gone) if pods else job.terminating,
        evicted=sum(pod.evicted for pod in gone),
        ended=_ENDS.get(phase),
        suspended=phase in SUSPENDED and not is_queued(job.kind, document),
        stopping=phase in _STOPPING,
        owner_decides=owned,
    )


def is_queued(kind: str, document: Json) -> bool:
    """Return whether a suspended job of another controller waits in a queue, so that its admission resumes it."""
    metadata = document.get("metadata")
    labels, annotations = (
        part_of_metadata
        if isinstance(metadata, dict) and isinstance(part_of_metadata := metadata.get(part), dict)
        else {}
        for part in ("labels", "annotations")
    )
    return kind in (JOB, JOB_SET) and bool(labels.get(QUEUE_LABEL)) and annotations.get(HOLD) != "true"

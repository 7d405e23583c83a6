"""Admission rules about the state of the queue that a job or PodGroup names."""

from __future__ import annotations

from phalanx.admission.context import ROOT, QueueCatalog
from phalanx.admission.fields import mapping, text

OPEN = "Open"


def missing_queue(name: str) -> str:
    """Return the API server's message for a queue that does not exist."""
    return f'queue.scheduling.volcano.sh "{name}" not found'


def refusals_of_queue(queues: QueueCatalog, name: str, kind: str) -> list[str]:
    """Return the reasons why a `job` or a `PodGroup` cannot be submitted to a queue. A queue without a state is
    open."""
    queue = queues.get(name)
    if queue is None:
        return [f"unable to find {'job queue' if kind == 'job' else 'queue'}: {missing_queue(name)};"]
    refusals = []
    state = text(mapping(queue.get("status")).get("state")) or OPEN
    if state != OPEN:
        refusals.append(f"can only submit {kind} to queue with state `Open`, queue `{name}` status is `{state}`;")
    if name == ROOT:
        return [*refusals, f"can not submit {kind} to root queue;"]
    children = len(queues.children(name))
    if children:
        refusals.append(f"can only submit {kind} to leaf queue, queue `{name}` has {children} child queues;")
    return refusals

"""Entries of gang lists, and the response of the scheduler process with these entries."""

from __future__ import annotations

import msgspec

from phalanx.views.gang_state import GangState
from phalanx.views.promises import PromiseOrigin


class GangEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Entry of a gang list: one gang, or a job with its pods.

    `kind` is vcjob, job, jobset, podgroup, gang (declared by its pods only), or the kind of the owner. `target` is
    the gang's argument for other commands. Members: `running`, `minimum` that start together, `total`. `gpus`
    counts the GPUs that the pods request, shared ones as fractions. `started` is the time when the minimum was
    running. `start` is the promised start, `expected` the median start of similar units, `promise` the origin of
    both and its time. Times are RFC 3339. `reason` (a code) and `message` explain why the gang waits or how it
    ended.
    """

    kind: str
    namespace: str
    name: str
    uid: str = ""
    target: str = ""
    state: GangState
    queue: str = ""
    user: str = ""
    priority: int = 0
    scheduler: str = ""
    running: int = 0
    minimum: int = 0
    total: int = 0
    gpus: int | float = 0
    created: str = ""
    started: str = ""
    finished: str = ""
    start: str = ""
    expected: str = ""
    nodes: tuple[str, ...] = ()
    reason: str = ""
    message: str = ""
    group: str = ""
    owner: str = ""
    labels: dict[str, str] = {}
    promise: PromiseOrigin | None = None

    @property
    def over(self) -> bool:
        return self.state.over


class ListedGangs(msgspec.Struct, frozen=True):
    """Response of /v1/gangs; `moment` is the time of the list, RFC 3339."""

    moment: str
    items: list[GangEntry]
    kind: str = "List"


def whole_or_part(percent: int) -> int | float:
    """Convert hundredths of a GPU to a number of GPUs: 4, or 0.5."""
    return percent // 100 if percent % 100 == 0 else percent / 100


def gone(entry: GangEntry) -> GangEntry | None:
    """Return the entry that a watched list shows for a gang that is no longer listed; None for a finished gang."""
    if entry.over:
        return None
    return msgspec.structs.replace(
        entry, state=GangState.DELETED, running=0, nodes=(), reason="Deleted", message=""
    )

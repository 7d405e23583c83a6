"""Gangs as lists show them, whoever made them: what the scheduler's process answers, and what lists are made of."""

from __future__ import annotations

import msgspec

from phalanx.views.gang_state import GangState
from phalanx.views.promises import PromiseOrigin


class GangEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One gang, or job whose pods are one.

    `kind` is vcjob, job, jobset, podgroup, gang (only its pods declare it), or that of who made it. `target` is
    what other commands call it. Members: `running`, `minimum` that start together, `total`. `gpus` are those that
    its pods ask for, a part of one as a fraction. `started` is when as many as it needs had begun to run, `start`
    until when it starts by promise, `expected` when half of the like did, `promise` where these come from and as
    of when. Moments are RFC 3339. `reason` (a code) and `message` say why it waits or how it ended.
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
    """`moment` is when the list was made, RFC 3339."""

    moment: str
    items: list[GangEntry]
    kind: str = "List"


def whole_or_part(percent: int) -> int | float:
    """GPUs from hundredths of one: 4, or 0.5."""
    return percent // 100 if percent % 100 == 0 else percent / 100


def gone(entry: GangEntry) -> GangEntry | None:
    """How a watch shows one that is not listed any more; None where it has only been over for a while."""
    if entry.over:
        return None
    return msgspec.structs.replace(
        entry, state=GangState.DELETED, running=0, nodes=(), reason="Deleted", message=""
    )

"""What the page is told, as data: the stable structures behind `/api/v1`. Moments are RFC 3339, amounts integers.

Amounts are in the units of the scheduler: CPU in thousandths of a core, memory in bytes, all else by count.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from phalanx.hub.dispatch_answer import DispatchAnswer
from phalanx.model.verdict import NamedObject, Objects
from phalanx.reports.account_entries import QueueEntry, QuotaEntry
from phalanx.reports.whatif.answer import WhatIfAnswer
from phalanx.reports.why_answer import WhyAnswer
from phalanx.views.gang_state import GangState, PlacementForecast

Row = TypeVar("Row")


class GangRow(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A gang, or a pod on its own (`kind` pod).

    `state` is what is observed (docs/gang-states.md), `forecast` what the last rehearsal would do with it now.
    While it waits, `reason` is a code, `message` a sentence and `change` the smallest change that would help, as
    the last rehearsal has them; `start` is when it starts at the latest, or is planned to (`start_kind` promised
    or planned). `asks` is what all members that are there ask for together. `title` is what people call it where
    `name` is longer. `brief` says the reason with its counts and names nothing; `objects` are those that `message`
    and `change` name, absent where that is not known.
    """

    id: str
    kind: str
    namespace: str
    name: str
    title: str = ""
    queue: str = ""
    priority: int = 0
    state: GangState
    forecast: PlacementForecast = PlacementForecast.NONE
    minimum: int = 0
    pending: int = 0
    gated: int = 0
    placed: int = 0
    running: int = 0
    finished: int = 0
    terminating: int = 0
    asks: dict[str, int] = {}
    created: str = ""
    reason: str = ""
    message: str = ""
    change: str = ""
    brief: str = ""
    objects: Objects = None
    start: str = ""
    start_kind: str = ""


class NodeRow(msgspec.Struct, omit_defaults=True, kw_only=True):
    """`free` is what is left for others of what the node offers, never below 0. `closed` says why nothing new
    comes here (it is cordoned, or in maintenance), `taint` the first taint that keeps pods off that do not tolerate
    it; "" for none."""

    id: str
    zone: str = ""
    rack: str = ""
    offered: dict[str, int] = {}
    free: dict[str, int] = {}
    pods: int = 0
    closed: str = ""
    taint: str = ""


class QueueRow(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A queue or a quota as `phalanx queue` has it; `place` is its position in the tree's order."""

    id: str
    place: int
    queue: QueueEntry | None = None
    quota: QuotaEntry | None = None


class EvictionRow(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Who was evicted: `reason` is Preempted, Reclaimed, Rescheduled or Revoked, `message` for whom and why.
    `preemptor` is the object that gets the room, where there is one."""

    id: str
    when: str
    namespace: str
    pod: str
    gang: str = ""
    reason: str
    message: str
    preemptor: NamedObject | None = None


class ReservationRow(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Something on the axis of time: `kind` is reservation, maintenance or start. `end` is "" where nobody knows;
    `nodes` are those of a maintenance window that are named. `namespace` is that of a gang that starts."""

    id: str
    kind: str
    title: str
    namespace: str = ""
    start: str
    end: str = ""
    queue: str = ""
    note: str = ""
    nodes: list[str] = []


class ClusterSummary(msgspec.Struct, kw_only=True):
    """Numbers only: what the cluster offers and what of it is used, how many gangs (and pods on their own) are in
    which state, the commonest reasons of those that wait. `current` says whether the watches are up to date."""

    current: bool
    nodes: int
    closed_nodes: int
    offered: dict[str, int]
    used: dict[str, int]
    states: dict[str, int]
    reasons: dict[str, int]
    rehearsed: str = ""
    rehearsal_seconds: float = 0.0
    warnings: list[str] = []


class SummaryRow(msgspec.Struct, kw_only=True):
    id: str
    summary: ClusterSummary


class TableAnswer(msgspec.Struct, Generic[Row], kw_only=True):
    """All rows of one table that the viewer may see, as of `version`: the stream goes on from there. `omitted`
    names what he may not see."""

    table: str
    epoch: str
    version: int
    rows: list[Row]
    omitted: list[str]


class TableDelta(msgspec.Struct, Generic[Row], kw_only=True):
    """One event of the stream: rows that are new or have changed, and the ids of those that are gone."""

    table: str
    epoch: str
    version: int
    put: list[Row]
    gone: list[str]


class MemberLine(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The life of one member: when it was created, got its node, began to run, was told to leave, ended, and was
    gone; "" where that has not happened or was not seen. `cause` says why it was told to leave, `reason` is the
    code of that."""

    name: str
    state: str
    node: str = ""
    created: str = ""
    gated: bool = False
    planned: str = ""
    bound: str = ""
    started: str = ""
    told: str = ""
    cause: str = ""
    reason: str = ""
    ended: str = ""
    gone: str = ""


class Mark(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Something that happened to the gang as a whole; `objects` are those that `message` names, absent where that
    is not known."""

    when: str
    what: str
    message: str = ""
    objects: Objects = None


class GangAnswer(msgspec.Struct, kw_only=True):
    """One gang: its row, why it waits and when it starts, and what has happened to it. `why` is None where the
    rehearsal does not know it yet; `problem` says why there is no answer."""

    row: GangRow | None
    why: WhyAnswer | None
    members: list[MemberLine]
    marks: list[Mark]
    problem: str
    omitted: list[str]


class Series(msgspec.Struct, kw_only=True):
    """`times` in seconds since the epoch; of each queue the share of the cluster that it used, and by right, in
    percent (None before it was there)."""

    resolution: int
    times: list[int]
    used: dict[str, list[float | None]]
    right: dict[str, list[float | None]]


class HistoryAnswer(msgspec.Struct, kw_only=True):
    series: list[Series]


class AccountsAnswer(msgspec.Struct, kw_only=True):
    """What queues held day by day, from the accounts. `state` is there, none (no accounts are configured) or away
    (they cannot be read now); `message` says so. `times` are the midnights (UTC, seconds since the epoch) at which
    the days begin, `held` (resource -> queue -> a number a day) how much was held on average, in the units of the
    scheduler, `total` by all queues together."""

    state: str
    message: str = ""
    times: list[int] = []
    held: dict[str, dict[str, list[float]]] = {}
    total: dict[str, list[float]] = {}


class ClusterRow(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A member cluster of this hub. `active` is "True" while it can be used, `reason` and `message` say why not, as
    of the MemberCluster's condition; `state` is what an operator wants of it. `gangs` counts those that are there
    by the phase of their Dispatch, `unknown` those of them of which nobody knows because it does not answer.
    `offered` is what its nodes offer together, `used` what pods held when it was last asked about a gang, both as
    quantities; `credential_expires` is until when the hub's credential there is good."""

    id: str
    state: str = "Active"
    active: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_seen: str = ""
    cost: int = 0
    gangs: dict[str, int] = {}
    unknown: int = 0
    version: str = ""
    nodes: int = 0
    ready: int = 0
    offered: dict[str, str] = {}
    used: dict[str, str] = {}
    credential_expires: str = ""
    credential_ends: bool = False


class DispatchRow(msgspec.Struct, kw_only=True):
    """A gang that is left to this hub."""

    id: str
    namespace: str
    name: str
    created: str
    dispatch: DispatchAnswer


class SessionAnswer(msgspec.Struct, kw_only=True):
    """Who looks. `namespace` is the only one that he sees, "" for all. `namespaces` has those with gangs, among
    which he may choose; None for who knows his own himself. `writes`: whether orders to gangs are taken here.
    `hub`: whether gangs are sent from here to other clusters, and he may see which."""

    user: str
    login: str
    namespace: str
    everything: bool
    version: str
    schedulers: list[str]
    what_if: bool
    namespaces: list[str] | None = None
    writes: bool = False
    hub: bool = False


class LoginAnswer(msgspec.Struct, kw_only=True):
    """`token` is to be sent as a bearer token with all other requests."""

    token: str


class WhatIfRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """As the options of `phalanx what-if`; amounts are written `cpu=64,nvidia.com/gpu=8`."""

    manifest: str = ""
    gang: str = ""
    namespace: str = "default"
    add_nodes: int = 0
    like: str = ""
    without_nodes: str = ""
    queue: str = ""
    weight: int = 0
    capability: str = ""
    deserved: str = ""
    priority: int | None = None


class WhatIfReply(msgspec.Struct, kw_only=True):
    """`command` prints the same as `answer` in a terminal."""

    command: str
    answer: WhatIfAnswer


class OrderRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """To a gang, or with `pod` to a pod on its own. Without `confirmed` it only says what would happen; with it
    `uid` is that of the object that was shown."""

    namespace: str
    name: str
    pod: bool = False
    confirmed: bool = False
    uid: str = ""


class OrderAnswer(msgspec.Struct, kw_only=True):
    """`object` is what the order is for: the object at the top that makes the pods, with its `uid`."""

    message: str
    object: str
    uid: str
    done: bool = False


class ErrorAnswer(msgspec.Struct, kw_only=True):
    """Every answer that is no: what is wrong, for people."""

    error: str


ROWS: dict[str, type[msgspec.Struct]] = {
    "summary": SummaryRow,
    "gangs": GangRow,
    "queues": QueueRow,
    "nodes": NodeRow,
    "evictions": EvictionRow,
    "reservations": ReservationRow,
    "clusters": ClusterRow,
    "dispatches": DispatchRow,
}
#: What each path answers, but for those of tables.
ANSWERS: dict[str, Any] = {
    "GET /api/v1/session": SessionAnswer,
    "POST /api/v1/login": LoginAnswer,
    "GET /api/v1/gangs/{namespace}/{name}": GangAnswer,
    "GET /api/v1/pods/{namespace}/{name}": GangAnswer,
    "GET /api/v1/history": HistoryAnswer,
    "GET /api/v1/accounts": AccountsAnswer,
    "POST /api/v1/what-if": WhatIfReply,
    "POST /api/v1/orders/{verb}": OrderAnswer,
}

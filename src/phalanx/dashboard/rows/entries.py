"""Stable data types of `/api/v1`. Times are RFC 3339, amounts integers.

Amounts are in the scheduler's units: CPU in millicores, memory in bytes, other resources as counts.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from phalanx.daemon.gang_entries import ListedGangs
from phalanx.hub.dispatch_answer import DispatchAnswer
from phalanx.model.verdict import NamedObject, Objects
from phalanx.reports.account_entries import QueueEntry, QueueReport, QuotaEntry
from phalanx.reports.nodes.entries import NodesAnswer
from phalanx.reports.published_policy import PublicSettings
from phalanx.reports.start_entries import StartsAnswer
from phalanx.reports.turn_entries import OrderReport
from phalanx.reports.whatif.answer import WhatIfAnswer
from phalanx.reports.whatif.remote import WhatIfResult
from phalanx.reports.why_answer import WhyAnswer
from phalanx.views.gang_state import GangState, PlacementForecast

Row = TypeVar("Row")


class GangRow(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Row of a gang or a single pod (`kind` pod).

    `state` is the observed state (docs/gang-states.md), `forecast` the result of the last dry run. For a waiting
    gang, `reason` is a code, `message` a sentence and `change` the smallest helpful change, all from the last dry
    run; `start` is the promised or planned start (`start_kind`). `asks` sums the requests of all existing members.
    `title` is the display name if `name` is longer. `brief` states the reason with counts and without names.
    `objects` are the objects that `message` and `change` name, None if unknown. `job` is the gang's job as
    KIND/NAME, the form that commands accept; `user` is the user that the policy's label names. `nodes` are
    the first nodes of its members by name, of `node_count`. `started` is the time from which the minimum of members
    runs.
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
    job: str = ""
    user: str = ""
    nodes: list[str] = []
    node_count: int = 0
    started: str = ""


class NodeRow(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Row of a node.

    `free` is the unused part of `offered`, never below 0. `closed` states why the node accepts no pods (cordoned or
    in maintenance). `taint` is the first taint that repels pods without a toleration. Both are "" for none.
    """

    id: str
    zone: str = ""
    rack: str = ""
    offered: dict[str, int] = {}
    free: dict[str, int] = {}
    pods: int = 0
    closed: str = ""
    taint: str = ""


class QueueRow(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Row of a queue or quota as in `phalanx queue`; `place` is its position in the tree's order."""

    id: str
    place: int
    queue: QueueEntry | None = None
    quota: QuotaEntry | None = None


class EvictionRow(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Row of an evicted pod.

    `reason` is Preempted, Reclaimed, Rescheduled or Revoked; `message` names the preemptor and the cause.
    `preemptor` is the object that receives the freed resources, if any.
    """

    id: str
    when: str
    namespace: str
    pod: str
    gang: str = ""
    reason: str
    message: str
    preemptor: NamedObject | None = None


class ReservationRow(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Row of the time axis: an advance reservation, a maintenance window, or a start.

    `kind` is reservation, maintenance or start. `end` is "" if unknown. `nodes` are the named nodes of a
    maintenance window. `namespace` is the namespace of a starting gang.
    """

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
    """Cluster totals: offered and used resources, numbers of gangs and single pods by state, the most frequent
    reasons of waiting.

    `current` is False while the API server is unreachable.
    """

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
    """Response with all visible rows of one table at `version`, the version from which the stream continues.

    `omitted` names the parts for which the viewer lacks rights.
    """

    table: str
    epoch: str
    version: int
    rows: list[Row]
    omitted: list[str]


class TableDelta(msgspec.Struct, Generic[Row], kw_only=True):
    """Event of the stream about one table: new and changed rows, and the ids of removed rows."""

    table: str
    epoch: str
    version: int
    put: list[Row]
    gone: list[str]


class MemberLine(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Times of one member: when it was created, bound, running, requested to terminate, finished and deleted; ""
    for a step that did not happen or was not observed.

    `cause` and `reason` (a code) state why it was evicted.
    """

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
    """Event in the timeline of a whole gang. `objects` are the objects that `message` names, None if unknown."""

    when: str
    what: str
    message: str = ""
    objects: Objects = None


class GangAnswer(msgspec.Struct, kw_only=True):
    """Details of one gang: its row, why it waits, when it starts, and its history.

    `why` is None before the first dry run with the gang; `problem` states why an answer is missing.
    """

    row: GangRow | None
    why: WhyAnswer | None
    members: list[MemberLine]
    marks: list[Mark]
    problem: str
    omitted: list[str]


class Series(msgspec.Struct, kw_only=True):
    """Shares of queues over time.

    `times` are seconds since the epoch; the values are each queue's used and deserved share in percent, None before
    the queue existed.
    """

    resolution: int
    times: list[int]
    used: dict[str, list[float | None]]
    right: dict[str, list[float | None]]


class HistoryAnswer(msgspec.Struct, kw_only=True):
    series: list[Series]


class AccountsAnswer(msgspec.Struct, kw_only=True):
    """Daily usage of queues from the accounting database.

    `state` is there, none (no accounting configured) or away (the database cannot be read now); `message` explains
    it. `times` are the midnights (UTC, seconds since the epoch) at which the days begin. `held` (resource -> queue
    -> value per day) is the average usage in the scheduler's units, `total` the sum of all queues.
    """

    state: str
    message: str = ""
    times: list[int] = []
    held: dict[str, dict[str, list[float]]] = {}
    total: dict[str, list[float]] = {}


class ClusterRow(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Row of a member cluster of this hub.

    `active` is "True" if the cluster is usable; `reason` and `message` are from the MemberCluster's condition;
    `state` is the state that an operator requested. `gangs` counts the cluster's gangs by the phase of their
    Dispatch, `unknown` counts gangs of unknown state in an unreachable cluster. `offered` is the total of its
    nodes, `used` the usage at the last query about a gang, both as quantities. `credential_expires` is the expiry
    of the hub's credential.
    """

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
    """Row of a gang that this hub dispatches."""

    id: str
    namespace: str
    name: str
    created: str
    dispatch: DispatchAnswer


class SessionAnswer(msgspec.Struct, kw_only=True):
    """Session of a viewer of the page.

    `namespace` is the only visible namespace, "" for all. `namespaces` lists the selectable namespaces with gangs,
    None for a viewer of single namespaces. `writes` is True if the page accepts commands to gangs. `hub` is True if
    this cluster is a hub whose dispatches the viewer can see.
    """

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
    """Response to a login. All later requests send `token` as a bearer token."""

    token: str


class WhatIfRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What-if question with the options of `phalanx what-if`; resource amounts have the form
    `cpu=64,nvidia.com/gpu=8`."""

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
    """Answer to a what-if question, and the `command` that prints the same in a terminal."""

    command: str
    answer: WhatIfAnswer


class OrderRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Command (hold, release, cancel) to a gang, or with `pod` to a single pod.

    Without `confirmed` the response only predicts the effect. With `confirmed`, `uid` is the uid of the object that
    the page showed.
    """

    namespace: str
    name: str
    pod: bool = False
    confirmed: bool = False
    uid: str = ""


class OrderAnswer(msgspec.Struct, kw_only=True):
    """Response to a command: `object` is the top-level object that creates the pods, with its `uid`."""

    message: str
    object: str
    uid: str
    done: bool = False


class BulkOrderRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One command to several gangs; see OrderRequest."""

    orders: list[OrderRequest]


class BulkOrderEntry(msgspec.Struct, kw_only=True):
    """Response to one of several commands, in their order. `error` states why it was refused, "" if it was not."""

    namespace: str
    name: str
    message: str = ""
    object: str = ""
    uid: str = ""
    error: str = ""


class BulkOrderAnswer(msgspec.Struct, kw_only=True):
    answers: list[BulkOrderEntry]


class ShownObject(msgspec.Struct, kw_only=True):
    """Object of a gang as YAML, without managedFields."""

    kind: str
    name: str
    yaml: str


class ObjectsAnswer(msgspec.Struct, kw_only=True):
    """Job, PodGroups and pods of a gang; `omitted` is the number of further pods."""

    objects: list[ShownObject]
    omitted: int = 0


class LogAnswer(msgspec.Struct, kw_only=True):
    """Last lines of a container's log, and the containers of the pod. `problem` states why there is no log."""

    text: str
    containers: list[str]
    problem: str = ""


class ErrorAnswer(msgspec.Struct, kw_only=True):
    """Response to a refused request, with the reason as a text."""

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
#: Answer type of each path, except tables.
ANSWERS: dict[str, Any] = {
    "GET /api/v1/session": SessionAnswer,
    "POST /api/v1/login": LoginAnswer,
    "GET /api/v1/gangs/{namespace}/{name}": GangAnswer,
    "GET /api/v1/pods/{namespace}/{name}": GangAnswer,
    "GET /api/v1/history": HistoryAnswer,
    "GET /api/v1/accounts": AccountsAnswer,
    "POST /api/v1/what-if": WhatIfReply,
    "POST /api/v1/orders/{verb}": OrderAnswer,
    "POST /api/v1/bulk-orders/{verb}": BulkOrderAnswer,
    "GET /api/v1/objects/{namespace}/{name}": ObjectsAnswer,
    "GET /api/v1/logs/{namespace}/{pod}": LogAnswer,
    "GET /api/v1/commands/why": WhyAnswer,
    "GET /api/v1/commands/jobs": ListedGangs,
    "GET /api/v1/commands/order": OrderReport,
    "GET /api/v1/commands/starts": StartsAnswer,
    "GET /api/v1/commands/queues": QueueReport,
    "GET /api/v1/commands/nodes": NodesAnswer,
    "GET /api/v1/commands/settings": PublicSettings,
    "POST /api/v1/commands/what-if": WhatIfResult,
}

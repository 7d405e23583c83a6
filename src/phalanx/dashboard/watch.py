"""Watch of the cluster for the page: updates the tables and the dry-run process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import Collection

import msgspec

from phalanx.cluster.state import ClusterState
from phalanx.daemon.node_load import measure
from phalanx.daemon.observer import Observer
from phalanx.daemon.policy_file import dialect_options
from phalanx.daemon.signing_keys import reading_signer
from phalanx.dashboard.history import ShareHistory
from phalanx.dashboard.lifelines import Lifelines
from phalanx.dashboard.news import News
from phalanx.dashboard.own_queues import OwnQueues
from phalanx.dashboard.rehearsal.messages import Failed, PlannedStart, Rehearse, Rehearsed, RehearsedVerdict
from phalanx.dashboard.rehearsal.process import RehearsalEnded, RehearsalProcess
from phalanx.dashboard.rows.clusters import Clusters
from phalanx.dashboard.rows.entries import ClusterSummary, GangRow, Mark, QueueRow, SummaryRow
from phalanx.dashboard.rows.evictions import Evictions
from phalanx.dashboard.rows.gangs import gang_row, pod_row
from phalanx.dashboard.rows.jobs import StoppedJobs
from phalanx.dashboard.rows.nodes import node_row
from phalanx.dashboard.rows.reservations import reservation_rows
from phalanx.dashboard.tables import Tables
from phalanx.dialects.core import PodObject
from phalanx.dialects.intake import Intake
from phalanx.dialects.registry import installed_dialects
from phalanx.dialects.signatures import Signer
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.failures import Failures
from phalanx.kube.reflector import ReflectorState
from phalanx.model.events import ClusterEvent, NodeBackoffsRestored
from phalanx.model.gang import GangKey
from phalanx.model.pod import MemberState
from phalanx.model.text.duration import format_moment
from phalanx.reports.read_promises import read_promises
from phalanx.reports.snapshot import DisruptionTarget, Snapshot, disruption_target_of
from phalanx.reports.stored_history import read_backoffs
from phalanx.reports.stored_usage import read_usage
from phalanx.scheduling.framework.policy import Policy
from phalanx.views.gang_state import GangState
from phalanx.views.promises import Promises

log = logging.getLogger(__name__)

# Seconds in which changes are collected before the tables are updated.
_GATHER = 0.25
# Pause between two rehearsals: a minimum in seconds, and a multiple of a rehearsal's duration.
_LEAST_PAUSE, _PAUSE_FACTOR = 1.0, 2.0
# The minimum while a reader waits for the present state.
_AWAITED_PAUSE = 0.1
# Time alone changes verdicts (windows, budgets): longest pause in seconds without any change.
_MOST_PAUSE = 60.0
# Seconds between two reads of the scheduler's records (promises, usage).
_RECORD_PERIOD = 10.0
# Seconds between two checks whether the watches are current.
_REACHABLE_PERIOD = 2.0
_MARKS_OF_GANG, _MOST_MARKED = 48, 20_000
_REASONS_TOLD = 8
_MOST_CHANGED_ROWS = 1 << 15
# A dry run of at most this many seconds is awaited before an answer, if the cluster has changed since the last one.
_SHORT_RUN, _SHORT_WAIT = 0.5, 3.0


class WatchOptions(msgspec.Struct, frozen=True):
    """Options of the page's cluster watch.

    `schedulers` are the scheduler names whose pods are shown (none: all names that the scheduler publishes).
    `config` is the policy file ("" for the policy that the scheduler publishes). `lease_namespace` is the namespace
    of the scheduler's records.
    """

    schedulers: tuple[str, ...] = ("phalanx",)
    config: str = ""
    lease_namespace: str = "kube-system"


class WatchedState(ClusterState):
    """Cluster state that reports each applied event to a callback."""

    rehearsal: RehearsalProcess

    def apply(self, event: ClusterEvent) -> None:
        super().apply(event)
        self.rehearsal.tell(event)


class ClusterWatch:
    """Watch of one cluster and its dry runs, for the page.

    `tables` contain the rows of the page, `news` announces their changes. `last` is the last dry run, `problem` the
    reason why it is missing or old.
    """

    def __init__(
        self, client: KubeClient, options: WatchOptions, policy: Policy, rehearsal: RehearsalProcess
    ) -> None:
        self.options = options
        self.policy = policy
        self.tables = Tables()
        self.history = ShareHistory()
        self.lifelines = Lifelines()
        self.news = News()
        self.rehearsal = rehearsal
        self.last: Rehearsed | None = None
        self.problem = ""
        self.ready = asyncio.Event()
        self.generation = 0
        self.state = WatchedState(options.schedulers)
        self.state.rehearsal = rehearsal
        self.own_queues = OwnQueues(self.state)
        self._client = client
        self._failures = Failures()
        self._dirty = asyncio.Event()
        self._gangs: dict[GangKey, None] = {}
        self._pods: dict[str, None] = {}
        # Rows of pods on their own by uid, and the uid of each row: a pod can have a successor of the same name.
        self._pod_rows: dict[str, str] = {}
        self._row_owners: dict[str, str] = {}
        self._starts: dict[GangKey | str, PlannedStart] = {}
        self._shares: dict[str, tuple[float, float]] = {}
        self._marks: dict[GangKey, deque[Mark]] = {}
        # State and reason of each gang and of each pod on its own.
        self._reasons: dict[GangKey, tuple[GangState, str]] = {}
        self._refused: dict[str, str] = {}
        self._targets: dict[str, DisruptionTarget] = {}
        self._promises, self._records_read = Promises(), float("-inf")
        dialects = dialect_options(self.policy)
        # This snapshot only receives the usage of accounts.
        self._usage = Snapshot(self.state, Intake(options.schedulers, dialects, Signer(unchecked=True)))
        self._unverified = ""
        self._node_cursor = -1
        # Versions of the state at the begin of the last dry run, and of the last complete one.
        self._rehearsed_version = self._answered_version = -1
        self._completed, self._awaited = asyncio.Event(), asyncio.Event()
        self.evictions = Evictions(client, self.tables["evictions"], self._gang_of, self._failures)
        self.clusters = Clusters(client, self.tables, self.news.tell, self._failures)
        self.jobs = StoppedJobs(client, self.state.schedulers, self._dirty.set, self._failures)
        # Jobs of the gangs with rows, as (namespace, KIND/NAME), and the published rows of jobs without gang.
        self._job_of: dict[GangKey, tuple[str, str]] = {}
        self._job_rows: dict[str, GangRow] = {}
        self._observer: Observer | None = None

    async def run(self) -> None:
        """Watch the cluster and execute dry runs until cancelled. Raises RehearsalEnded, ApiError."""
        signer, self._unverified = await reading_signer(self._client, self.options.lease_namespace)
        dialects = dialect_options(self.policy)
        intake = Intake(self.options.schedulers, dialects, signer, dialects=installed_dialects())
        observer = self._observer = Observer(
            self._client,
            intake,
            self.state,
            changed=self._dirty.set,
            pod_seen=self._pod_seen,
            pod_gone=self._pod_gone,
            gang_touched=self._gang_touched,
            failures=self._failures,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(observer.run())
            for reflector in (*self.evictions.reflectors, *self.clusters.reflectors):
                tasks.create_task(reflector.run())
            tasks.create_task(self.jobs.run())
            tasks.create_task(self._drain(intake))
            tasks.create_task(self._guard_rehearsal())
            await observer.synced()
            await observer.publish_gangs()
            self._gangs.update(dict.fromkeys(self.state.gangs))
            self._pods.update(dict.fromkeys(self.state.pods))
            await self._flush()
            self.ready.set()
            log.info(
                "synced: %d nodes, %d pods, %d gangs",
                len(self.state.nodes),
                len(self.state.pods),
                len(self.state.gangs),
            )
            tasks.create_task(self._rehearse_for_ever())
            tasks.create_task(self._tell_of_outages(observer))
            while True:
                await self._dirty.wait()
                self._dirty.clear()
                await asyncio.sleep(_GATHER)
                await self._flush()

    # queries

    @property
    def forbidden(self) -> str:
        """Required resources that the process lacks the right to list; "" for none."""
        observer = self._observer
        needed = (observer.pods, observer.nodes) if observer is not None else ()
        return " and ".join(
            reflector.resource.plural for reflector in needed if reflector.state is ReflectorState.FORBIDDEN
        )

    @property
    def promises(self) -> Promises:
        """Promised starts in the scheduler's record, as read last."""
        return self._promises

    @property
    def behind(self) -> bool:
        """Whether the last complete dry run lacks changes of the cluster."""
        return self.state.version != self._answered_version or bool(self.rehearsal.untold)

    def marks(self, key: GangKey) -> list[Mark]:
        return list(self._marks.get(key, ()))

    def row(self, row: str) -> GangRow | None:
        encoded = self.tables["gangs"].get(row)
        return msgspec.json.decode(encoded, type=GangRow) if encoded is not None else None

    async def until_next_run(self, seconds: float) -> None:
        """Wait until the next dry run is complete, at most `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._completed.wait()

    async def until_current(self) -> None:
        """Wait for a dry run over the present state if dry runs are short. A larger cluster changes all the
        time."""
        deadline = time.monotonic() + _SHORT_WAIT
        while (left := deadline - time.monotonic()) > 0:
            if self.last is not None and (self.last.seconds > _SHORT_RUN or not self.behind):
                return
            self._awaited.set()
            await self.until_next_run(left)

    # events

    def _pod_seen(self, pod: PodObject) -> None:
        uid = pod.metadata.uid
        self.lifelines.seen(pod)
        self._pods[uid] = None
        self._refused.pop(uid, None)
        self._targets.pop(uid, None)
        for condition in pod.status.conditions:
            if (condition.type, condition.status, condition.reason) == ("PodScheduled", "False", "SchedulerError"):
                self._refused[uid] = condition.message
        if (target := disruption_target_of(pod)) is not None:
            self._targets[uid] = target

    def _pod_gone(self, uid: str) -> None:
        self._refused.pop(uid, None)
        self._targets.pop(uid, None)
        self.lifelines.left(uid, time.time())
        self._pods[uid] = None

    def _gang_touched(self, key: GangKey) -> None:
        self._gangs[key] = None
        self._dirty.set()

    def _gang_of(self, uid: str) -> str:
        record = self.state.pods.get(uid)
        return record.gang.key.path if record is not None and record.gang is not None else ""

    async def _drain(self, intake: Intake) -> None:
        """Drop the warnings about declarations: the scheduler reports them, and here they would accumulate."""
        while True:
            await asyncio.sleep(10)
            intake.drain_warnings()

    # rows

    async def _flush(self) -> None:
        """Update the rows of changed objects. Yield to other tasks between batches."""
        gangs, self._gangs = self._gangs, {}
        pods, self._pods = self._pods, {}
        for count, uid in enumerate(pods):
            self._put_pod(uid)
            if count % 500 == 499:
                await asyncio.sleep(0)
        for count, key in enumerate(gangs):
            self._put_gang(key)
            if count % 500 == 499:
                await asyncio.sleep(0)
        self._put_jobs()
        await self._put_nodes()
        self._put_summary()
        self.news.tell()

    def _put_gang(self, key: GangKey) -> None:
        record, table = self.state.gangs.get(key), self.tables["gangs"]
        if record is None:
            table.drop(key.path)
            self._reasons.pop(key, None)
            self._job_of.pop(key, None)
            return
        verdict = self.last.gangs.get(key) if self.last is not None else None
        row = gang_row(record, verdict, self._starts.get(key), self._targets)
        table.put(row.id, row, key.namespace)
        self._job_of[key] = (key.namespace, row.job)
        self._mark(key, row)

    def _put_jobs(self) -> None:
        """Update the rows of suspended and failed jobs that have no gang."""
        table, covered = self.tables["gangs"], set(self._job_of.values())
        shown = {row.id: row for row in self.jobs.rows.values() if (row.namespace, row.job) not in covered}
        for gone in self._job_rows.keys() - shown.keys():
            table.drop(gone)
            self._reasons.pop(_pod_key(gone), None)
        for row_id, row in shown.items():
            if self._job_rows.get(row_id) is not row:
                table.put(row_id, row, row.namespace)
                self._reasons[_pod_key(row_id)] = (row.state, row.reason)
        self._job_rows = shown

    def _put_pod(self, uid: str) -> None:
        record, table = self.state.pods.get(uid), self.tables["gangs"]
        if record is not None:
            self.lifelines.assign(record.pod)
            if record.gang is not None:
                self._gangs[record.gang.key] = None
        other_scheduler = record is None or record.pod.fixture or record.state is MemberState.OTHER_SCHEDULER
        if (
            record is None
            or record.gang is not None
            or other_scheduler
            or record.pod.scheduler not in self.state.schedulers
        ):
            known = self._pod_rows.pop(uid, "")
            if self._row_owners.get(known) == uid:
                del self._row_owners[known]
                table.drop(known)
                self._reasons.pop(_pod_key(known), None)
            return
        verdict = self.last.pods.get(uid) if self.last is not None else None
        row = pod_row(record, verdict, self._starts.get(record.pod.key), self._targets)
        self._pod_rows[uid], self._row_owners[row.id] = row.id, uid
        table.put(row.id, row, row.namespace)
        self._mark(_pod_key(row.id), row)

    def _mark(self, key: GangKey, row: GangRow) -> None:
        """Add an entry to a gang's timeline if its state or reason has changed."""
        status = (row.state, row.reason)
        if self._reasons.get(key) == status:
            return
        first = key not in self._reasons
        self._reasons[key] = status
        if first and not row.state.waits:
            return
        marks = self._marks.get(key)
        if marks is None:
            if len(self._marks) >= _MOST_MARKED:
                del self._marks[next(iter(self._marks))]
            marks = self._marks[key] = deque(maxlen=_MARKS_OF_GANG)
        what = f"{row.state} {row.reason}".strip()
        marks.append(Mark(when=_exact_moment(time.time()), what=what, message=row.message, objects=row.objects))

    async def _put_nodes(self) -> None:
        nodes, table = self.state.nodes, self.tables["nodes"]
        changed = nodes.changes.since(self._node_cursor, _MOST_CHANGED_ROWS) if self._node_cursor >= 0 else None
        self._node_cursor = nodes.changes.end
        every = changed is None
        rows: Collection[int] = range(nodes.extent) if changed is None else set(changed)
        for count, row in enumerate(rows):
            entry = node_row(nodes, row)
            if entry is not None:
                table.put(entry.id, entry)
            if count % 500 == 499:
                await asyncio.sleep(0)
        if every or len(table) != len(nodes):
            for name in [name for name in table.ids() if nodes.row(name) < 0]:
                table.drop(name)

    def _put_summary(self) -> None:
        state, nodes, last = self.state, self.state.nodes, self.last
        rows = nodes.rows()
        used = dict(zip(state.space.names, nodes.used[:, rows].sum(axis=1).tolist(), strict=False))
        states: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        for state_of_gang, reason in self._reasons.values():
            states[state_of_gang] += 1
            if reason:
                reasons[reason] += 1
        offered = {name: amount for name, amount in state.offered().items() if amount}
        observer = self._observer
        warnings = list(last.queues.warnings) if last is not None else []
        if self.problem:
            warnings.insert(0, self.problem)
        summary = ClusterSummary(
            current=observer is not None and observer.fresh,
            nodes=len(nodes),
            closed_nodes=int(nodes.unschedulable[rows].sum()),
            offered=offered,
            used={name: used.get(name, 0) for name in offered},
            states=dict(states),
            reasons=dict(reasons.most_common(_REASONS_TOLD)),
            rehearsed=format_moment(int(last.now)) if last is not None else "",
            rehearsal_seconds=round(last.seconds, 2) if last is not None else 0.0,
            warnings=warnings[:20],
        )
        self.tables["summary"].put("cluster", SummaryRow(id="cluster", summary=summary))

    async def _tell_of_outages(self, observer: Observer) -> None:
        """Publish the cluster summary when the API server becomes unreachable or reachable: no other event reports
        it."""
        published = observer.fresh
        while True:
            await asyncio.sleep(_REACHABLE_PERIOD)
            if observer.fresh is not published:
                published = observer.fresh
                self._put_summary()
                self.news.tell()

    # rehearsals

    async def _guard_rehearsal(self) -> None:
        """Raise RehearsalEnded when the dry-run process ends, because its copy of the cluster state is lost."""
        code = await self.rehearsal.ended()
        raise RehearsalEnded(f"the rehearsing process ended with code {code}")

    async def _rehearse_for_ever(self) -> None:
        while True:
            if self._shares:
                self.history.add(time.time(), self._shares)
            changed = self.state.version != self._rehearsed_version or bool(self.rehearsal.untold)
            begun = time.monotonic()
            if changed or self.last is None or time.time() - self.last.now >= _MOST_PAUSE:
                await self._rehearse()
            took = time.monotonic() - begun
            await asyncio.sleep(_AWAITED_PAUSE)
            # A reader who waits for the present state shortens the pause.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(_LEAST_PAUSE, _PAUSE_FACTOR * took) - _AWAITED_PAUSE):
                    await self._awaited.wait()
            self._awaited.clear()

    async def _rehearse(self) -> None:
        version = self._rehearsed_version = self.state.version
        await self._read_records()
        now = time.time()
        result = await self.rehearsal.rehearse(
            Rehearse(
                now,
                dict(self._refused),
                dict(self._targets),
                list(self._usage.usages),
                self._promises,
                [*self._usage.missing, *([self._unverified] if self._unverified else [])],
            )
        )
        if isinstance(result, Failed):
            log.warning("no rehearsal: %s", result.why)
            self.problem = f"verdicts are outdated: {result.why}"
            self._put_summary()
            self.news.tell()
            return
        self.problem = ""
        await self._take_in(result)
        self._answered_version = version
        self._completed.set()
        self._completed = asyncio.Event()

    async def _take_in(self, rehearsed: Rehearsed) -> None:
        former, starts = self.last, self._starts
        self.last, self.generation = rehearsed, self.generation + 1
        self._starts = {start.gang if start.gang is not None else start.pod: start for start in rehearsed.starts}
        old_gangs: dict[GangKey, RehearsedVerdict] = former.gangs if former is not None else {}
        old_pods = former.pods if former is not None else {}
        for key in {*old_gangs, *rehearsed.gangs, *starts, *self._starts}:
            if isinstance(key, GangKey) and (
                old_gangs.get(key) != rehearsed.gangs.get(key) or starts.get(key) != self._starts.get(key)
            ):
                self._gangs[key] = None
        for uid in {**old_pods, **rehearsed.pods}:
            record = self.state.pods.get(uid)
            name = record.pod.key if record is not None else ""
            if old_pods.get(uid) != rehearsed.pods.get(uid) or starts.get(name) != self._starts.get(name):
                self._pods[uid] = None
        place, rows, shares = 0, [], {}
        for queue in rehearsed.queues.queues:
            rows.append(
                (f"queue/{queue.name}", QueueRow(id=f"queue/{queue.name}", place=place, queue=queue), queue.name)
            )
            shares[queue.name] = (queue.share, queue.own_share)
            place += 1
        for quota in rehearsed.queues.quotas:
            row = f"quota/{quota.family}/{quota.tree}/{quota.name}"
            rows.append((row, QueueRow(id=row, place=place, quota=quota), row))
            place += 1
        self.tables["queues"].replace(rows)
        self._shares = shares
        self.history.add(rehearsed.now, shares)
        self.tables["reservations"].replace(reservation_rows(self.state, rehearsed.starts, rehearsed.now))
        await self._flush()

    async def _read_records(self) -> None:
        """Read the scheduler's records: promised starts and the usage of queues and quotas."""
        if time.monotonic() - self._records_read < _RECORD_PERIOD:
            return
        self._records_read = time.monotonic()
        self._usage.usages, self._usage.missing = [], []
        try:
            await read_usage(
                self._client, self._usage, self.policy, self.options.lease_namespace, self.options.schedulers
            )
            self._promises = await read_promises(
                self._client, self.options.lease_namespace, self.options.schedulers
            )
            backoffs = await read_backoffs(self._client, self.options.lease_namespace, self.options.schedulers)
            loads = await measure(self._client) if self._minds_load() else None
        except (ApiError, ConnectionLost) as error:
            log.warning("cannot read the scheduler's records: %s", error)
            return
        self._usage.missing += [*self._promises.warnings(time.time()), *backoffs.faults]
        if self._observer is not None:
            self._observer.apply_event(NodeBackoffsRestored(backoffs.entries))
            self.state.gangs.node_requests.replace(backoffs.requests)
        if loads is not None and self._observer is not None:
            self._observer.apply_event(loads)

    def _minds_load(self) -> bool:
        return any(entry.plugin.needs_node_usage for entry in self.policy.plugins)


def _exact_moment(now: float) -> str:
    """Return a time in milliseconds, so that events of the same second keep their order."""
    return f"{format_moment(int(now))[:-1]}.{int(now * 1000) % 1000:03}Z"


def _pod_key(row: str) -> GangKey:
    """Return a key for a single pod or a job among gang keys. No gang name has the form of this key."""
    namespace, _, row_name = row.partition("/")
    return GangKey(namespace, row_name)

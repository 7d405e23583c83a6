"""What-if questions over a copy of a cluster: two forecasts, without and with the change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from phalanx.cluster.state import ClusterState
from phalanx.daemon.policy_file import dialect_options
from phalanx.dialects.intake import Intake
from phalanx.model.events import ClusterEvent, GangUpdated, PodUpdated
from phalanx.model.gang import GangKey
from phalanx.model.text.duration import format_moment
from phalanx.model.text.moments import shown_moment
from phalanx.reports.snapshot import Snapshot
from phalanx.reports.whatif.answer import (
    AFTER_EVICTIONS,
    LATER,
    NEVER,
    NOW,
    AskedStart,
    Blocker,
    EvictedGang,
    InterruptedGang,
    MovedPromise,
    MovedStart,
    NodeRoom,
    Starts,
    WaitSummary,
    WhatIfAnswer,
    with_shown_names,
)
from phalanx.reports.whatif.asked_gang import refuse_running, waiting_gang
from phalanx.reports.whatif.changes import QueueChange, changed_queue, lost_nodes, more_nodes, with_priority
from phalanx.reports.whatif.manifests import PriorityClasses, submission
from phalanx.reports.whatif.replaced import address_of, without_replaced
from phalanx.reports.why import WhyReport
from phalanx.reports.why_answer import WhyAnswer
from phalanx.scheduling.framework.policy import Policy
from phalanx.simulation.capture import Capture, take_in_more
from phalanx.simulation.cluster import SimulatedCluster
from phalanx.simulation.documents import FileObject
from phalanx.simulation.errors import InputError, OptionError
from phalanx.simulation.forecast import Forecast, forecast
from phalanx.simulation.history import JobOutcome
from phalanx.simulation.present import AssumedRunTimes

_DOMAINS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/rack")


class Question(msgspec.Struct, frozen=True):
    """What-if question: objects to create, a waiting gang, and changes of the cluster.

    `objects` would be created, `gang` (namespace/name) is a waiting gang; all other fields are changes. `policy` is
    the current policy, `other_policy` the changed one, `horizon` in seconds.
    """

    cluster: SimulatedCluster
    policy: Policy
    horizon: int
    objects: tuple[FileObject, ...] = ()
    namespace: str = "default"
    gang: str = ""
    add_nodes: int = 0
    like: str = ""
    without_nodes: tuple[str, ...] = ()
    queue: QueueChange | None = None
    priority: int | None = None
    other_policy: Policy | None = None
    changes: tuple[str, ...] = ()


class _Supposed(msgspec.Struct):
    """One simulated cluster of a what-if question: its events and its immediate changes."""

    intake: Intake
    events: list[ClusterEvent]
    then: list[ClusterEvent]
    policy: Policy
    capture: Capture


def answer_question(question: Question) -> WhatIfAnswer:
    """Return the answer to a what-if question. Raises InputError, PolicyError."""
    cluster, replaced = without_replaced(question.cluster, question.objects, question.namespace)
    question = msgspec.structs.replace(question, cluster=cluster)
    without = _as_it_is(question)
    changed, asked, notes = _as_it_would_be(question, without)
    capture, horizon = changed.capture, question.horizon
    after = _forecast(changed, AssumedRunTimes.LIMITS, horizon)
    names = _names(after, asked)
    if question.gang and not names:
        raise OptionError("gang", question.gang, ": none of its pods is running or belongs to this scheduler")
    differs = bool(question.objects or question.changes)
    before = _forecast(without, AssumedRunTimes.LIMITS, horizon) if differs else after
    expected = None
    if any(isinstance(event, PodUpdated) and event.pod.run_time.estimate for event in changed.events):
        expected = _forecast(changed, AssumedRunTimes.ESTIMATES, horizon, names)
    reasons = _Reasons(changed, question)
    answer = WhatIfAnswer(
        format_moment(capture.moment),
        horizon,
        [_asked_start(name, after, expected, reasons) for name in names],
        _starts(before, names if question.objects else ()),
        _starts(after, names if question.objects else ()),
        list(question.changes),
        _evicted(after, before),
        _moved(before, after, names),
        _interrupted(after),
        replaced + notes + after.failures,
        list(capture.missing),
        _moved_promises(after),
        capture.promise_origin if capture.promises else None,
    )
    gangs = (event.gang for event in (*without.events, *changed.events) if isinstance(event, GangUpdated))
    return with_shown_names(answer, {gang.key.path: gang.title for gang in gangs})


def answer_starts(question: Question, waiting: Collection[str] = (), most_reasons: int = 8) -> list[AskedStart]:
    """Return the predicted starts of the gangs of `question.objects`, submitted one after another in this order,
    and of waiting gangs (namespace/name), from one forecast. The reasons of the first gangs without a start are
    included.

    Raises InputError, PolicyError.
    """
    changed, (pods, gangs), _ = _as_it_would_be(question, _as_it_is(question))
    changed.events = _in_order(changed.events, question.objects, gangs, changed.capture.moment)
    named = {*waiting, *(key.path for key in gangs)}
    after = _forecast(changed, AssumedRunTimes.LIMITS, question.horizon, _waiting(named, changed, pods))
    reasons = _Reasons(changed, question)
    starts = []
    for name in sorted(after.jobs):
        if name not in named and pods.isdisjoint(after.members[name]):
            continue
        job, start = after.jobs[name], after.start(name)
        answer = AskedStart(name, job.pods, NEVER)
        if start is not None:
            answer.start, answer.wait_seconds = format_moment(start), start - after.moment
            answer.state = NOW if start <= after.moment else LATER
        elif most_reasons > 0:
            most_reasons -= 1
            answer.verdict = reasons.verdict(name, job.why)
        else:
            answer.verdict = WaitSummary("", job.why) if job.why else None
        starts.append(answer)
    return starts


def _waiting(named: Collection[str], world: _Supposed, pods: Collection[str]) -> list[str]:
    """Return the names of the gangs and single pods whose start the forecast predicts."""
    alone = [
        event.pod.key
        for event in world.events
        if isinstance(event, PodUpdated) and event.pod.uid in pods and not event.pod.gang
    ]
    return [*named, *alone]


def _in_order(
    events: list[ClusterEvent], objects: Sequence[FileObject], gangs: Collection[GangKey], moment: int
) -> list[ClusterEvent]:
    """Set the creation times of the new gangs so that they are one second apart, the last at `moment`."""
    order = list(
        dict.fromkeys(
            key
            for entry in objects
            if (
                key := GangKey(str(entry.document["metadata"].get("namespace")), entry.document["metadata"]["name"])
            )
            in gangs
        )
    )
    created = {key: moment - len(order) + rank + 1 for rank, key in enumerate(order)}
    ordered: list[ClusterEvent] = []
    for event in events:
        if isinstance(event, GangUpdated) and event.gang.key in created:
            event = GangUpdated(msgspec.structs.replace(event.gang, created=created[event.gang.key]))
        elif isinstance(event, PodUpdated) and event.pod.gang:
            key = GangKey(event.pod.namespace, event.pod.gang)
            if key in created:
                event = PodUpdated(msgspec.structs.replace(event.pod, created=created[key]))
        ordered.append(event)
    return ordered


def _forecast(
    world: _Supposed, run_times: AssumedRunTimes, horizon: int, awaited: Collection[str] = ()
) -> Forecast:
    return forecast(world.events, world.policy, world.capture, run_times, horizon, world.then, awaited)


def _capture_of(cluster: SimulatedCluster) -> Capture:
    if cluster.capture is None:
        raise InputError(f"{cluster.name}: not a capture; create one with phalanx capture -o FILE")
    return cluster.capture


def _as_it_is(question: Question) -> _Supposed:
    capture = _capture_of(question.cluster)
    intake, events = question.cluster.open(dialect_options(question.policy))
    return _Supposed(intake, events, [], question.policy, capture)


def _as_it_would_be(
    question: Question, without: _Supposed
) -> tuple[_Supposed, tuple[frozenset[str], frozenset[GangKey]], list[str]]:
    """Return the changed cluster, the subjects of the question (pods by uid, gangs), and notes for the user."""
    entries, capture = question.cluster.entries, without.capture
    # Only existing nodes are removed: added nodes stay.
    then = lost_nodes(entries, question.without_nodes)
    more: list[FileObject] = []
    if question.add_nodes or question.like:
        more += more_nodes(entries, question.add_nodes, question.like)
    if question.queue is not None:
        more.append(changed_queue(entries, question.queue))
    pods: frozenset[str] = frozenset()
    notes: list[str] = []
    if question.objects:
        classes = PriorityClasses.among([*entries, *question.objects])
        made = submission(
            list(question.objects), classes, capture.schedulers[0], question.namespace, capture.moment
        )
        _check_new(entries, made.entries)
        pods, notes = frozenset(made.pods), made.notes
        more += made.entries
    policy, intake, events = question.policy, without.intake, without.events
    if question.other_policy is not None:
        policy = question.other_policy
        if policy.dialects != question.policy.dialects:
            intake, events = question.cluster.open(dialect_options(policy))
    events = events + take_in_more(intake, more, entries)
    gangs = {
        GangKey(event.pod.namespace, event.pod.gang)
        for event in events
        if isinstance(event, PodUpdated) and event.pod.uid in pods and event.pod.gang
    }
    if question.gang:
        gangs.add(asked_gang := waiting_gang(question.gang, question.namespace, events, entries))
        if not (question.changes or question.objects):
            refuse_running(question.gang, asked_gang, events)
    asked = (pods, frozenset(gangs))
    if question.priority is not None:
        if not pods and not gangs:
            raise OptionError("priority", "", " needs -f FILE or --gang NAMESPACE/NAME", others=("gang",))
        events = with_priority(events, *asked, question.priority)
    return _Supposed(intake, events, then, policy, capture), asked, notes


def _check_new(existing: Sequence[FileObject], made: Sequence[FileObject]) -> None:
    """Check the objects to create: an object with an existing name replaces it, except a pod, which is
    immutable."""
    taken = {address_of(entry) for entry in existing}
    for entry in made:
        if entry.kind == "Pod" and address_of(entry) in taken:
            raise InputError(f"{entry.place}: the pod exists already; use --gang, or rename it")


def _names(after: Forecast, asked: tuple[frozenset[str], frozenset[GangKey]]) -> list[str]:
    pods, gangs = asked
    named = {key.path for key in gangs}
    return [name for name in sorted(after.jobs) if name in named or not pods.isdisjoint(after.members[name])]


def _asked_start(name: str, after: Forecast, expected: Forecast | None, reasons: _Reasons) -> AskedStart:
    job, start = after.jobs[name], after.start(name)
    asked_start = AskedStart(name, job.pods, NEVER)
    if start is not None:
        asked_start.start, asked_start.wait_seconds = format_moment(start), start - after.moment
        asked_start.state = NOW if start <= after.moment else LATER
        counts = Counter(after.nodes(name))
        asked_start.nodes = [NodeRoom(node, count) for node, count in sorted(counts.items())]
        asked_start.domains = reasons.domains(counts)
        at_once = {move.job for move in after.evicted if move.when == after.moment}
        if asked_start.state == LATER or at_once:
            asked_start.blockers = _blockers(name, start, after)
        if not at_once.isdisjoint(blocker.name for blocker in asked_start.blockers):
            asked_start.state = AFTER_EVICTIONS
    if expected is not None and (likely := expected.start(name)) is not None and likely != start:
        asked_start.expected = format_moment(likely)
    if (promise := after.promised.get(name)) is not None:
        asked_start.promised = format_moment(promise)
    if asked_start.state in (LATER, NEVER, AFTER_EVICTIONS):
        asked_start.verdict = reasons.verdict(name, job.why)
    return asked_start


def _blockers(name: str, start: int, after: Forecast) -> list[Blocker]:
    """Return the gangs and pods that end on the nodes before the predicted start; without such pods, those that end
    at the start and free quota."""
    nodes = set(after.nodes(name))
    ended = [move for move in after.ended if move.when <= start and move.job != name]
    on_nodes = [move for move in ended if move.node in nodes]
    ends_by_job: dict[str, list[int]] = {}
    for move in on_nodes or [move for move in ended if move.when == start]:
        ends_by_job.setdefault(move.job, []).append(move.when)
    return [
        Blocker(job, len(ends), format_moment(max(ends)))
        for job, ends in sorted(ends_by_job.items(), key=lambda item: (-max(item[1]), item[0]))
    ]


def _starts(forecast: Forecast, besides: Collection[str]) -> Starts:
    """Return the numbers of starts without the gangs and pods in `besides`, which only the question adds."""
    waiting = [job for name, job in forecast.jobs.items() if name not in forecast.running and name not in besides]
    now = sum(job.start is not None and job.start <= forecast.moment for job in waiting)
    later = sum(job.start is not None and job.start > forecast.moment for job in waiting)
    return Starts(now, later, len(waiting) - now - later)


def _evicted(after: Forecast, before: Forecast) -> list[EvictedGang]:
    """Return the gangs that are evicted only in the forecast with the change."""
    anyway = {(move.job, move.pod) for move in before.evicted} if before is not after else set()
    groups: dict[str, list[int]] = {}
    for number, move in enumerate(after.evicted):
        if (move.job, move.pod) not in anyway:
            groups.setdefault(move.job, []).append(number)
    evicted = []
    for job, numbers in groups.items():
        moves = [after.evicted[number] for number in numbers]
        first = min(move.when for move in moves)
        again = next((move.when for move in after.bound if move.job == job and move.when > first), None)
        hours = sum(move.ran for move in moves) / 3600
        evicted.append(
            EvictedGang(
                job,
                len(moves),
                max(move.priority for move in moves),
                format_moment(first),
                round(hours, 2),
                format_moment(again) if again is not None else "",
                after.jobs[job].outcome is JobOutcome.KILLED,
            )
        )
    return sorted(evicted, key=lambda gang: (gang.when, gang.name))


def _interrupted(after: Forecast) -> list[InterruptedGang]:
    interrupted = []
    for name, job in after.jobs.items():
        if job.lost:
            again = max((move.when for move in after.bound if move.job == name), default=None)
            interrupted.append(InterruptedGang(name, job.lost, shown_moment(again)))
    return interrupted


def _moved(before: Forecast, after: Forecast, asked: Collection[str]) -> list[MovedStart]:
    """Return the gangs and pods that wait in both forecasts with different starts, longest delay first."""
    moved = []
    for name, job in after.jobs.items():
        if name in asked or name in after.running or name not in before.jobs:
            continue
        former, now = before.start(name), job.start
        if former != now:
            delay = now - former if now is not None and former is not None else None
            moved.append(MovedStart(name, shown_moment(former), shown_moment(now), delay))
    longest = float("inf")
    return sorted(
        moved,
        key=lambda start: (
            -start.delay_seconds if start.delay_seconds is not None else longest if start.changed else -longest,
            start.name,
        ),
    )


def _moved_promises(after: Forecast) -> list[MovedPromise]:
    moved = [
        MovedPromise(name, shown_moment(move.promise.told), shown_moment(move.to), move.cause)
        for name, move in after.moves.items()
    ]
    return sorted(moved, key=lambda promise: (promise.promised, promise.name))


class _Reasons:
    """Reasons of waiting at the first moment of the forecast, from a dry run over the same events at the first
    query."""

    def __init__(self, world: _Supposed, question: Question) -> None:
        self._world = world
        self._report: WhyReport | None = None
        self._keys: dict[str, GangKey | str] = {}
        self._labels = {
            str(entry.document["metadata"]["name"]): entry.document["metadata"].get("labels") or {}
            for entry in question.cluster.entries
            if entry.kind == "Node"
        }

    def domains(self, nodes: Counter[str]) -> dict[str, dict[str, int]]:
        domain_counts: dict[str, dict[str, int]] = {}
        for key in _DOMAINS:
            counts = Counter[str]()
            for node, count in nodes.items():
                if value := self._labels.get(node, {}).get(key):
                    counts[str(value)] += count
            if counts:
                domain_counts[key] = dict(sorted(counts.items()))
        return domain_counts

    def verdict(self, name: str, text: str) -> WaitSummary | None:
        answer = self._why(name) if not self._world.then else None
        if answer is None or not answer.message:
            return WaitSummary("", text) if text else None
        nodes = {part.reason: part.count for part in answer.nodes}
        return WaitSummary(answer.reason, answer.message, nodes, answer.change, answer.brief)

    def _why(self, name: str) -> WhyAnswer | None:
        if self._report is None:
            world = self._world
            state = ClusterState(world.capture.schedulers)
            snapshot = Snapshot(state, world.intake, usages=list(world.capture.usages))
            snapshot.apply_events(world.events)
            self._keys = {key.path: key for key in state.gangs}
            self._report = WhyReport(snapshot, world.policy, world.capture.moment, world.capture.promised)
        namespace, _, local_name = name.partition("/")
        key = self._keys.get(name)
        return self._report.gang(key) if isinstance(key, GangKey) else self._report.pod(namespace, local_name)

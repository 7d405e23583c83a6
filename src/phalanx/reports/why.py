"""Why something waits: a dry run of the scheduler over the live cluster, asked about one pod or group."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice

import msgspec

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.kube.paths import Resource
from phalanx.model.gang import Gang, GangCounts, GangKey
from phalanx.model.pod import ACTIVE, MemberState, Pod, bound_at
from phalanx.model.text.duration import format_moment
from phalanx.model.verdict import NodeCount, Verdict
from phalanx.reports.evicted_members import (
    EvictedMembers,
    advice_after_eviction,
    evicted_members_of,
    eviction_message,
)
from phalanx.reports.eviction_preview import DUE, EvictionPreview, preview_evictions
from phalanx.reports.group_states import can_start, count_groups, has_started, state_of_groups
from phalanx.reports.other_scheduler import of_other_scheduler
from phalanx.reports.promised_starts import PromisedStart, StartTimes, StoredPlan
from phalanx.reports.recent_evictions import log_recent_evictions
from phalanx.reports.run_times import RunTimeEntry, run_time_of
from phalanx.reports.snapshot import Snapshot
from phalanx.scheduling.diagnosis.verdicts import NOT_ENOUGH_MEMBERS, POD_GROUP_NOT_FOUND, to_count
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.gang_placement.composite_verdicts import WAITING_FOR_COMPOSITE
from phalanx.scheduling.gangs.quorum import ONCE, quorum_requirement
from phalanx.scheduling.preemption.rules.self_protection import protected_pods_of
from phalanx.scheduling.scheduler import never
from phalanx.scheduling.session.eviction_log import rates
from phalanx.scheduling.start_reservations.plugin import load_promises
from phalanx.scheduling.whatif.dry_run import DryRun
from phalanx.scheduling.whatif.start_forecasts import forecast_starts
from phalanx.status.warnings.ignored_quota_labels import CODE as QUOTA_LABEL_IGNORED
from phalanx.status.warnings.ignored_quota_labels import ignored_quota
from phalanx.views.gang_names import gangs_named, shown
from phalanx.views.gang_state import GangState, PlacementForecast, gang_state
from phalanx.views.record_facts import member_facts, observed_states

_NODES_NAMED = 5


class WhyAnswer(msgspec.Struct, omit_defaults=True):
    """What is known about one pod or gang.

    `state` is what is observed (docs/gang-states.md), of a pod that of a gang of one; `forecast` is what the dry
    run would do with it now. `reason` is the code of the dominant reason while it waits, `message` the sentence,
    `nodes` how many nodes are out for what, `missing` how many members have no room or do not exist, `change` the
    smallest change that would help. `gang` tells the gang of a pod from all others, `gang_name` is its shown name;
    both have the namespace in front. `nodes` and `change` are empty where nothing is in the way. `evictions` is
    there where it waits for room, `loss` where a gang lost members to evictions and lacks them. `domain` is where a
    gang with a topology is, or would be placed now. `composite` is the group of groups that a gang is a part of,
    `groups` are those of one. `size` is that of a gang that has more members than its minimum, or expects some,
    `start` tells when it starts while it waits for room, `run_time` when it ends.
    """

    kind: str
    name: str
    state: GangState
    message: str
    reason: str = ""
    gang: str = ""
    minimum: int = 0
    members: GangCounts | None = None
    placeable: int = 0
    missing: int = 0
    nodes: list[NodeCount] = []
    change: str = ""
    warnings: list[str] = []
    evictions: EvictionPreview | None = None
    loss: EvictedMembers | None = None
    uid: str = ""
    domain: str = ""
    composite: str = ""
    groups: list[GroupLine] = []
    size: GangSize | None = None
    start: PromisedStart | None = None
    run_time: RunTimeEntry | None = None
    forecast: PlacementForecast = PlacementForecast.NONE
    gang_name: str = ""

    @property
    def waits(self) -> bool:
        """Whether it waits for nodes for its minimum, and would not get them now."""
        return self.state.waits and self.forecast is not PlacementForecast.STARTS_NOW


class GangSize(msgspec.Struct, omit_defaults=True):
    """How large a gang is beside how large it may be, in members: those with nodes (`placed`), the `minimum`, and
    all that its owner has made (`desired`), or means to make (`maximum`, where that is said).

    `changed` is when the last of them got its node. Room is held for so many that are `expected`, until
    `expected_until`.
    """

    minimum: int
    placed: int
    desired: int
    maximum: int = 0
    changed: str = ""
    expected: int = 0
    expected_until: str = ""


class GroupLine(msgspec.Struct):
    """What is known about one gang of a group of groups, as in its own answer."""

    name: str
    state: GangState
    message: str


class WhyReport:
    """One dry run; the snapshot is used up by it. `bound_to` are the nodes of those that it placed, by uid."""

    def __init__(self, snapshot: Snapshot, policy: Policy, now: float, stored: StoredPlan | None = None) -> None:
        self._now, self._stored = now, stored or StoredPlan()
        self._state = snapshot.state
        self._refused = snapshot.refused
        self._disruption_targets = snapshot.disruption_targets
        # What gangs look like before the dry run places anything.
        self._counts = {key: record.counts() for key, record in self._state.gangs.items()}
        self._states = observed_states(self._state, self._disruption_targets)
        self._expected = {
            key: [each.pod for each in record.placeholders.values() if each.nominated_node]
            for key, record in self._state.gangs.items()
            if record.placeholders
        }
        self._needs = {
            key: quorum_requirement(record, record.spec)
            for key, record in self._state.gangs.items()
            if record.spec is not None
        }
        scheduler = self._dry_run = DryRun(self._state, policy)
        scheduler.history.restore(snapshot.usages, now)
        load_promises(scheduler.features, self._stored.promises)
        log_recent_evictions(self._state, scheduler.cycle_history.evictions, now)
        # What pods are before the dry run tells any of them to leave.
        self._before = {uid: record.state for uid, record in self._state.pods.items()}
        plan = scheduler.cycle(now)
        session = scheduler.new_session(now)
        self._domains, self._own_words = session.topology_domains, protected_pods_of(session)
        self._gangs = {entry.gang: entry.verdict for entry in plan.gangs}
        self._pods = {entry.uid: entry.verdict for entry in plan.pods}
        self.bound_to = {bind.uid: bind.node for bind in plan.binds}
        self._told = {evict.uid: evict for evict in plan.evictions}

    def pod(self, namespace: str, name: str) -> WhyAnswer | None:
        """None where there is no such pod."""
        record = next(
            (entry for entry in self._state.pods.values() if entry.pod.key == f"{namespace}/{name}"), None
        )
        if record is None:
            return None
        pod = record.pod
        answer = WhyAnswer(
            "Pod",
            pod.key,
            self._state_of_pods([pod]),
            "",
            gang=f"{pod.namespace}/{pod.gang}" if pod.gang else "",
            uid=pod.uid,
        )
        if record.gang is not None:
            self._describe(answer, record.gang)
        answer.warnings += self._quota_labels([record])
        answer.run_time = run_time_of([pod])
        if self._settled(answer, record):
            return answer
        verdict = self._pods.get(pod.uid)
        if verdict is None and record.gang is not None:
            verdict = self._gangs.get(record.gang.key)
        self._add_evictions(self._conclude(answer, verdict, [pod.uid]), pod.uid)
        if record.gang is not None:
            answer.message = _joined(answer.message, self._no_minimum(record.gang))
        return answer

    def gang(self, key: GangKey) -> WhyAnswer | None:
        """None where neither a pod nor an object declares such a gang."""
        record = self._state.gangs.get(key)
        if record is None:
            return None
        if (other_scheduler := self._of_other_scheduler(record)) is not None:
            return other_scheduler
        source = record.spec.source if record.spec is not None else None
        answer = WhyAnswer(
            "Gang", record.title, self._states[key], "", gang=key.path, uid=source.uid if source is not None else ""
        )
        self._describe(answer, record)
        answer.warnings += self._quota_labels(record.members.values())
        answer.run_time = run_time_of([member.pod for member in record.members.values()])
        waiting = [uid for uid, member in record.members.items() if member.state in _MOVABLE]
        if self._counts[key].pending:
            verdict = self._gangs.get(key) or self._surplus_verdict(waiting)
            self._add_evicted_members(self._add_evictions(self._conclude(answer, verdict, waiting), key), record)
            answer.message = _joined(answer.message, self._no_minimum(record))
            return self._in_part(answer, key)
        return self._in_part(self._add_evicted_members(self._without_pending(answer, key), record), key)

    def _of_other_scheduler(self, record: GangRecord) -> WhyAnswer | None:
        """About a gang of which every pod that there is asks for another scheduler; None for others."""
        left = [
            member.pod for uid, member in record.members.items() if self._before[uid] is MemberState.OTHER_SCHEDULER
        ]
        if not left or len(left) < len(record.members):
            return None
        answer = WhyAnswer("Gang", record.title, self._states[record.key], "", gang=record.key.path)
        self._describe(answer, record)
        told = of_other_scheduler(left, self._state.schedulers, "the gang")
        answer.reason, answer.message, answer.change = told.code, told.message, told.change
        return answer

    def start(self, who: str | GangKey, should_stop: Callable[[], bool] = never) -> PromisedStart | None:
        """When a pod on its own (its uid), or a gang, starts that waits; None for others."""
        return self.start_times(should_stop).of(who)

    def start_times(self, should_stop: Callable[[], bool] = never) -> StartTimes:
        """Of everybody who waits."""
        return StartTimes(self._stored, forecast_starts(self._dry_run, self._now, should_stop), self._now)

    def gang_verdict(self, key: GangKey) -> Verdict | None:
        """What the dry run alone says of a gang that waits (of its surplus, where it runs); None for others."""
        record = self._state.gangs.get(key)
        if record is None:
            return None
        return self._gangs.get(key) or self._surplus_verdict(uid for uid in record.members if uid in self._pods)

    def pod_verdict(self, uid: str) -> Verdict | None:
        """Likewise of a pod."""
        return self._pods.get(uid)

    def gangs_called(self, namespace: str, name: str, kind: str = "") -> list[GangKey]:
        """As of `gangs_named`; of several that an owner starts together those that wait come first.
        Raises AmbiguousGangError."""
        return self._waiting_first(gangs_named(self._state.gangs, namespace, name, kind))

    def name_of(self, key: GangKey) -> str:
        """Return the shown name of a gang within its namespace."""
        return shown(self._state.gangs[key])

    def gangs_below(self, uids: Collection[str]) -> list[GangKey]:
        """Those of pods and of the objects that declare gangs, by uid, in the same order."""
        found = {
            record.gang.key for uid in uids if (record := self._state.pods.get(uid)) and record.gang is not None
        }
        found |= {key for key, record in self._state.gangs.items() if source_uid(record) in uids}
        return self._waiting_first(found)

    def pods_below(self, owner: str, namespace: str, name: str, uids: Collection[str]) -> WhyAnswer | None:
        """About pods without a gang: about the first of them that waits. None where there is none of them."""
        pods = sorted(record.pod.name for uid in uids if (record := self._state.pods.get(uid)) is not None)
        answers = [found for pod in pods if (found := self.pod(namespace, pod)) is not None]
        waiting = next((each for each in answers if _needs_nodes(each.state)), None)
        if waiting is not None or not answers:
            return waiting
        state = self._state_of_pods([self._state.pods[uid].pod for uid in uids if uid in self._state.pods])
        told = "have ended" if state.over else "exist, and none of them waits"
        return WhyAnswer(owner, f"{namespace}/{name}", state, f"its {len(answers)} pods {told}")

    def _state_of_pods(self, pods: Sequence[Pod]) -> GangState:
        """Return the state of pods that nothing but their owner ties together, as before the dry run."""
        states = [self._before[pod.uid] for pod in pods]
        terminating = [pod for pod, state in zip(pods, states, strict=True) if state is MemberState.TERMINATING]
        evicted = sum(bool(pod.condemned) or pod.uid in self._disruption_targets for pod in terminating)
        return gang_state(member_facts(states, minimum=int(len(pods) == 1), evicted=evicted))

    def _waiting_first(self, keys: Iterable[GangKey]) -> list[GangKey]:
        return sorted(keys, key=lambda key: (not self._counts[key].pending, key))

    def object_path(self, key: GangKey) -> str:
        """Of the object that declares a gang, "" for none."""
        return object_path(self._state.gangs.get(key))

    def member_uids(self, key: GangKey) -> list[str]:
        record = self._state.gangs.get(key)
        return list(record.members) if record is not None else []

    def composite(self, key: GangKey) -> WhyAnswer | None:
        """None where there is no such CompositePodGroup."""
        composites = self._state.gangs.composites
        spec = composites.specs.get(key)
        if spec is None:
            return None
        name = f"{spec.ref.namespace}/{spec.ref.name}"
        below = {gang.key: found for gang in composites.gangs(key) if (found := self.gang(gang.key)) is not None}
        answer = WhyAnswer(spec.ref.kind, name, GangState.PENDING, "", minimum=spec.min_groups, uid=spec.ref.uid)
        answer.groups = [GroupLine(found.name, found.state, found.message) for found in below.values()]
        fault = composites.fault(composites.root_of(key))
        if fault is not None:
            wrong, _, answer.change = fault.message.partition("; ")
            answer.reason, answer.message = fault.code, wrong
            return answer
        least = max(1, spec.min_groups)
        started, able = (count_groups(composites, spec, below, each) for each in (has_started, can_start))
        answer.state = state_of_groups(started, least, below.values())
        answer.placeable, answer.missing = able, max(0, least - able)
        if able >= least:
            if any(found.forecast is PlacementForecast.STARTS_NOW for found in below.values()):
                answer.forecast = PlacementForecast.STARTS_NOW
            answer.message = f"{able} groups have started or would start now, {least} are needed"
            return answer
        answer.message = f"{able} of the {least} groups that it needs have started or could start"
        culprits = [found for found in below.values() if found.state.waits and not found.forecast]
        culprit = next((found for found in culprits if found.reason != WAITING_FOR_COMPOSITE), None)
        if culprit is not None:
            answer.reason, answer.change = culprit.reason, culprit.change
            answer.message += f"; gang {culprit.name}: {culprit.message}"
        else:
            answer.reason, answer.change = NOT_ENOUGH_MEMBERS, f"create {least - able} more group(s)"
        return answer

    def _add_evicted_members(self, answer: WhyAnswer, record: GangRecord) -> WhyAnswer:
        """Whom the gang loses at this moment, if anyone."""
        leaving = (m.pod for uid, m in record.members.items() if self._before[uid] is MemberState.TERMINATING)
        loss = answer.loss = evicted_members_of(leaving, self._disruption_targets)
        if loss is not None and answer.state is GangState.EVICTING:
            answer.reason, answer.change = loss.reason, advice_after_eviction(placed=bool(answer.uid))
            answer.message = f"{loss.told}: {loss.message}"
        return answer

    def _surplus_verdict(self, uids: Iterable[str]) -> Verdict | None:
        """The quorum has what it needs: what the members above it wait for."""
        return next((verdict for uid in uids if (verdict := self._pods.get(uid)) is not None), None)

    def _in_part(self, answer: WhyAnswer, key: GangKey) -> WhyAnswer:
        """What runs in part does not just wait."""
        counts = self._counts[key]
        there = counts.bound + counts.running
        evicting = answer.state is GangState.EVICTING
        if answer.reason and not answer.forecast and there and not evicting:
            one = there == 1
            here = f"{there} member{' has' if one else 's have'} a node"
            rest = f"{counts.pending} wait{'s' if counts.pending == 1 else ''}: " if counts.pending else ""
            if has_started(answer) and counts.pending:
                here = f"it runs with {there} of {counts.present} members and has what it needs"
            answer.message = f"{here}; {rest}{answer.message}"
        return answer

    def _no_minimum(self, record: GangRecord) -> str:
        """For a gang whose members come one by one now, by its match policy."""
        spec, need, counts = record.spec, self._needs.get(record.key), self._counts[record.key]
        if spec is None or need is None or spec.match_policy not in ONCE or spec.min_member <= 1:
            return ""
        if not (need.satisfied and counts.active):
            return ""
        return (
            f"the minimum of {spec.min_member} was met in this run, so by match policy {spec.match_policy} it is "
            f"not asked for while a member is left ({counts.active} have a node)"
        )

    def _without_pending(self, answer: WhyAnswer, key: GangKey) -> WhyAnswer:
        """A gang of which nobody waits: it has its quorum, has finished, or lacks members that do not exist."""
        counts, need = self._counts[key], self._needs.get(key)
        verdict = self._gangs.get(key)
        if verdict is not None and (need is None or not need.satisfied):
            return self._conclude(answer, verdict, [])
        if answer.state.over or (counts.succeeded and not counts.active):
            failed = f", {counts.failed} have failed" if counts.failed else ""
            answer.message = f"{counts.succeeded} members have succeeded{failed}"
        elif counts.active + counts.succeeded >= answer.minimum or (counts.active and need and need.satisfied):
            answer.message = (
                f"the quorum holds: {counts.active} members have a node, {answer.minimum} are the minimum"
            )
            if counts.active + counts.succeeded < answer.minimum:
                answer.message = (
                    f"the quorum was met once, and nothing is asked since: {counts.active} members have a node"
                )
        else:
            there = counts.present
            answer.reason, answer.missing = NOT_ENOUGH_MEMBERS, answer.minimum - there
            answer.message = (
                f"the gang has {there} of the {answer.minimum} members that it needs, and none is pending"
            )
            if counts.gated:
                answer.message += f": {counts.gated} have scheduling gates"
            lower = f", or lower its minimum to {there}" if there else ""
            answer.change = f"{to_count(self._state.gangs[key], answer.missing)}{lower}"
        return answer

    def _describe(self, answer: WhyAnswer, record: GangRecord) -> None:
        answer.members, answer.gang_name = self._counts[record.key], record.title
        above = self._state.gangs.composites.above(record)
        answer.composite = str(above[0].key) if above else ""
        if record.spec is not None:
            answer.size = self._size(record, record.spec)
            if record.spec.topology is not None:
                rows = [each.row for each in record.members.values() if each.state in ACTIVE and each.row >= 0]
                answer.domain = self._domains.home(record.spec.topology, rows)
            answer.minimum = record.spec.min_member
            if record.spec.problem is not None and record.spec.problem.code == POD_GROUP_NOT_FOUND:
                answer.minimum, answer.size = 0, None  # nobody has stated it
            answer.warnings = [f"{warning.code}: {warning.message}" for warning in record.spec.warnings]

    def _quota_labels(self, records: Iterable[PodRecord]) -> list[str]:
        """What is told of the first of these pods whose label names another quota than it is charged to."""
        ignored = (ignored_quota(self._state, record) for record in records)
        return [f"{QUOTA_LABEL_IGNORED}: {each}" for each in islice(filter(None, ignored), 1)]

    def _size(self, record: GangRecord, spec: Gang) -> GangSize | None:
        counts, expected = self._counts[record.key], self._expected.get(record.key, ())
        if counts.present <= spec.min_member and not expected:
            return None
        last = max((bound_at(each.pod) for each in record.members.values() if each.pod.node), default=0)
        ends = max((each.expires for each in expected), default=0)
        return GangSize(
            spec.min_member,
            counts.active,
            counts.present,
            spec.total,
            format_moment(last) if last else "",
            len(expected),
            format_moment(ends) if ends else "",
        )

    def _settled(self, answer: WhyAnswer, record: PodRecord) -> bool:
        """Whether the pod's own state says it all."""
        pod = record.pod
        where = f" on node {pod.node}" if pod.node else ""
        match self._before[pod.uid]:
            case MemberState.RUNNING:
                answer.message = f"the pod runs{where}"
                if pod.uid in self._told:
                    when = "as soon as eviction rates allow it" if next(rates(record), None) else "now"
                    answer.message += f"; it would be told to leave {when}: {self._told[pod.uid].sentence}"
                else:
                    answer.message += self._own_words.verdict(record)
            case MemberState.BOUND:
                answer.message = f"the pod is bound to node {pod.node} and has not started yet"
            case MemberState.TERMINATING:
                answer.message = f"the pod is being deleted{where}"
                self._add_disruption_target(answer, pod)
            case MemberState.SUCCEEDED | MemberState.FAILED:
                answer.message = f"the pod has finished ({pod.phase.value})"
            case MemberState.GATED:
                answer.reason = "SchedulingGated"
                answer.message = "the pod has scheduling gates"
                answer.change = "remove spec.schedulingGates (whoever set them will)"
            case MemberState.OTHER_SCHEDULER:
                told = of_other_scheduler([pod], self._state.schedulers)
                answer.reason = told.code
                answer.message, answer.change = told.message, told.change
            case _:
                return False
        return True

    def _add_disruption_target(self, answer: WhyAnswer, pod: Pod) -> None:
        target = self._disruption_targets.get(pod.uid)
        if target is not None:
            answer.reason = target.reason
            answer.message = f"the pod was told to leave node {pod.node}: {eviction_message(pod, target)}"
        if pod.leaves:
            answer.message += f"; its grace ends at {format_moment(pod.leaves)}"

    def _add_evictions(self, answer: WhyAnswer, who: str | GangKey) -> WhyAnswer:
        """What evictions have to do with an answer about something that waits."""
        unit = self._dry_run.unit(who)
        if unit is None or answer.forecast or not answer.reason:
            return answer
        found = answer.evictions = preview_evictions(
            self._dry_run, unit, {uid: evict.message for uid, evict in self._told.items()}
        )
        if found is None:
            return answer
        if found.state == DUE:
            nodes = ", ".join(room.node for room in found.rooms[:_NODES_NAMED])
            answer.forecast, answer.reason, answer.missing = PlacementForecast.STARTS_AFTER_EVICTIONS, "", 0
            answer.message = _joined(found.message, f"once they have left it starts on {nodes}")
            answer.change = (
                f"wait: {'; '.join(found.paced)}, and only the running scheduler knows what is gone already"
                if found.paced
                else "if this stays so, check that the scheduler runs (kubectl logs of phalanx scheduler)"
            )
        ways = [answer.change, *found.changes] if answer.change else found.changes
        answer.change = ", or ".join(ways)
        return answer

    def _conclude(self, answer: WhyAnswer, verdict: Verdict | None, uids: Iterable[str]) -> WhyAnswer:
        if verdict is not None:
            answer.reason, answer.message, answer.change = verdict.code, verdict.message, verdict.change
            answer.placeable = verdict.placeable
            there = verdict.members if verdict.code == NOT_ENOUGH_MEMBERS else verdict.placeable
            answer.missing = max(0, verdict.needed - there)
            answer.nodes = list(verdict.nodes)
            return answer
        placed = [uid for uid in uids if uid in self.bound_to]
        targets = sorted({self.bound_to[uid] for uid in placed})
        refusal = next((self._refused[uid] for uid in placed if uid in self._refused), "")
        if refusal:
            answer.reason, answer.message = (
                "SchedulerError",
                f"there is room on {', '.join(targets)}, but {refusal}",
            )
            answer.change = "remove the cause that the API server names; the binding is tried again meanwhile"
        elif targets:
            answer.forecast = PlacementForecast.STARTS_NOW
            answer.message = f"nothing is in the way: it would be placed now on {', '.join(targets)}"
            answer.change = "if this stays so, check that the scheduler runs (kubectl logs of phalanx scheduler)"
        else:
            answer.message = "nothing waits"
        return answer


def object_path(record: GangRecord | None) -> str:
    """Of the object that declares a gang, "" for none."""
    ref = record.spec.source if record is not None and record.spec is not None else None
    return Resource(ref.group, ref.version, ref.plural).path(ref.namespace, ref.name) if ref is not None else ""


def _needs_nodes(state: GangState) -> bool:
    return state.waits or state is GangState.OTHER_SCHEDULER


def source_uid(record: GangRecord) -> str:
    """Of the object that declares a gang, "" for none."""
    return record.spec.source.uid if record.spec is not None and record.spec.source is not None else ""


# After the dry run, members that it placed count as PLACED.
_MOVABLE = frozenset({MemberState.PENDING, MemberState.ASSUMED})


def _joined(sentence: str, more: str) -> str:
    """A sentence that goes on; verdicts of nodes end with a full stop."""
    return "; ".join(part for part in (sentence.removesuffix("."), more) if part) if more else sentence

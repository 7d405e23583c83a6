"""Answers of `phalanx why`: a dry run of the scheduler over the live cluster, queried per pod or gang."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import islice

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.kube.paths import Resource
from phalanx.model.gang import GangKey
from phalanx.model.pod import ACTIVE, MemberState
from phalanx.model.text.counts import count_of, first_of
from phalanx.model.verdict import NOT_ENOUGH_MEMBERS, Verdict
from phalanx.reports.admission_holders import admission_holders
from phalanx.reports.borrowed_room import borrowed_room, usage_of_queues
from phalanx.reports.composite_answers import composite_answer
from phalanx.reports.eviction_preview import DUE, preview_evictions
from phalanx.reports.gang_sentences import (
    add_troubles,
    describe_without_pending,
    gang_size,
    lifted_minimum,
    prefix_placed_members,
)
from phalanx.reports.observed_pods import ObservedPods
from phalanx.reports.promised_starts import StartTimes
from phalanx.reports.recent_evictions import log_recent_evictions
from phalanx.reports.run_times import run_time_of
from phalanx.reports.snapshot import Snapshot
from phalanx.reports.why_answer import WhyAnswer
from phalanx.scheduling.collecting.plugin import load_collections
from phalanx.scheduling.diagnosis.verdicts import POD_GROUP_NOT_FOUND
from phalanx.scheduling.features.borrowed_room import load_reclaims
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.gangs.quorum import quorum_requirement
from phalanx.scheduling.preemption.rules.self_protection import protected_pods_of
from phalanx.scheduling.refusals.refusal import AWAITING_ADMISSION
from phalanx.scheduling.scheduler import never
from phalanx.scheduling.session.eviction_log import rates
from phalanx.scheduling.start_reservations.plugin import rehearse_promises
from phalanx.scheduling.start_reservations.rehearsal import promise_moves
from phalanx.scheduling.whatif.dry_run import DryRun
from phalanx.scheduling.whatif.start_forecasts import forecast_starts
from phalanx.status.warnings.ignored_quota_labels import CODE as QUOTA_LABEL_IGNORED
from phalanx.status.warnings.ignored_quota_labels import ignored_quota
from phalanx.views.gang_names import gangs_named, shown
from phalanx.views.gang_state import GangState, PlacementForecast
from phalanx.views.promises import PromisedStart, Promises
from phalanx.views.record_facts import observed_states

_NODES_NAMED = 5


class WhyReport:
    """Answers of `phalanx why` from one dry run, which consumes the snapshot. `bound_to` maps uids of placed pods
    to nodes."""

    def __init__(self, snapshot: Snapshot, policy: Policy, now: float, promises: Promises | None = None) -> None:
        self._now, self._promises = now, promises or Promises()
        self._state = snapshot.state
        self._refused = snapshot.refused
        self._troubles = snapshot.troubles
        self._disruption_targets = snapshot.disruption_targets
        # Counts of gangs before the dry run places pods.
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
        rehearse_promises(scheduler.features, self._promises.promises)
        load_reclaims(scheduler.features, self._promises.reclaimed)
        load_collections(scheduler.features, self._promises.collections)
        log_recent_evictions(self._state, scheduler.cycle_history.evictions, now)
        # States before the dry run evicts or places pods.
        self._before = {uid: record.state for uid, record in self._state.pods.items()}
        self._observed = ObservedPods(self._before, self._disruption_targets, self._state.schedulers)
        usage = usage_of_queues(scheduler.new_session(now))
        plan = scheduler.cycle(now)
        session = scheduler.new_session(now)
        self._borrowed_room = partial(borrowed_room, session, usage)
        self._domains, self._own_words = session.topology_domains, protected_pods_of(session)
        self._gangs = {entry.gang: entry.verdict for entry in plan.gangs}
        self._pods = {entry.uid: entry.verdict for entry in plan.pods}
        self.bound_to = {bind.uid: bind.node for bind in plan.binds}
        self._told = {evict.uid: evict for evict in plan.evictions}

    def pod(self, namespace: str, name: str) -> WhyAnswer | None:
        """Return the answer about a pod; None if there is no such pod."""
        record = next(
            (entry for entry in self._state.pods.values() if entry.pod.key == f"{namespace}/{name}"), None
        )
        if record is None:
            return None
        pod = record.pod
        answer = WhyAnswer(
            "Pod",
            pod.key,
            self._observed.state_of([pod]),
            "",
            gang=f"{pod.namespace}/{pod.gang}" if pod.gang else "",
            uid=pod.uid,
        )
        if record.gang is not None:
            self._describe(answer, record.gang)
        answer.warnings += self._quota_labels([record])
        answer.run_time = run_time_of([pod])
        if self._observed.describe_pod(answer, pod):
            if self._before[pod.uid] is MemberState.RUNNING:
                answer.message += self._planned_eviction(record)
                answer.append(self._borrowed_room([record]))
            if self._before[pod.uid] in ACTIVE:
                add_troubles(answer, [pod], self._troubles)
            return answer
        verdict = self._pods.get(pod.uid)
        if verdict is None and record.gang is not None:
            verdict = self._gangs.get(record.gang.key)
        self._add_evictions(self._conclude(answer, verdict, [pod.uid]), pod.uid)
        if record.gang is not None:
            if answer.reason == AWAITING_ADMISSION:
                answer.append(admission_holders(self._state.gangs, record.gang))
            answer.append(self._lifted_minimum(record.gang))
        return answer

    def gang(self, key: GangKey) -> WhyAnswer | None:
        """Return the answer about a gang; None if neither a pod nor an object declares this gang."""
        record = self._state.gangs.get(key)
        if record is None:
            return None
        pods = [member.pod for member in record.members.values()]
        answer = WhyAnswer("Gang", record.title, self._states[key], "", gang=key.path)
        self._describe(answer, record)
        if self._observed.describe_other_scheduler(answer, pods):
            return answer
        answer.uid = source_uid(record)
        answer.warnings += self._quota_labels(record.members.values())
        answer.run_time = run_time_of(pods)
        waiting = [uid for uid, member in record.members.items() if member.state in _MOVABLE]
        if self._counts[key].pending:
            verdict = self._gangs.get(key) or self._surplus_verdict(waiting)
            self._add_evictions(self._conclude(answer, verdict, waiting), key)
            self._observed.add_evicted_members(answer, pods)
            answer.append(self._lifted_minimum(record))
        else:
            self._describe_without_pending(answer, record)
            self._observed.add_evicted_members(answer, pods)
        if answer.reason == AWAITING_ADMISSION:
            answer.append(admission_holders(self._state.gangs, record))
        prefix_placed_members(answer, self._counts[key])
        if self._counts[key].bound + self._counts[key].running and not answer.state.over:
            members = record.members.values()
            answer.append(self._borrowed_room(each for each in members if self._before[each.pod.uid] in ACTIVE))
        add_troubles(answer, (pod for pod in pods if self._before[pod.uid] in ACTIVE), self._troubles)
        return answer

    def composite(self, key: GangKey) -> WhyAnswer | None:
        """Return the answer about a composite; None if there is no such CompositePodGroup."""
        return composite_answer(self._state.gangs.composites, key, self.gang)

    def start(self, who: str | GangKey, should_stop: Callable[[], bool] = never) -> PromisedStart | None:
        """Return the start of a waiting single pod (by uid) or gang; None for any other."""
        return self.start_times(should_stop).of(who)

    def start_times(self, should_stop: Callable[[], bool] = never) -> StartTimes:
        """Return the starts of all waiting gangs and pods."""
        starts = forecast_starts(self._dry_run, self._now, should_stop)
        return StartTimes(self._promises, starts, self._now, promise_moves(self._dry_run.new_session(self._now)))

    def gang_verdict(self, key: GangKey) -> Verdict | None:
        """Return the verdict on a waiting gang, or on the members above the minimum of a running gang; None for any
        other."""
        record = self._state.gangs.get(key)
        if record is None:
            return None
        return self._gangs.get(key) or self._surplus_verdict(uid for uid in record.members if uid in self._pods)

    def pod_verdict(self, uid: str) -> Verdict | None:
        """Return the dry run's verdict on a waiting pod; None for any other."""
        return self._pods.get(uid)

    def gangs_called(self, namespace: str, name: str, kind: str = "") -> list[GangKey]:
        """Return the gangs with a typed name as `gangs_named` does; of several gangs of one owner, waiting gangs
        first.

        Raises AmbiguousGangError.
        """
        return self._waiting_first(gangs_named(self._state.gangs, namespace, name, kind))

    def name_of(self, key: GangKey) -> str:
        """Return the shown name of a gang within its namespace."""
        return shown(self._state.gangs[key])

    def gangs_below(self, uids: Collection[str]) -> list[GangKey]:
        """Return the gangs to which these pods and declaring objects (by uid) belong, in the same order."""
        found = {
            record.gang.key for uid in uids if (record := self._state.pods.get(uid)) and record.gang is not None
        }
        found |= {key for key, record in self._state.gangs.items() if source_uid(record) in uids}
        return self._waiting_first(found)

    def pods_below(self, owner: str, namespace: str, name: str, uids: Collection[str]) -> WhyAnswer | None:
        """Return the answer about the first waiting pod of an owner's pods without a gang; None without such
        pods."""
        pods = sorted(record.pod.name for uid in uids if (record := self._state.pods.get(uid)) is not None)
        answers = [found for pod in pods if (found := self.pod(namespace, pod)) is not None]
        waiting = next((each for each in answers if _needs_nodes(each.state)), None)
        if waiting is not None or not answers:
            return waiting
        state = self._observed.state_of([self._state.pods[uid].pod for uid in uids if uid in self._state.pods])
        message = f"{count_of(len(answers), 'pod')} {'ended' if state.over else 'exist, 0 are pending'}"
        return WhyAnswer(owner, f"{namespace}/{name}", state, message)

    def _waiting_first(self, keys: Iterable[GangKey]) -> list[GangKey]:
        return sorted(keys, key=lambda key: (not self._counts[key].pending, key))

    def object_path(self, key: GangKey) -> str:
        """Return the URL path of the object that declares a gang, "" for none."""
        return object_path(self._state.gangs.get(key))

    def member_uids(self, key: GangKey) -> list[str]:
        record = self._state.gangs.get(key)
        return list(record.members) if record is not None else []

    def _surplus_verdict(self, uids: Iterable[str]) -> Verdict | None:
        """Return the verdict on the members above the minimum of a gang whose quorum is placed."""
        return next((verdict for uid in uids if (verdict := self._pods.get(uid)) is not None), None)

    def _describe_without_pending(self, answer: WhyAnswer, record: GangRecord) -> None:
        """Describe a gang without pending members in its answer; its verdict counts while its quorum is not
        satisfied."""
        need, verdict = self._needs.get(record.key), self._gangs.get(record.key)
        if verdict is not None and (need is None or not need.satisfied):
            self._conclude(answer, verdict, [])
        else:
            describe_without_pending(answer, record, self._counts[record.key], need)

    def _lifted_minimum(self, record: GangRecord) -> str:
        return lifted_minimum(record, self._counts[record.key], self._needs.get(record.key))

    def _planned_eviction(self, record: PodRecord) -> str:
        """Return the end of the message about a running pod: the eviction that the dry run planned for it, or the
        protection from eviction that its owner declares."""
        eviction = self._told.get(record.pod.uid)
        if eviction is None:
            return self._own_words.verdict(record)
        when = "as soon as eviction rates permit" if next(rates(record), None) else "now"
        return f"; it would be evicted {when}: {eviction.sentence}"

    def _describe(self, answer: WhyAnswer, record: GangRecord) -> None:
        answer.members, answer.gang_name = self._counts[record.key], record.title
        answer.object = object_name(record)
        above = self._state.gangs.composites.above(record)
        answer.composite = str(above[0].key) if above else ""
        if record.spec is not None:
            counts, expected = self._counts[record.key], self._expected.get(record.key, ())
            answer.size = gang_size(record, record.spec, counts, expected)
            if record.spec.topology is not None:
                rows = [each.row for each in record.members.values() if each.state in ACTIVE and each.row >= 0]
                answer.domain = self._domains.home(record.spec.topology, rows)
            answer.minimum = record.spec.min_member
            if record.spec.problem is not None and record.spec.problem.code == POD_GROUP_NOT_FOUND:
                answer.minimum, answer.size = 0, None  # no object states a minimum
            answer.warnings = [f"{warning.code}: {warning.message}" for warning in record.spec.warnings]

    def _quota_labels(self, records: Iterable[PodRecord]) -> list[str]:
        """Return the warning about the first pod with a label that names another quota than the one that is
        charged."""
        ignored = (ignored_quota(self._state, record) for record in records)
        return [f"{QUOTA_LABEL_IGNORED}: {each}" for each in islice(filter(None, ignored), 1)]

    def _add_evictions(self, answer: WhyAnswer, who: str | GangKey) -> WhyAnswer:
        """Add the evictions that a waiting gang or pod needs to its answer."""
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
            answer.message = found.message
            answer.append(f"it then starts on {nodes}")
            answer.change = (
                f"wait: {'; '.join(found.paced)}; only the running scheduler knows all earlier evictions"
                if found.paced
                else "if this does not change, check that the scheduler runs (kubectl logs of phalanx scheduler)"
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
            answer.pod_shapes = list(verdict.pod_shapes)
            return answer
        placed = [uid for uid in uids if uid in self.bound_to]
        targets = sorted({self.bound_to[uid] for uid in placed})
        refusal = next((self._refused[uid] for uid in placed if uid in self._refused), "")
        waiting = next((self._troubles[uid] for uid in placed if uid in self._troubles), None)
        if refusal:
            answer.reason, answer.message = (
                "SchedulerError",
                f"it fits on {first_of(targets, _NODES_NAMED)}, but {refusal}",
            )
            answer.change = "remove the cause that the API server reports; the binding is retried until then"
        elif waiting is not None:
            answer.reason, answer.message = waiting.reason, waiting.message
            answer.change = waiting.advice(self._state.pods[placed[0]].pod)
        elif targets:
            answer.forecast = PlacementForecast.STARTS_NOW
            answer.message = f"it would be placed now on {first_of(targets, _NODES_NAMED)}"
            answer.change = (
                "if this does not change, check that the scheduler runs (kubectl logs of phalanx scheduler)"
            )
        else:
            answer.message = "0 pods are pending"
        return answer


def object_path(record: GangRecord | None) -> str:
    """Return the URL path of the object that declares a gang, "" for none."""
    ref = record.spec.source if record is not None and record.spec is not None else None
    return Resource(ref.group, ref.version, ref.plural).path(ref.namespace, ref.name) if ref is not None else ""


def object_name(record: GangRecord) -> str:
    """Return the full name of the object that declares a gang, since `podgroup` means one of several kinds."""
    ref = record.spec.source if record.spec is not None else None
    return f"{ref.plural}.{ref.group}/{ref.name}" if ref is not None else ""


def _needs_nodes(state: GangState) -> bool:
    return state.waits or state is GangState.OTHER_SCHEDULER


def source_uid(record: GangRecord) -> str:
    """Return the uid of the object that declares a gang, "" for none."""
    return record.spec.source.uid if record.spec is not None and record.spec.source is not None else ""


# After the dry run, members that it placed count as PLACED.
_MOVABLE = frozenset({MemberState.PENDING, MemberState.ASSUMED})

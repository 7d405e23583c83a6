"""A gang in one situation, as the scheduler's state and as documents of the API, and its appearance in each
view.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from phalanx.cli.explanation.why import render
from phalanx.cli.jobs.gang_columns import COLUMNS as JOBS_COLUMNS
from phalanx.cli.jobs.job_tables import description, job_table
from phalanx.cli.top.gangs import COLUMNS as TOP_COLUMNS
from phalanx.cluster.state import ClusterState
from phalanx.daemon.gang_entries import GangEntry, ListedGangs
from phalanx.daemon.gang_list import GangList
from phalanx.daemon.metrics.cluster_counts import ClusterCounts, CountedCluster
from phalanx.dashboard.rehearsal.messages import PlannedStart, rehearsed_verdict
from phalanx.dashboard.rows.entries import GangRow
from phalanx.dashboard.rows.gangs import gang_row
from phalanx.dialects.intake import Intake
from phalanx.dialects.options import DialectOptions
from phalanx.kube.core_resources import PODS
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from phalanx.model.gang import GangKey
from phalanx.model.pod import Pod
from phalanx.model.text.duration import format_moment
from phalanx.model.verdict import Verdict
from phalanx.model.verdict_condition import LAST_VERDICT, told_fields
from phalanx.reports.gangs.gang_list import gang_entries
from phalanx.reports.jobs.entries import JobDescription
from phalanx.reports.jobs.job_report import FoundJob, found_job
from phalanx.reports.missing_pods import OWNERS, why_owner
from phalanx.reports.snapshot import DisruptionTarget, Snapshot
from phalanx.reports.turn_entries import TurnEntry
from phalanx.reports.turn_order import turn_order
from phalanx.reports.why import WhyReport
from phalanx.reports.why_answer import WhyAnswer
from phalanx.reports.why_target import DryRunAnswers
from phalanx.scheduling.reservations.stored import stored
from phalanx.scheduling.start_reservations.plugin import reservation_plan
from phalanx.views.gang_state import CODES, GangState
from phalanx.views.promises import PromisedStart, Promises, promises_of_scheduler
from tests.scheduling.scenario import NAMESPACE, Scenario, key

Json = dict[str, Any]

G = key("g")
JOBS = Resource("batch", "v1", "jobs", "Job")
EVICTION = DisruptionTarget("PreemptionByScheduler", "phalanx: makes room")


class Situation:
    """Gang `g` of a scenario. `kind` and `job` are its owner, of which the scheduler sees the PodGroup and the
    pods. `evicted` names pods with the condition DisruptionTarget."""

    def __init__(self, world: Scenario, kind: str, job: Json, evicted: Iterable[str] = ()) -> None:
        self.world = world
        self.evicted = dict.fromkeys(evicted, EVICTION)
        plan = reservation_plan(world.scheduler.features)
        found = plan.all() if plan is not None else ()
        promises = [each for each in found if not isinstance(each.key, str) and G in each.key]
        self.plan = Promises(tuple(stored(each, world.state.nodes, {G: ""}) for each in promises))
        self._kind, self._job = kind, job

    def verdict(self, gang: GangKey) -> Verdict | None:
        """Return the verdict that the scheduler published last."""
        record = self.world.state.gangs.get(gang)
        return record.last_verdict[0] if record is not None and record.last_verdict is not None else None

    # as each view is made

    async def listed(self) -> GangEntry:
        """Return the entry of the scheduler's own list."""
        made = GangList(
            self.world.state,
            lambda: promises_of_scheduler(self.world.scheduler),
            self.verdict,
            lambda: self.world.now,
        )
        answer = msgspec.json.decode(await made.answer(), type=ListedGangs)
        return next(each for each in answer.items if each.name == "g")

    def counts(self) -> ClusterCounts:
        """Return the counts of the metrics, of this gang alone."""
        others = [each for each in self.world.state.gangs.values() if each.key != G]
        assert not others, "other pods of a situation are in no gang"
        return CountedCluster(self.world.state, lambda: self.world.scheduler, self.verdict).count(self.world.now)

    def row(self) -> GangRow:
        """Return the row of the page and of `phalanx top`."""
        told = self.verdict(G)
        verdict = rehearsed_verdict(told) if told is not None else None
        start = PlannedStart("default", 1, self.why().start or PromisedStart(), G) if self.plan.promises else None
        return gang_row(self.world.state.gangs[G], verdict, start, self.evicted)

    def why(self) -> WhyAnswer:
        """Return the answer of `phalanx why`, from a dry run over a snapshot."""
        report = self._report()
        answer = report.gang(G)
        assert answer is not None
        if answer.waits:
            answer.start = report.start(G)
        return answer

    def _snapshot(self) -> Snapshot:
        snapshot = Snapshot(ClusterState(), Intake(("phalanx",)), disruption_targets=self.evicted)
        snapshot.apply_events(self.world.events)
        return snapshot

    def _report(self) -> WhyReport:
        return WhyReport(self._snapshot(), self.world.policy, float(self.world.now), self.plan)

    def found(self) -> FoundJob:
        """Return the data that the commands about jobs read from the API."""
        record = self.world.state.gangs.get(G)
        pods = [self._document(each.pod) for each in record.members.values()] if record is not None else []
        groups = [self._group()] if record is not None else []
        return found_job(self._kind, self._job, JOBS, pods, groups, self.world.now)

    def entry(self) -> GangEntry:
        """Return the entry of `phalanx jobs`."""
        (entry,) = gang_entries([self.found()], DialectOptions(), self.plan)
        return entry

    def _group(self) -> Json:
        spec = self.world.state.gangs[G].spec
        assert spec is not None
        told = self.verdict(G)
        conditions = []
        if told is not None:
            word = {"type": "Unschedulable", "reason": "NotEnoughResources", "message": told.message}
            exact = {"type": LAST_VERDICT, "reason": told.code, "message": told_fields(told)}
            conditions = [{"status": "True", **each} for each in (word, exact)]
        return {
            "metadata": {"name": "g", "namespace": NAMESPACE},
            "spec": {"minMember": spec.min_member, "queue": spec.queue},
            "status": {"conditions": conditions},
        }

    def _document(self, pod: Pod) -> Json:
        target = {"type": "DisruptionTarget", "status": "True", "reason": EVICTION.reason}
        owners = [{"uid": self._job["metadata"]["uid"], "controller": True}]
        metadata: Json = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid, "ownerReferences": owners}
        if pod.terminating:
            metadata["deletionTimestamp"] = format_moment(self.world.now)
        return {
            "metadata": metadata,
            "spec": {"nodeName": pod.node, "schedulingGates": [{"name": "g"}] if pod.gated else []},
            "status": {"phase": pod.phase, "conditions": [target] if pod.name in self.evicted else []},
        }

    def turn(self) -> TurnEntry:
        """Return the entry of `phalanx order`."""
        (entry,) = (
            each
            for each in turn_order(self._snapshot(), self.world.policy, self.world.now).entries
            if each.name == "g"
        )
        return entry

    # expected content of each view

    async def live_states(self) -> dict[str, str]:
        """Return the state that each view shows which is made from the state of a cluster."""
        (counted,) = (state for state, number in self.counts().gangs.items() if number)
        row, why = self.row(), self.why()
        (shown,) = (column.cell(row, self.world.now) for column in TOP_COLUMNS if column.title == "STATE")
        first = render(why).splitlines()[0].removeprefix("Gang ns/g: ")
        return {
            "list of the scheduler": (await self.listed()).state,
            "phalanx_gangs": GangState[counted.upper()],
            "page": row.state,
            "top": shown,
            "why -o json": why.state,
            "why": first.partition(" ")[0].rstrip(","),
        }

    async def document_states(self) -> dict[str, str]:
        """Return the state that each view shows which is made from documents of the API."""
        found, now = self.found(), self.world.now
        entry = self.entry()
        header, row = job_table([found.entry], now, wide=False, namespaces=False)
        status = dict(zip(header.split(), row.split(), strict=True))["STATUS"]
        lines = description(JobDescription(job=found.entry), now)
        (described,) = (line.split()[1] for line in lines if line.startswith("Status:"))
        (code,) = (column.text(entry, now) for column in JOBS_COLUMNS if column.title == "ST")
        assert code == CODES[entry.state]
        answer = await why_owner(self, DryRunAnswers(self._report()), self._kind, NAMESPACE, "g")  # type: ignore[arg-type]
        assert answer is not None
        return {"jobs": entry.state, "job list": status, "job describe": described, "why job": answer.state}

    # as a client of the API

    async def get(self, path: str) -> Json:
        """Return the job."""
        if path != OWNERS[self._kind].path(NAMESPACE, "g"):
            raise ApiError(404, "NotFound", path)
        return self._job

    async def list_all(self, path: str, params: object = None) -> Json:
        """Return the pods; there is nothing else in the namespace."""
        return {"items": list(self.found().members) if path == PODS.path(NAMESPACE) else []}

"""One cycle's view of the cluster: what actions and plugins ask, answered once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.members import GangRecord, PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.decisions import Admit, Bind, Plan
from phalanx.model.gang import GangKey
from phalanx.model.pod import PlanMark
from phalanx.model.resources import requests_of
from phalanx.model.verdict import GangVerdict, PodVerdict, Verdict
from phalanx.scheduling.placement import Placer
from phalanx.scheduling.quorum import Requirement, requirement

if TYPE_CHECKING:
    from phalanx.scheduling.pipeline import Pipeline
    from phalanx.scheduling.work import Unit


class Session:
    """Lives for one cycle. `now` is in seconds since the epoch; `should_stop` ends the cycle between transactions.

    Decisions are recorded through `bind`, `admit`, `judge_gang` and `judge_pod`; the plan is their sum.
    """

    def __init__(
        self,
        state: ClusterState,
        pipeline: Pipeline,
        placer: Placer,
        units: list[Unit],
        plan: Plan,
        now: float,
        should_stop: Callable[[], bool],
    ) -> None:
        self.state = state
        self.pipeline = pipeline
        self.placer = placer
        self.units = units
        self.plan = plan
        self.now = now
        self.should_stop = should_stop
        self.cause = f"c{plan.cycle}"
        self._priorities: dict[GangKey, int] = {}
        self._totals: dict[str, tuple[int, int]] | None = None
        self._promised: dict[str, int] | None = None
        self._admitted_now: set[GangKey] = set()
        self._refusals: dict[int, str | None] = {}

    # what plugins ask

    def priority(self, gang: GangRecord | PodRecord) -> int:
        """A pod's priority; of a gang the group's own, else the highest among its pending members.

        (The highest, so that a gang with one low member does not starve; research/coscheduling.md, 1.4.)
        """
        if isinstance(gang, PodRecord):
            return gang.pod.priority
        if gang.noun is not None and gang.noun.priority is not None:
            return gang.noun.priority
        found = self._priorities.get(gang.key)
        if found is None:
            found = max((member.pod.priority for member in gang.pending.values()), default=0)
            self._priorities[gang.key] = found
        return found

    def requirement(self, gang: GangRecord) -> Requirement:
        assert gang.noun is not None
        return requirement(gang, gang.noun)

    def is_admitted(self, gang: GangRecord) -> bool:
        return gang.noun is not None and (gang.noun.admitted or gang.key in self._admitted_now)

    def refusal(self, cls: ClassRecord) -> str | None:
        if cls.number not in self._refusals:
            self._refusals[cls.number] = self.pipeline.refusal(cls)
        return self._refusals[cls.number]

    def totals(self) -> dict[str, tuple[int, int]]:
        """resource -> (allocatable, used) over all nodes, as they were when first asked for in this cycle."""
        if self._totals is None:
            nodes = self.state.nodes
            allocatable, used = nodes.allocatable.sum(axis=1).tolist(), nodes.used.sum(axis=1).tolist()
            self._totals = {
                name: (allocatable[column], used[column]) for column, name in enumerate(self.state.space.names)
            }
        return self._totals

    def promised(self) -> dict[str, int]:
        """What admitted groups announced in minResources and their members do not use yet."""
        if self._promised is None:
            self._promised = {}
            for gang in self.state.gangs.values():
                if gang.noun is not None and gang.noun.admission and gang.noun.admitted:
                    self._promise(gang)
        return self._promised

    def _promise(self, gang: GangRecord) -> None:
        assert gang.noun is not None
        if self._promised is None or not gang.noun.min_resources:
            return
        taken: dict[str, int] = {}
        for member in gang.members.values():
            if member.pod.node or member.target:
                for name, amount in member.pod.usage:
                    taken[name] = taken.get(name, 0) + amount
        for name, amount in requests_of(dict(gang.noun.min_resources)):
            self._promised[name] = self._promised.get(name, 0) + max(0, amount - taken.get(name, 0))

    # what actions decide

    def bind(self, record: PodRecord, row: int, gang: GangKey | None, mark: PlanMark | None) -> None:
        """Records a placement whose row is already charged (by a committed transaction)."""
        pod = record.pod
        self.state.place(record, row, mark)
        node = self.state.nodes.names[row]
        self.plan.binds.append(Bind(pod.uid, pod.namespace, pod.name, node, gang, mark, self.cause))

    def admit(self, gang: GangRecord) -> None:
        self._admitted_now.add(gang.key)
        self._promise(gang)
        self.plan.admissions.append(Admit(gang.key))
        for plugin in self.pipeline.plugins("admitted"):
            plugin.admitted(self, gang)

    def judge_gang(self, key: GangKey, verdict: Verdict | None) -> None:
        self.plan.gangs.append(GangVerdict(key, verdict))

    def judge_pod(self, record: PodRecord, verdict: Verdict | None) -> None:
        self.plan.pods.append(PodVerdict(record.pod.uid, verdict))

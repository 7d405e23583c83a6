"""One cycle's view of the cluster: what actions and plugins ask, answered once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.members import GangRecord, PodRecord
from phalanx.cluster.resource_space import exact_sums
from phalanx.cluster.state import ClusterState
from phalanx.model.decisions import Admit, Bind, Plan
from phalanx.model.gang import GangKey
from phalanx.model.pod import PlanMark
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
        return gang.noun is not None and (gang.noun.admitted or gang.admitted)

    def refusal(self, cls: ClassRecord) -> str | None:
        if cls.number not in self._refusals:
            self._refusals[cls.number] = self.pipeline.refusal(cls)
        return self._refusals[cls.number]

    def totals(self) -> dict[str, tuple[int, int]]:
        """resource -> (allocatable, used) over all nodes, as they were when first asked for in this cycle."""
        if self._totals is None:
            nodes = self.state.nodes
            allocatable, used = exact_sums(nodes.allocatable), exact_sums(nodes.used)
            self._totals = {
                name: (allocatable[column], used[column]) for column, name in enumerate(self.state.space.names)
            }
        return self._totals

    def promised(self) -> Mapping[str, int]:
        """What admitted groups announced in minResources and their members do not use yet."""
        return self.state.promises.total()

    # what actions decide

    def bind(self, record: PodRecord, row: int, gang: GangKey | None, mark: PlanMark | None) -> None:
        """Records a placement whose row is already charged (by a committed transaction)."""
        pod = record.pod
        self.state.place(record, row, mark)
        node = self.state.nodes.names[row]
        self.plan.binds.append(Bind(pod.uid, pod.namespace, pod.name, node, gang, mark, self.cause))

    def admit(self, gang: GangRecord) -> None:
        self.state.admit(gang.key)
        self.plan.admissions.append(Admit(gang.key))
        for plugin in self.pipeline.plugins("admitted"):
            plugin.admitted(self, gang)

    def judge_gang(self, key: GangKey, verdict: Verdict | None) -> None:
        self.plan.gangs.append(GangVerdict(key, verdict))

    def judge_pod(self, record: PodRecord, verdict: Verdict | None) -> None:
        self.plan.pods.append(PodVerdict(record.pod.uid, verdict))

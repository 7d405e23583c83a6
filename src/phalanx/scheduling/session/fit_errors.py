"""What was found to be lacking in a cycle, and why, told to everyone who asks for the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.state import ClusterState
from phalanx.scheduling.diagnosis.domain_shortage import no_room_near
from phalanx.scheduling.diagnosis.shortage import shortage
from phalanx.scheduling.placement.placer import Placer
from phalanx.scheduling.placement.topology_domains import TopologyDomains
from phalanx.scheduling.queue.demands import (
    PodDemand,
    WaitReason,
)
from phalanx.scheduling.queue.scheduling_queue import SchedulingQueue
from phalanx.scheduling.queue.unschedulable import FitError
from phalanx.scheduling.quota.quota_check import QuotaCheck
from phalanx.scheduling.refusals.no_room import Shortage
from phalanx.scheduling.refusals.over_quota import OverQuota
from phalanx.scheduling.refusals.refusal import Refusal

if TYPE_CHECKING:
    from phalanx.scheduling.framework.plugin_runtime import PluginRuntime


class FitErrors:
    """Lives for one cycle. Room only shrinks in it: what did not fit goes on not fitting, except for pods that may
    be helped by the placement of others."""

    def __init__(
        self,
        state: ClusterState,
        plugin_runtime: PluginRuntime,
        placer: Placer,
        queue: SchedulingQueue,
        quota_check: QuotaCheck,
        topology_domains: TopologyDomains,
    ) -> None:
        self.state = state
        self.plugin_runtime = plugin_runtime
        self.topology_domains = topology_domains
        self._placer = placer
        self._queue = queue
        self._quota_check = quota_check
        # With the `affinity_version` as of then.
        self._found: dict[WaitReason, tuple[FitError, int]] = {}
        self._shortages: dict[ClassRecord, tuple[Shortage, int]] = {}

    def known(self, demand: WaitReason) -> FitError | None:
        """The fit error of a demand after which room has not grown: in a cycle it only shrinks, except for pods
        that hope for others to be placed."""
        found, affinity_version = self._found.get(demand, (None, 0))
        if found is not None:
            current = affinity_version == self.state.affinity_version
            return found if current or not demand.helped_by_placements else None
        return self._queue.known_fit_error(demand)

    def record(self, demand: WaitReason, facts: Refusal, version: int | None = None) -> FitError:
        """Remembers that a demand cannot be met and why; `facts` are as of `version`, by default as of now."""
        fit_error = FitError(facts, self.state.version if version is None else version)
        self._found[demand] = (fit_error, self.state.affinity_version)
        return fit_error

    def shortage(self, pod_class: ClassRecord, afresh: bool = False) -> tuple[Shortage, int]:
        """Return why no further copy of the class fits, and as of which version of the cluster.

        The answer is from earlier in the cycle unless it must hold now (`afresh`).
        """
        found = self._shortages.get(pod_class)
        if found is None or (afresh and found[1] != self.state.version):
            facts = shortage(self.plugin_runtime, self.state.nodes, pod_class)
            found = self._shortages[pod_class] = facts, self.state.version
        return found

    def facts_now(self, kind: PodDemand) -> Shortage | OverQuota:
        """Why no further pod of the kind fits or is allowed, in the midst of a transaction."""
        excess = self._quota_check.over_quota(kind.charge_path, kind.pod_class.footprint)
        if excess is not None and not (excess.computed and not self._placer.fits(kind.pod_class)):
            return excess
        if kind.area is not None:
            return no_room_near(self, kind.area, kind)
        return shortage(self.plugin_runtime, self.state.nodes, kind.pod_class)

    def facts(self, kind: PodDemand, afresh: bool = False) -> tuple[Shortage | OverQuota, int]:
        """(why no further pod of the kind fits or is allowed, as of which version of the cluster)."""
        excess = self._quota_check.over_quota(kind.charge_path, kind.pod_class.footprint)
        if excess is not None and not (excess.computed and not self._placer.fits(kind.pod_class)):
            return excess, self.state.version
        if kind.area is not None:
            return no_room_near(self, kind.area, kind), self.state.version
        return self.shortage(kind.pod_class, afresh)

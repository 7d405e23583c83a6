"""Fit errors of a cycle, shared by all units with the same demand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
    """Fit errors of one cycle. Room only shrinks in it, so a refused demand stays refused. Demands that placements
    of other pods can satisfy are excepted. Repair moves can open a node: they count as freed room, so the next
    cycle tries the refused units again.
    """

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
        # demand -> (fit error, `affinity_version` at that time)
        self._by_demand: dict[WaitReason, tuple[FitError, int]] = {}
        self._apart = False
        self._shortages: dict[ClassRecord, tuple[Shortage, int]] = {}

    def known(self, demand: WaitReason) -> FitError | None:
        """Return the valid fit error of a demand; None if it can fit now.

        Within a cycle room only shrinks, except for demands that placements of other pods can satisfy.
        """
        fit_error, affinity_version = self._by_demand.get(demand, (None, 0))
        if fit_error is not None:
            current = affinity_version == self.state.affinity_version
            return fit_error if current or not demand.helped_by_placements else None
        return self._queue.known_fit_error(demand) if not self._apart else None

    def record(self, demand: WaitReason, facts: Refusal, version: int | None = None) -> FitError:
        """Record the fit error of a demand; `facts` are as of `version`, by default the present one."""
        fit_error = FitError(facts, self.state.version if version is None else version)
        self._by_demand[demand] = (fit_error, self.state.affinity_version)
        return fit_error

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Ignore the fit errors of the cycle, and forget the new ones at the end: other limits hold meanwhile."""
        former, self._by_demand, self._apart = self._by_demand, {}, True
        try:
            yield
        finally:
            self._by_demand, self._apart = former, False

    def shortage(self, pod_class: ClassRecord, afresh: bool = False) -> tuple[Shortage, int]:
        """Return why no further copy of the class fits, and the version of the cluster for which this holds.

        The result can be from earlier in the cycle unless `afresh` is set.
        """
        known = self._shortages.get(pod_class)
        if known is None or (afresh and known[1] != self.state.version):
            facts = shortage(self.plugin_runtime, self.state.nodes, pod_class)
            known = self._shortages[pod_class] = facts, self.state.version
        return known

    def facts_now(self, kind: PodDemand) -> Shortage | OverQuota:
        """Return why no further pod of the kind fits or is allowed, inside an open transaction."""
        excess = self._quota_check.over_quota(kind.charge_path, kind.pod_class.footprint)
        if excess is not None and not (excess.computed and not self._placer.fits(kind.pod_class)):
            return excess
        if kind.area is not None:
            return no_room_near(self, kind.area, kind)
        return shortage(self.plugin_runtime, self.state.nodes, kind.pod_class)

    def facts(self, kind: PodDemand, afresh: bool = False) -> tuple[Shortage | OverQuota, int]:
        """Return (why no further pod of the kind fits or is allowed, version of the cluster)."""
        excess = self._quota_check.over_quota(kind.charge_path, kind.pod_class.footprint)
        if excess is not None and not (excess.computed and not self._placer.fits(kind.pod_class)):
            return excess, self.state.version
        if kind.area is not None:
            return no_room_near(self, kind.area, kind), self.state.version
        return self.shortage(kind.pod_class, afresh)

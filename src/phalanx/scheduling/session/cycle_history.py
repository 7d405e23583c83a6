"""What the scheduler remembers from one cycle to the next, beside the cluster and what waits."""

from __future__ import annotations

from phalanx.cluster.state import ClusterState
from phalanx.scheduling.framework.node_backoff import NodeBackoff
from phalanx.scheduling.framework.timers import Timers
from phalanx.scheduling.quota.usage_history import UsageHistory
from phalanx.scheduling.session.eviction_log import EvictionLog
from phalanx.scheduling.session.eviction_searches import SearchObserver, Unobserved
from phalanx.scheduling.session.no_solution import NoSolutionCache
from phalanx.scheduling.session.victim_class_arrays import VictimClassArrays


class CycleHistory:
    """`history` is what accounts have held, `timers` when plugins last did what they do now and then, `evictions`
    who lost how many pods when, `no_solutions` which searches for victims found nothing, `searches` who wants to
    know of them, and `node_backoff` which nodes are left alone because they refused pods. Only the first survives a
    restart: the others are about minutes.
    """

    def __init__(self, history: UsageHistory | None = None) -> None:
        self.history = history if history is not None else UsageHistory()
        self.timers = Timers()
        self.evictions = EvictionLog()
        self.no_solutions = NoSolutionCache()
        self.searches: SearchObserver = Unobserved()
        self.node_backoff = NodeBackoff()
        self._victim_classes: VictimClassArrays | None = None

    def victim_classes(self, state: ClusterState) -> VictimClassArrays:
        """The victim classes of `state` as arrays, up to date."""
        found = self._victim_classes
        if found is None or found.state is not state:
            found = self._victim_classes = VictimClassArrays(state)
        else:
            found.update()
        return found

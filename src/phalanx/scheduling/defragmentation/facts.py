"""A cluster that can be built again and again, to try on it what must not be tried on the real one."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from phalanx.cluster.state import ClusterState
from phalanx.model.events import ClusterEvent
from phalanx.scheduling.framework.eviction_options import EvictionOptions
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.quota.usage_history import AccountUsage
from phalanx.scheduling.scheduler import Scheduler

# What a cycle does to pods that run is no part of what is tried.
_HARMLESS = frozenset({"enqueue", "allocate", "backfill"})
_MOST_CYCLES = 100


class Facts(msgspec.Struct, frozen=True):
    """What is known of a cluster as the events that tell it, and who plans there how. `now` is in seconds since the
    epoch.
    """

    events: Sequence[ClusterEvent]
    policy: Policy
    now: float
    schedulers: Collection[str] = ("phalanx",)
    usages: Sequence[AccountUsage] = ()

    def build(self) -> Scheduler:
        """The cluster and a scheduler that evicts nobody, after everything has been placed that can be now."""
        state = ClusterState(self.schedulers)
        for event in self.events:
            state.apply(event)
        actions = tuple(action for action in self.policy.actions if action in _HARMLESS)
        policy = msgspec.structs.replace(self.policy, actions=actions, eviction=EvictionOptions())
        scheduler = Scheduler(state, policy)
        scheduler.history.restore(self.usages, self.now)
        settle(scheduler, self.now)
        return scheduler


def settle(scheduler: Scheduler, now: float) -> None:
    """Cycles until the scheduler has nothing more to do."""
    for _ in range(_MOST_CYCLES):
        scheduler.cycle(now)
        if scheduler.idle:
            return

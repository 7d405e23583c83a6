"""Policy ready to run: plugins in tiers, actions, and further settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from phalanx.model.account import SelfProtection
from phalanx.scheduling.framework.action import Action
from phalanx.scheduling.framework.capabilities import TopologySettings, UsageDecay
from phalanx.scheduling.framework.defragment_settings import DefragmentSettings
from phalanx.scheduling.framework.eviction_options import EvictionOptions
from phalanx.scheduling.framework.plugin import Plugin
from phalanx.scheduling.framework.queue_policies import QueuePolicies
from phalanx.scheduling.framework.reservation_settings import ReservationSettings

T = TypeVar("T")


class ConfiguredPlugin(msgspec.Struct, frozen=True):
    """Plugin of the policy; `disabled_points` are extension points that the policy file switches off."""

    plugin: Plugin
    tier: int
    disabled_points: frozenset[str] = frozenset()


#: Events of bound members: of small gangs (`auto`), only the one of the gang, or of every member.
POD_EVENTS = ("auto", "gang", "member")
#: Autoscalers of nodes that create nodes for unschedulable pods; the first value is no autoscaler.
AUTOSCALERS = ("none", "cluster-autoscaler", "karpenter")


class Policy(msgspec.Struct, frozen=True):
    """A policy that can run.

    `standing_plugins` are active in every policy: they enforce declared objects (quotas, budgets). `inactive` are
    messages about accepted settings without effect.

    `partial_gang` applies to a gang below its quorum after its timeout because bindings failed. `keep` lets bound
    members run and retries, `release` evicts them. `evictions` is the way of evictions: `delete`, or
    `eviction-api`, where the API server enforces PodDisruptionBudgets. `self_protection` applies to accounts
    without their own setting or one of an ancestor. `custom_actions` are the actions of installed packages by name.
    With `create_pod_groups`, gangs that only pods declare get a PodGroup. `reservations` are the settings of the
    action `reserve`, None without it. `exceeded_run_times` applies to gangs with pods beyond their run time limit:
    `report`, `evict-when-needed` or `kill`. With `heeds_maintenance_signals`, pods that would not end before a
    node's announced maintenance are not placed there. `defragmentation` are the settings of the action
    `defragment`, None without it. `pod_events` is one of POD_EVENTS: whether members of gangs get an event of their
    own when they are bound. `autoscaler` is one of AUTOSCALERS. `queues` are the policies of single queues by name.
    """

    actions: tuple[str, ...]
    plugins: tuple[ConfiguredPlugin, ...]
    standing_plugins: tuple[ConfiguredPlugin, ...] = ()
    inactive: tuple[str, ...] = ()
    partial_gang: str = "keep"
    cycle_budget: float = 0.1
    dialects: Mapping[str, object] = {}
    evictions: str = "delete"
    eviction: EvictionOptions = EvictionOptions()
    self_protection: SelfProtection = SelfProtection.GUARANTEED
    custom_actions: Mapping[str, Action] = {}
    create_pod_groups: bool = True
    reservations: ReservationSettings | None = None
    exceeded_run_times: str = "report"
    heeds_maintenance_signals: bool = True
    defragmentation: DefragmentSettings | None = None
    pod_events: str = POD_EVENTS[0]
    autoscaler: str = AUTOSCALERS[0]
    queues: QueuePolicies = {}

    @property
    def requests_nodes(self) -> bool:
        """Whether an autoscaler creates nodes for unschedulable pods."""
        return self.autoscaler != AUTOSCALERS[0]

    @property
    def places_best_effort_only(self) -> bool:
        """True if no action places gang members with resource requests; custom actions are assumed to place
        them.
        """
        return "allocate" not in self.actions and not self.custom_actions

    def configured(self, kind: type[T]) -> T | None:
        """Return the configured plugin of this class in the policy's tiers; None if none names it."""
        plugins = (entry.plugin for entry in self.plugins)
        return next((plugin for plugin in plugins if isinstance(plugin, kind)), None)

    @property
    def topology(self) -> TopologySettings:
        """The topology settings of the first plugin that has some."""
        topologies = (entry.plugin.topology for entry in self.plugins)
        return next((settings for settings in topologies if settings is not None), TopologySettings())

    @property
    def usage_decay(self) -> UsageDecay:
        """The usage decay of the first plugin that has one."""
        decays = (entry.plugin.usage_decay for entry in self.plugins)
        return next((decay for decay in decays if decay is not None), UsageDecay())

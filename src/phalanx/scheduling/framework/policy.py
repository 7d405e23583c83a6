"""A policy that can run: its plugins in tiers, its actions, and what it says beside them."""

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
from phalanx.scheduling.framework.reservation_settings import ReservationSettings

T = TypeVar("T")


class ConfiguredPlugin(msgspec.Struct, frozen=True):
    """A plugin of the policy; `disabled_points` are the extension points that the file switches off."""

    plugin: Plugin
    tier: int
    disabled_points: frozenset[str] = frozenset()


class Policy(msgspec.Struct, frozen=True):
    """A policy that can run. `standing_plugins` are plugins that no file names: what objects in the cluster say
    (quotas, budgets) holds whatever the policy. `inactive` tells, a sentence each, what was accepted but has no
    effect yet.

    `partial_gang` says what happens to a gang that stays below its quorum past its timeout because bindings
    failed: `keep` lets the bound members run on and keeps trying, `release` evicts them. `evictions` says how pods
    are evicted: `delete`, or `eviction-api`, where the API server keeps PodDisruptionBudgets. `self_protection`
    holds for accounts that say nothing about it, and none above them does. `custom_actions` are those of
    `actions` that installed packages bring, by name. With `create_pod_groups` gangs that only pods declare get an
    object. `reservations` says who has a start kept for it, None where nobody has (the action `reserve`).
    `exceeded_run_times` says what becomes of gangs with pods that run longer than they may: `report`,
    `evict-when-needed` or `kill`. With `heeds_maintenance_signals` what nodes say about their own maintenance keeps
    pods off them that would not end in time. `defragmentation` says when pods are moved for those who wait,
    None where none are (the action `defragment`).
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

    @property
    def places_best_effort_only(self) -> bool:
        """Whether no action is for members of gangs that ask for more than a slot; of others' nobody knows."""
        return "allocate" not in self.actions and not self.custom_actions

    def configured(self, kind: type[T]) -> T | None:
        """The plugin of a class that a tier names."""
        found = (entry.plugin for entry in self.plugins)
        return next((plugin for plugin in found if isinstance(plugin, kind)), None)

    @property
    def topology(self) -> TopologySettings:
        """How the first plugin that says anything about it parts the network."""
        found = (entry.plugin.topology for entry in self.plugins)
        return next((settings for settings in found if settings is not None), TopologySettings())

    @property
    def usage_decay(self) -> UsageDecay:
        """How the first plugin that says anything about it looks back at what accounts have held."""
        found = (entry.plugin.usage_decay for entry in self.plugins)
        return next((decay for decay in found if decay is not None), UsageDecay())

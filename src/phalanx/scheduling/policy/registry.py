"""Registry of plugins and actions: ours, and those of installed packages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import metadata
from typing import Any

import msgspec

from phalanx.cluster.state import ClusterState
from phalanx.model.text.decoding import quoted
from phalanx.scheduling.actions.allocate import allocate
from phalanx.scheduling.actions.backfill import backfill
from phalanx.scheduling.actions.defragment import defragment
from phalanx.scheduling.actions.enqueue import enqueue
from phalanx.scheduling.actions.preempt import preempt
from phalanx.scheduling.actions.reserve import reserve
from phalanx.scheduling.actions.shuffle import shuffle
from phalanx.scheduling.collecting.plugin import Collecting
from phalanx.scheduling.defragmentation.plugin import Defragmentation
from phalanx.scheduling.features.admission_lapse import AdmissionLapse
from phalanx.scheduling.features.borrowed_room import BorrowedRoom
from phalanx.scheduling.features.maintenance_evictions import Maintenance
from phalanx.scheduling.features.node_requests import NodeRequests
from phalanx.scheduling.features.past_use import PastUse
from phalanx.scheduling.features.placeholders import PlaceholderClaims
from phalanx.scheduling.features.rejecting_nodes import RejectingNodes
from phalanx.scheduling.features.run_time_limits import RunTimeLimitEvictions
from phalanx.scheduling.features.unplaceable_units import UnplaceableUnits
from phalanx.scheduling.framework.action import Action
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.framework.plugin import Plugin
from phalanx.scheduling.framework.vocabulary import ACTION_ARGUMENTS, RETIRED_ACTIONS
from phalanx.scheduling.plugins.evictions.cdp import Cdp
from phalanx.scheduling.plugins.evictions.conformance import Conformance
from phalanx.scheduling.plugins.evictions.pdb import Pdb
from phalanx.scheduling.plugins.evictions.protection import Protection
from phalanx.scheduling.plugins.evictions.rescheduling import Rescheduling
from phalanx.scheduling.plugins.evictions.selfprotection import SelfProtectionPlugin
from phalanx.scheduling.plugins.nodes.bestfit import BestFit
from phalanx.scheduling.plugins.nodes.binpack import Binpack
from phalanx.scheduling.plugins.nodes.deviceshare import DeviceShare
from phalanx.scheduling.plugins.nodes.extender import Extender
from phalanx.scheduling.plugins.nodes.fgd import Fgd
from phalanx.scheduling.plugins.nodes.network_topology_aware import NetworkTopologyAware
from phalanx.scheduling.plugins.nodes.node_backoff import NodeBackoffPlugin
from phalanx.scheduling.plugins.nodes.nodegroup import NodeGroup
from phalanx.scheduling.plugins.nodes.nodeorder import NodeOrder
from phalanx.scheduling.plugins.nodes.numa_aware import NumaAware
from phalanx.scheduling.plugins.nodes.predicates import Predicates
from phalanx.scheduling.plugins.nodes.random import RandomNode
from phalanx.scheduling.plugins.nodes.resource_strategy_fit import ResourceStrategyFit
from phalanx.scheduling.plugins.nodes.tdm import Tdm
from phalanx.scheduling.plugins.nodes.usage import Usage
from phalanx.scheduling.plugins.order.gang import GangPlugin
from phalanx.scheduling.plugins.order.priority import Priority
from phalanx.scheduling.plugins.order.sla import Sla
from phalanx.scheduling.plugins.order.task_topology import TaskTopologyPlugin
from phalanx.scheduling.plugins.queues.budgets import Budgets
from phalanx.scheduling.plugins.queues.capacity import Capacity
from phalanx.scheduling.plugins.queues.drf import Drf
from phalanx.scheduling.plugins.queues.fairshare import Fairshare
from phalanx.scheduling.plugins.queues.guarantees import Guarantees
from phalanx.scheduling.plugins.queues.overcommit import Overcommit
from phalanx.scheduling.plugins.queues.proportion import Proportion
from phalanx.scheduling.plugins.queues.quotas import Quotas
from phalanx.scheduling.plugins.queues.resourcequota import ResourceQuotaPlugin
from phalanx.scheduling.queue.scheduling_queue import SchedulingQueue
from phalanx.scheduling.session.cycle_history import CycleHistory
from phalanx.scheduling.session.cycle_plugin import CyclePlugin
from phalanx.scheduling.session.offered_feature import OfferedFeature, overridden_points
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.start_reservations.plugin import StartReservations

ENTRY_POINT_GROUP = "phalanx.plugins"
ACTION_ENTRY_POINT_GROUP = "phalanx.actions"
CYCLE_ENTRY_POINT_GROUP = "phalanx.cycle_plugins"


def builtin_plugins() -> dict[str, type[Plugin]]:
    ours: tuple[type[Plugin], ...] = (
        BestFit,
        Binpack,
        Capacity,
        Cdp,
        Conformance,
        DeviceShare,
        Drf,
        Extender,
        Fairshare,
        Fgd,
        GangPlugin,
        NetworkTopologyAware,
        NodeGroup,
        NodeOrder,
        NumaAware,
        Overcommit,
        Pdb,
        Predicates,
        Priority,
        Proportion,
        RandomNode,
        Rescheduling,
        ResourceQuotaPlugin,
        ResourceStrategyFit,
        Sla,
        TaskTopologyPlugin,
        Tdm,
        Usage,
    )
    return {plugin.name: plugin for plugin in ours}


def standing() -> tuple[type[Plugin], ...]:
    """Return the plugins that are active in every policy."""
    return (Budgets, Quotas, Guarantees, Protection, SelfProtectionPlugin, NodeBackoffPlugin)


def builtin_actions() -> dict[str, Callable[[Session], None]]:
    """Return our actions by their names in policies."""
    return {
        "enqueue": enqueue,
        "allocate": allocate,
        "preempt": preempt,
        "reclaim": preempt,
        "gangpreempt": preempt,
        "gangreclaim": preempt,
        "shuffle": shuffle,
        "defragment": defragment,
        "reserve": reserve,
        "backfill": backfill,
    }


def cycle_plugins(state: ClusterState, queue: SchedulingQueue, history: CycleHistory) -> tuple[CyclePlugin, ...]:
    """Return the features of the cycle in the order of their calls: ours, then third-party ones by entry point
    name.

    Raises PolicyError for an unusable feature of another package.
    """
    ours: tuple[CyclePlugin, ...] = (
        PastUse(state, history.history),
        PlaceholderClaims(state),
        AdmissionLapse(state),
        UnplaceableUnits(state, queue),
        BorrowedRoom(state, queue),
        RunTimeLimitEvictions(state, queue),
        Maintenance(state),
        RejectingNodes(state),
        StartReservations(state, queue),
        Collecting(state, queue),
        NodeRequests(state, queue),
        Defragmentation(),
    )
    names = {feature.name for feature in ours}
    offered: list[CyclePlugin] = []
    for where, kind in offered_cycle_plugins():
        if kind.name in names:
            raise PolicyError(f"{where}: feature {quoted(kind.name)} exists already")
        names.add(kind.name)
        try:
            offered.append(OfferedFeature(kind()))
        except Exception as error:
            raise PolicyError(f"{where} cannot be created: {type(error).__name__}: {error}") from error
    return (*ours, *offered)


def available_plugins() -> dict[str, type[Plugin]]:
    """Return all plugins by name, with those of installed packages.

    Raises PolicyError for an entry point that cannot be loaded, is not a plugin, or has a name in use.
    """
    # A fault in a feature is reported with the policy, before a scheduler is created.
    offered_cycle_plugins()
    plugins = builtin_plugins()
    for where, plugin in _offered(ENTRY_POINT_GROUP):
        if not (isinstance(plugin, type) and issubclass(plugin, Plugin)):
            raise PolicyError(f"{where} is not a phalanx Plugin class")
        if not isinstance(getattr(plugin, "name", None), str) or not plugin.name:
            raise PolicyError(
                f"{where}: its name is {quoted(getattr(plugin, 'name', ''))}; give it a name for policies"
            )
        if plugin.name in plugins:
            raise PolicyError(f"{where}: plugin {quoted(plugin.name)} exists already")
        plugins[plugin.name] = plugin
    return plugins


def offered_actions() -> dict[str, type[Action]]:
    """Return the actions of installed packages by name.

    Raises PolicyError for an entry point that cannot be loaded, is not an action, or has a name in use.
    """
    actions: dict[str, type[Action]] = {}
    for where, action in _offered(ACTION_ENTRY_POINT_GROUP):
        if not (isinstance(action, type) and issubclass(action, Action)):
            raise PolicyError(f"{where} is not a phalanx Action class")
        name = getattr(action, "name", "")
        if not isinstance(name, str) or not name or "," in name or name != name.strip():
            raise PolicyError(f"{where}: its name is {quoted(name)}; give it a single word for `actions:`")
        if name in actions or name in ACTION_ARGUMENTS or name in RETIRED_ACTIONS:
            raise PolicyError(f"{where}: action {quoted(name)} exists already")
        actions[name] = action
    return actions


def offered_cycle_plugins() -> list[tuple[str, type[CyclePlugin]]]:
    """Return (label of the entry point, class) of each cycle feature of installed packages.

    Raises PolicyError for an entry point that cannot be loaded or is not such a class.
    """
    features: list[tuple[str, type[CyclePlugin]]] = []
    for where, kind in _offered(CYCLE_ENTRY_POINT_GROUP):
        if not (isinstance(kind, type) and issubclass(kind, CyclePlugin)):
            raise PolicyError(f"{where} is not a phalanx CyclePlugin class")
        name = getattr(kind, "name", None)
        if not isinstance(name, str) or not name:
            raise PolicyError(f"{where}: its name is {quoted(name)}; give it a name for failure reports")
        if kind.reserved_room is not CyclePlugin.reserved_room:
            # The first feature that closes room decides, and its results affect every placement without checks.
            raise PolicyError(f"{where}: reserved_room is not available to other packages; use a plugin's `filter`")
        features.append((where, kind))
    return features


class InstalledFeature(msgspec.Struct, frozen=True):
    """Cycle feature of an installed package: its extension points, and the package by name and version."""

    name: str
    points: tuple[str, ...]
    distribution: str


def installed_features() -> list[InstalledFeature]:
    """Return the features of installed packages in the order of their calls. Raises PolicyError."""
    entries = sorted(entry_points(group=CYCLE_ENTRY_POINT_GROUP), key=lambda entry: entry.name)
    return [
        InstalledFeature(kind.name, overridden_points(kind), f"{dist.name} {dist.version}" if dist else "")
        for (_, kind), dist in zip(offered_cycle_plugins(), (entry.dist for entry in entries), strict=True)
    ]


def entry_points(group: str) -> metadata.EntryPoints:
    """Return the entry points of `group` on the import path.

    Packages that are installed later count after a restart.
    """
    selected: metadata.EntryPoints = _entry_points(tuple(sys.path)).select(group=group)
    return selected


@lru_cache(maxsize=2)
def _entry_points(path: tuple[str, ...]) -> Any:
    # Each policy needs several groups. Reading the metadata of all packages for each took 90 % of the time to load
    # a policy.
    return metadata.entry_points()


def _offered(group: str) -> Iterator[tuple[str, object]]:
    """Yield (label of the entry point, loaded object), sorted by name."""
    for entry in sorted(entry_points(group=group), key=lambda entry: entry.name):
        where = f"entry point {entry.name} ({entry.value})"
        try:
            loaded = entry.load()
        except Exception as error:
            raise PolicyError(f"{where} cannot be loaded: {error}") from error
        yield where, loaded

"""Which plugins and actions there are: ours, those of installed packages, and those that a later version brings."""

from __future__ import annotations

from importlib.metadata import entry_points

from phalanx.scheduling.errors import PolicyError
from phalanx.scheduling.plugin import Plugin

ENTRY_POINT_GROUP = "phalanx.plugins"

# Volcano's vocabulary that has no counterpart yet: name -> argument keys (`*` ends a prefix). Such names are
# accepted, so that an existing policy file works, and reported as not yet active.
PLANNED_PLUGINS: dict[str, tuple[str, ...]] = {
    "drf": ("drf.*",),
    "proportion": (),
    "capacity": ("capacity.*", "ancestorReclaimLevel"),
    "sla": ("sla-waiting-time",),
    "tdm": ("tdm.*",),
    "cdp": (),
    "pdb": (),
    "resourcequota": (),
    "nodegroup": ("strict", "enablePreferredOrder"),
    "numa-aware": ("weight",),
    "task-topology": ("task-topology.weight", "weight"),
    "network-topology-aware": ("weight", "hypernode.*"),
    "usage": ("usage.*", "cpu.*", "memory.*", "thresholds", "estimator"),
    "rescheduling": ("interval", "metricsPeriod", "strategies"),
    "extender": ("extender.*",),
    "deviceshare": ("deviceshare.*",),
}

ACTIVE_ACTIONS = ("enqueue", "allocate", "backfill")
# Action -> argument keys that `configurations:` may carry.
ACTION_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "enqueue": ("overcommit-factor",),
    "allocate": ("predicateErrorCacheEnable", "enablePredicateErrorCache"),
    "backfill": ("predicateErrorCacheEnable", "enablePredicateErrorCache"),
    "preempt": (
        "enableTopologyAwarePreemption",
        "topologyAwarePreemptWorkerNum",
        "minCandidateNodesPercentage",
        "minCandidateNodesAbsolute",
        "maxCandidateNodesAbsolute",
        "predicateErrorCacheEnable",
        "enablePredicateErrorCache",
        "singleNodePreemption",
    ),
    "reclaim": ("predicateErrorCacheEnable", "enablePredicateErrorCache", "singleNodePreemption"),
    "gangpreempt": ("allowWholeBundle",),
    "gangreclaim": ("allowWholeBundle",),
    "shuffle": (),
}


def builtin_plugins() -> dict[str, type[Plugin]]:
    # Imported here: the plugins speak of the session, which is built on this registry's pipeline.
    from phalanx.scheduling.plugins.binpack import Binpack
    from phalanx.scheduling.plugins.conformance import Conformance
    from phalanx.scheduling.plugins.gang import GangPlugin
    from phalanx.scheduling.plugins.nodeorder import NodeOrder
    from phalanx.scheduling.plugins.overcommit import Overcommit
    from phalanx.scheduling.plugins.predicates import Predicates
    from phalanx.scheduling.plugins.priority import Priority
    from phalanx.scheduling.plugins.resource_strategy_fit import ResourceStrategyFit

    ours: tuple[type[Plugin], ...] = (
        Binpack,
        Conformance,
        GangPlugin,
        NodeOrder,
        Overcommit,
        Predicates,
        Priority,
        ResourceStrategyFit,
    )
    return {plugin.name: plugin for plugin in ours}


def available_plugins() -> dict[str, type[Plugin]]:
    """Ours and those that installed packages offer. Raises PolicyError for an entry point that is no plugin."""
    plugins = builtin_plugins()
    for entry in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name):
        plugin = entry.load()
        if not (isinstance(plugin, type) and issubclass(plugin, Plugin)):
            raise PolicyError(f"entry point {entry.name} ({entry.value}) is not a phalanx Plugin class")
        plugins[plugin.name] = plugin
    return plugins

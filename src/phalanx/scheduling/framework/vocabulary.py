"""Volcano's words in policy files: switches, plugins, actions and arguments (master of August 2026, v1.16 alpha).

Existing policy files must work unchanged. Words without a counterpart are accepted and reported. In a tuple of
argument keys, a name that ends in `*` is a prefix.
"""

from __future__ import annotations

from types import MappingProxyType

# Switches of a plugin, and our extension points that each covers.
SWITCHES: MappingProxyType[str, tuple[str, ...]] = MappingProxyType(
    {
        "enableJobOrder": ("gang_order",),
        "enableTaskOrder": ("pod_order",),
        "enablePredicate": ("filter", "pre_bind_check", "max_copies", "explain", "pre_filter"),
        "enableNodeOrder": ("static_score", "score"),
        "enableJobEnqueued": ("admit", "admitted"),
        "enableBestNode": (),
        "enableHierarchy": (),
        "enableJobPipelined": (),
        "enableJobReady": (),
        "enableJobStarving": (),
        "enableNamespaceOrder": (),  # removed from Volcano, still in old files
        "enablePreemptable": (),  # see `eviction_options`: a veto is disabled only if every action disables it
        "enablePreemptive": (),
        "enableQueueOrder": ("queue_order",),
        "enableReclaimable": (),
        "enableReservedNodes": (),
        "enableTargetJob": (),
        "enabledAllocatable": ("limit",),
        "enabledClusterOrder": (),
        "enabledHyperNodeGradient": (),
        "enabledHyperNodeOrder": (),
        "enabledOverused": ("limit",),
        "enabledSubJobOrder": (),
        "enabledSubJobPipelined": (),
        "enabledSubJobReady": (),
        "enabledVictim": ("victims",),
    }
)

# The switch of a plugin that enables its vetoes in these actions.
VETO_SWITCHES: MappingProxyType[str, str] = MappingProxyType(
    {
        "preempt": "enablePreemptable",
        "gangpreempt": "enablePreemptable",
        "reclaim": "enableReclaimable",
        "gangreclaim": "enableReclaimable",
        "shuffle": "enabledVictim",
        "defragment": "enabledVictim",
    }
)

_ERROR_CACHE = "predicateErrorCacheEnable"
_PREEMPT = (
    "enableTopologyAwarePreemption",
    "maxCandidateNodesAbsolute",
    "minCandidateNodesAbsolute",
    "minCandidateNodesPercentage",
    "topologyAwarePreemptWorkerNum",
)
SINGLE_NODE = "singleNodePreemption"
WHOLE_GANGS = "allowWholeBundle"
FOREIGN_VICTIMS = "phalanx.foreignVictims"
BEST_EFFORT = "phalanx.bestEffortEvicts"
EVICTION_ARGUMENTS = (FOREIGN_VICTIMS, SINGLE_NODE, WHOLE_GANGS, BEST_EFFORT)
"""Arguments with effect; all four evicting actions accept them."""

RESERVE = "reserve"
RESERVE_ARGUMENTS = (
    "depth",
    "minAgeSeconds",
    "minPriority",
    "backfillOrder",
    "startDelaySeconds",
    "forecastSeconds",
    "waitInsteadSeconds",
    "maxLostWorkPercent",
    "collectAfter",
)

DEFRAGMENT = "defragment"
DEFRAGMENT_ARGUMENTS = (
    "schedule",
    "timeZone",
    "duration",
    "interval",
    "maxEvictionsPerRun",
    "maxEvictionsPerHour",
    "maxEvictionsPerGang",
    "wholeGangs",
    "minRunSeconds",
    "minRemainingSeconds",
    "maxLostSeconds",
    "maxLostWorkPercent",
    "thresholdPriority",
)

# Accepted argument keys of actions under `configurations:`. Keys without a counterpart have no effect: a failed
# filter is never repeated, every node is considered, and the factor of `enqueue` is an argument of plugin
# `overcommit`.
ACTION_ARGUMENTS: MappingProxyType[str, tuple[str, ...]] = MappingProxyType(
    {
        "allocate": (_ERROR_CACHE,),
        "backfill": (_ERROR_CACHE,),
        DEFRAGMENT: DEFRAGMENT_ARGUMENTS,
        "enqueue": ("overcommit-factor",),
        "gangpreempt": (*EVICTION_ARGUMENTS, "maxDomains"),
        "gangreclaim": (*EVICTION_ARGUMENTS, "maxDomains"),
        "preempt": (*EVICTION_ARGUMENTS, _ERROR_CACHE, *_PREEMPT),
        "reclaim": (*EVICTION_ARGUMENTS, _ERROR_CACHE),
        RESERVE: RESERVE_ARGUMENTS,
        "shuffle": (),
    }
)

# Names removed from Volcano but still in old files, with a message for each.
_SLA = "Volcano replaced it with plugin sla, which orders and admits groups by their waiting time"
RETIRED_ACTIONS: MappingProxyType[str, str] = MappingProxyType({"elect": _SLA})
RETIRED_PLUGINS: MappingProxyType[str, str] = MappingProxyType({"reservation": _SLA})

"""Volcano's words for policies: switches, plugins, actions and arguments (master of August 2026, v1.16 alpha).

An existing policy file must work as it is. What we have no counterpart for yet is accepted and reported.
In a tuple of argument keys a name that ends in `*` stands for a prefix.
"""

from __future__ import annotations

from types import MappingProxyType

# A plugin's switches, and the extension points of ours that each one covers.
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
        "enableNamespaceOrder": (),  # gone from Volcano, still in old files
        "enablePreemptable": (),  # see `eviction_options`: a veto is off only where every action leaves it out
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

# Which switch of a plugin says whether its vetoes count when these actions choose victims.
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
"""What we act on; all four actions that evict for others take them."""

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

# Action -> the argument keys that `configurations:` may carry. The others have no effect: a failed filter is never
# asked twice anyway, every node is looked at, and the factor of `enqueue` has moved to the plugin `overcommit`.
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

# Gone from Volcano, still in old files: what is said about each.
_SLA = "Volcano gave it up for the plugin sla, which orders and lets in by how long a group waits"
RETIRED_ACTIONS: MappingProxyType[str, str] = MappingProxyType({"elect": _SLA})
RETIRED_PLUGINS: MappingProxyType[str, str] = MappingProxyType({"reservation": _SLA})

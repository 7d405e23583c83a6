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
        "enablePredicate": ("filter", "explain", "refuse"),
        "enableNodeOrder": ("preference", "score"),
        "enableJobEnqueued": ("admit", "admitted"),
        "enableBestNode": (),
        "enableHierarchy": (),
        "enableJobPipelined": (),
        "enableJobReady": (),
        "enableJobStarving": (),
        "enableNamespaceOrder": (),  # gone from Volcano, still in old files
        "enablePreemptable": (),
        "enablePreemptive": (),
        "enableQueueOrder": ("queue_order",),
        "enableReclaimable": (),
        "enableReservedNodes": (),
        "enableTargetJob": (),
        "enabledAllocatable": ("ceiling",),
        "enabledClusterOrder": (),
        "enabledHyperNodeGradient": (),
        "enabledHyperNodeOrder": (),
        "enabledOverused": ("ceiling",),
        "enabledSubJobOrder": (),
        "enabledSubJobPipelined": (),
        "enabledSubJobReady": (),
        "enabledVictim": (),
    }
)

# Plugins that have no counterpart yet.
PLANNED_PLUGINS: MappingProxyType[str, tuple[str, ...]] = MappingProxyType(
    {
        "cdp": (),
        "deviceshare": (
            "deviceshare.AscendHAMiVNPUEnable",
            "deviceshare.AscendMindClusterVNPUEnable",
            "deviceshare.GPUExclusiveRules",
            "deviceshare.GPUNumberEnable",
            "deviceshare.GPUSharingEnable",
            "deviceshare.KnownGeometriesCMName",
            "deviceshare.KnownGeometriesCMNamespace",
            "deviceshare.NodeLockEnable",
            "deviceshare.SchedulePolicy",
            "deviceshare.ScheduleWeight",
            "deviceshare.VGPUEnable",
        ),
        "extender": (
            "extender.allocateFuncVerb",
            "extender.deallocateFuncVerb",
            "extender.httpTimeout",
            "extender.ignorable",
            "extender.jobEnqueueableVerb",
            "extender.jobEnqueuedVerb",
            "extender.jobReadyVerb",
            "extender.managedResources",
            "extender.onSessionCloseVerb",
            "extender.onSessionOpenVerb",
            "extender.predicateVerb",
            "extender.preemptableVerb",
            "extender.prioritizeVerb",
            "extender.queueOverusedVerb",
            "extender.reclaimableVerb",
            "extender.urlPrefix",
        ),
        "network-topology-aware": (
            "hypernode.binpack.cpu",
            "hypernode.binpack.memory",
            "hypernode.binpack.normal-pod.enable",
            "hypernode.binpack.normal-pod.fading",
            "hypernode.binpack.resources",
            "hypernode.binpack.resources.*",
            "hypernode.gradient.evict.max-hypernodes",
            "weight",
        ),
        "nodegroup": ("enablePreferredOrder", "strict"),
        "numa-aware": ("weight",),
        "pdb": (),
        "rescheduling": ("interval", "labelSelector", "metricsPeriod", "queueSelector", "strategies"),
        "task-topology": ("task-topology.weight",),
        "tdm": ("tdm.evict.period", "tdm.revocable-zone.*"),
        "usage": ("cpu.weight", "estimator", "memory.weight", "thresholds", "type", "usage.weight"),
    }
)

ACTIVE_ACTIONS = ("enqueue", "allocate", "backfill")

_ERROR_CACHE = "predicateErrorCacheEnable"
_PREEMPT = (
    "enableTopologyAwarePreemption",
    "maxCandidateNodesAbsolute",
    "minCandidateNodesAbsolute",
    "minCandidateNodesPercentage",
    "topologyAwarePreemptWorkerNum",
)
# Action -> the argument keys that `configurations:` may carry. None of them matters to an active action: a failed
# filter is never asked twice anyway, and the factor of `enqueue` has moved to the plugin `overcommit`.
ACTION_ARGUMENTS: MappingProxyType[str, tuple[str, ...]] = MappingProxyType(
    {
        "allocate": (_ERROR_CACHE,),
        "backfill": (_ERROR_CACHE,),
        "enqueue": ("overcommit-factor",),
        "gangpreempt": ("allowWholeBundle", "maxDomains"),
        "gangreclaim": ("allowWholeBundle", "maxDomains"),
        "preempt": (_ERROR_CACHE, *_PREEMPT),
        "reclaim": (_ERROR_CACHE,),
        "shuffle": (),
    }
)

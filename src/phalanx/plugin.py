"""Public interface of plugins and actions: base classes, inputs and result types.

Names here are stable; a name is deprecated for one release before its removal. docs/plugins.md explains them.
"""

from __future__ import annotations

from phalanx.cluster.accounts import AccountRecord, ChargePath
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.node_table import NodeTable
from phalanx.cluster.nodes.backoff import NodeBackoff
from phalanx.cluster.nodes.labels import Rows
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.resource_space import CPU_COLUMN, MEMORY_COLUMN, BoolArray, FloatArray, IntArray
from phalanx.model.account import AccountKey, Tree
from phalanx.model.decisions import EvictionReason
from phalanx.model.gang import GangKey
from phalanx.model.verdict import Verdict
from phalanx.scheduling.framework.action import Action
from phalanx.scheduling.framework.arguments import Arguments
from phalanx.scheduling.framework.capabilities import TopologySettings, UsageDecay
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.framework.extension_points import (
    AdmissionPlugin,
    EvictionPlugin,
    EvictVeto,
    FilterPlugin,
    LifecyclePlugin,
    OrderPlugin,
    QuotaPlugin,
    ReservationPlugin,
    ScorePlugin,
    SortKey,
    Victim,
    Vote,
)
from phalanx.scheduling.framework.inter_pod_rules import InterPodRules
from phalanx.scheduling.framework.load import Load
from phalanx.scheduling.framework.plugin import Plugin
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.framework.task_buckets import TaskBuckets
from phalanx.scheduling.framework.timers import Timers
from phalanx.scheduling.framework.view import AccountView, ActionView, PodPlacer, View, WaitingUnit
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.quota.limits import Limit
from phalanx.scheduling.session.cycle_plugin import Allocation, CyclePlugin, Guard, Turn
from phalanx.scheduling.session.session import Session

__all__ = [
    "CPU_COLUMN",
    "MEMORY_COLUMN",
    "AccountKey",
    "AccountRecord",
    "AccountView",
    "Action",
    "ActionView",
    "AdmissionPlugin",
    "Allocation",
    "Arguments",
    "BoolArray",
    "ChargePath",
    "ClassRecord",
    "CyclePlugin",
    "EvictVeto",
    "EvictionPlugin",
    "EvictionReason",
    "FilterPlugin",
    "FloatArray",
    "GangKey",
    "GangRecord",
    "Guard",
    "IntArray",
    "InterPodRules",
    "LifecyclePlugin",
    "Limit",
    "Load",
    "NodeBackoff",
    "NodeTable",
    "OrderPlugin",
    "Plugin",
    "PodPlacer",
    "PodRecord",
    "Policy",
    "PolicyError",
    "QueuedUnit",
    "QuotaPlugin",
    "ReservationPlugin",
    "Rows",
    "ScorePlugin",
    "Session",
    "SortKey",
    "TaskBuckets",
    "Timers",
    "TopologySettings",
    "Tree",
    "Turn",
    "UnitKey",
    "UsageDecay",
    "Verdict",
    "Victim",
    "View",
    "Vote",
    "WaitingUnit",
]

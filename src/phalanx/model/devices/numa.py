"""CPUs of a node by NUMA node, and the pods that use them (Volcano's Numatopology objects)."""

from __future__ import annotations

import enum

import msgspec


class NumaPolicy(enum.StrEnum):
    """Topology manager policies of the kubelet."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE = "single-numa-node"


AS_THE_NODE = "as-the-node"
"""Value of `PodClass.numa` for pods without a policy: their kubelet's policy applies."""


class NumaTopology(msgspec.Struct, frozen=True):
    """NUMA topology of one node: `cpus` and `free` are numbers of CPUs per NUMA node.

    `free` excludes CPUs that the kubelet reserves and CPUs of the pods in `assigned` (uids, and names with their
    namespaces). `pinned` kubelets assign exclusive CPUs to Guaranteed pods.
    """

    node: str
    policy: NumaPolicy
    pinned: bool
    cpus: tuple[int, ...]
    free: tuple[int, ...]
    assigned: frozenset[str] = frozenset()


class NumaTopologyGone(msgspec.Struct, frozen=True):
    node: str

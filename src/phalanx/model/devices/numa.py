"""CPUs by NUMA node, and who may have them (Volcano's Numatopology objects)."""

from __future__ import annotations

import enum

import msgspec


class NumaPolicy(enum.StrEnum):
    """The kubelet's policies of its topology manager."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE = "single-numa-node"


AS_THE_NODE = "as-the-node"
"""What `PodClass.numa` says of pods that state no policy: their kubelet's holds."""


class NumaTopology(msgspec.Struct, frozen=True):
    """One node's: `cpus` and `free` count CPUs per NUMA node. In `free` those are not that the kubelet keeps for
    itself, or that the pods in `assigned` have (uids, and names after their namespaces); `pinned` kubelets give
    Guaranteed pods whole CPUs of their own."""

    node: str
    policy: NumaPolicy
    pinned: bool
    cpus: tuple[int, ...]
    free: tuple[int, ...]
    assigned: frozenset[str] = frozenset()


class NumaTopologyGone(msgspec.Struct, frozen=True):
    node: str

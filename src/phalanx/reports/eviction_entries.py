"""Evictions for a waiting gang or pod as data, for the commands and the page."""

from __future__ import annotations

import msgspec


class PreviewedPod(msgspec.Struct, omit_defaults=True):
    """Pod that is evicted for a waiting gang or pod, or would be. If it terminates already, `since` is the time of
    its eviction and `until` the end of its grace period (RFC 3339)."""

    pod: str
    gang: str = ""
    node: str = ""
    priority: int = 0
    since: str = ""
    until: str = ""


class EvictionReasons(msgspec.Struct, omit_defaults=True):
    """Reason why some pods are evicted, or protected from eviction; `until` (RFC 3339) is when the last protection
    ends."""

    why: str
    pods: list[str]
    until: str = ""


class PreviewedCost(msgspec.Struct):
    """Cost of evictions: number of pods, gangs that lose their minimum, highest priority, pods evicted against a
    PodDisruptionBudget, and hours of work since the start or last checkpoint, summed over the pods."""

    pods: int
    gangs: int
    priority: int
    violations: int
    pod_hours: float


class NodeRoom(msgspec.Struct):
    node: str
    pods: int


class EvictionPreview(msgspec.Struct, omit_defaults=True):
    """Evictions for a waiting gang or pod.

    `state` is Leaving (victims are terminating), Due (the scheduler would evict them now) or Vain (evictions do not
    help; then `pods` are the pods that would have to be evicted). `rooms` are the nodes where the gang or pod would
    start, `held` is True if they are reserved for it, and `overtaken` lists the pods that lose a reserved node.
    `missing` is the shortage that remains without all other pods. After any of `changes` evictions are possible.
    `paced` are messages about queues and quotas with an eviction rate; their earlier evictions are known in part.
    """

    state: str
    message: str
    rooms: list[NodeRoom] = []
    held: bool = False
    overtaken: list[str] = []
    pods: list[PreviewedPod] = []
    reasons: list[EvictionReasons] = []
    cost: PreviewedCost | None = None
    missing: str = ""
    changes: list[str] = []
    paced: list[str] = []

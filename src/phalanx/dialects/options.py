"""What an operator can choose about the dialects."""

from __future__ import annotations

from typing import Literal

import msgspec

from phalanx.model.account import ADMINISTRATIVE_NAMESPACES, SYSTEM_NAMESPACE
from phalanx.model.gang import MatchPolicy


class StatedWorkload(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A kind of owners whose pods are a gang: the sum of the numbers at the paths `minimum` start together.

    A path is such as `spec.groups.*.replicas`. `plural` is only needed where it is not the kind with an s. Pods
    with equal values of the label `subgroup` start whole, `subgroup_size` is the path of their number.
    """

    api_version: str
    kind: str
    minimum: tuple[str, ...]
    plural: str = ""
    subgroup: str = ""
    subgroup_size: str = ""

    def __post_init__(self) -> None:
        paths = (*self.minimum, *filter(None, (self.subgroup_size,)))
        if not self.minimum or not all(path.startswith(("spec.", "status.")) for path in paths):
            raise ValueError(f"workloads: {self.kind}: write paths such as spec.replicas")
        if not self.kind or not self.api_version:
            raise ValueError("workloads: write the owner's apiVersion and kind")


class DialectOptions(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """`legacy_invalid_min: regular` lets a pod whose min-available label is invalid run on its own, as
    scheduler-plugins 0.18.9 did; by default it is held. `match_policies` overrides the defaults per dialect.
    `fail_on_any_member` calls a group Failed when any member has failed, as scheduler-plugins does. `user_label`
    and `user_annotation` are the keys under which pods say who is behind them, the label first.
    `gang_group_namespaces` are sets of namespaces whose gangs may name each other in gang groups ("*" stands for
    all); else gangs are tied within their namespace only. Koordinator's quotas and ACK's tree may claim namespaces
    other than their own where they stand in one of `quota_namespaces`, which administrators write only.
    `default_spread` wishes pods of Services and workloads that say nothing about it to be spread, as kube-scheduler
    does; it watches those. In `system_namespaces`, beside kube-system, pods and groups may be critical. Pods of the
    kinds of workloads `ungrouped` ("*": of all) are in no gang by their owner alone; `workloads` adds further
    kinds. With `enforces_run_times` pods are killed that run longer than their queue or their own word allows (it
    follows from the policy's phalanx.exceededRunTimes).
    """

    legacy_invalid_min: Literal["hold", "regular"] = "hold"
    match_policies: dict[str, MatchPolicy] = {}
    fail_on_any_member: bool = False
    user_label: str = ""
    user_annotation: str = ""
    default_spread: bool = True
    system_namespaces: tuple[str, ...] = ()
    gang_group_namespaces: tuple[frozenset[str], ...] = ()
    quota_namespaces: frozenset[str] = frozenset(ADMINISTRATIVE_NAMESPACES)
    ungrouped: frozenset[str] = frozenset()
    workloads: tuple[StatedWorkload, ...] = ()
    enforces_run_times: bool = False

    def is_system(self, namespace: str) -> bool:
        return namespace == SYSTEM_NAMESPACE or namespace in self.system_namespaces

    def may_tie(self, namespace: str, other: str) -> bool:
        """Whether gangs of the two namespaces may have to start together."""
        if namespace == other:
            return True
        return any({namespace, other} <= each or "*" in each for each in self.gang_group_namespaces)

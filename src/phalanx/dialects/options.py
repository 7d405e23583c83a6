"""What an operator can choose about the dialects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from phalanx.model.account import ADMINISTRATIVE_NAMESPACES, SYSTEM_NAMESPACE
from phalanx.model.gang import Dialect, MatchPolicy

# coscheduling.md, 1.5: what each system does where nobody states a policy. Native groups count as kube-scheduler
# does until they have been scheduled; a gang without a name is kube-batch's.
DEFAULT_MATCH_POLICIES: Mapping[Dialect, MatchPolicy] = {
    Dialect.NATIVE: MatchPolicy.UNTIL_SCHEDULED,
    Dialect.OWN: MatchPolicy.UNTIL_SCHEDULED,
    Dialect.X_K8S: MatchPolicy.WAITING_AND_RUNNING,
    Dialect.LIGHTWEIGHT: MatchPolicy.WAITING_AND_RUNNING,
    Dialect.SIGS: MatchPolicy.ONCE_SATISFIED,
    Dialect.SIGS_NAME: MatchPolicy.ONCE_SATISFIED,
    Dialect.KOORDINATOR: MatchPolicy.ONCE_SATISFIED,
    Dialect.KUBE_BATCH: MatchPolicy.WAITING_RUNNING_SUCCEEDED,
    Dialect.SHADOW: MatchPolicy.WAITING_RUNNING_SUCCEEDED,
}


class DialectOptions(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """`legacy_invalid_min: regular` lets a pod whose min-available label is invalid run on its own, as
    scheduler-plugins 0.18.9 did; by default it is held. `match_policies` overrides the defaults per dialect.
    `fail_on_any_member` calls a group Failed when any member has failed, as scheduler-plugins does. `user_label`
    and `user_annotation` are the keys under which pods say who is behind them, the label first.
    `bundle_namespaces` are sets of namespaces whose gangs may name each other in gang groups ("*" stands for all);
    else gangs are tied within their namespace only. Koordinator's quotas and ACK's tree may claim namespaces other
    than their own where they stand in one of `quota_namespaces`, which administrators write only. `default_spread`
    wishes pods of Services and workloads that say nothing about it to be spread, as kube-scheduler does; it
    watches those. In `system_namespaces`, beside kube-system, pods and groups may be critical.
    """

    legacy_invalid_min: Literal["hold", "regular"] = "hold"
    match_policies: dict[Dialect, MatchPolicy] = {}
    fail_on_any_member: bool = False
    user_label: str = ""
    user_annotation: str = ""
    default_spread: bool = True
    system_namespaces: tuple[str, ...] = ()
    bundle_namespaces: tuple[frozenset[str], ...] = ()
    quota_namespaces: frozenset[str] = frozenset(ADMINISTRATIVE_NAMESPACES)

    def is_system(self, namespace: str) -> bool:
        return namespace == SYSTEM_NAMESPACE or namespace in self.system_namespaces

    def match_policy(self, dialect: Dialect) -> MatchPolicy:
        return self.match_policies.get(dialect) or DEFAULT_MATCH_POLICIES[dialect]

    def may_tie(self, namespace: str, other: str) -> bool:
        """Whether gangs of the two namespaces may have to start together."""
        if namespace == other:
            return True
        return any({namespace, other} <= each or "*" in each for each in self.bundle_namespaces)

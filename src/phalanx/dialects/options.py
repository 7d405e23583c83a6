"""Options of the dialects that an operator configures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from phalanx.model.account import ADMINISTRATIVE_NAMESPACES, SYSTEM_NAMESPACE
from phalanx.model.gang import MatchPolicy
from phalanx.model.policy_names import FORMER_DIALECT_KEYS


class StatedWorkload(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A configured kind of owners whose pods form one gang per owner. The gang's minimum is the sum of the values
    at the paths `minimum`.

    A path is, for example, `spec.groups.*.replicas`. `plural` is only needed if it is not the kind with an "s".
    Pods with equal values of the label `subgroup` form a subgroup that starts as a whole; `subgroup_size` is the
    path of its size.
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
    """Options of all dialects.

    `legacy_invalid_min: regular` schedules a pod with an invalid min-available label on its own, as
    scheduler-plugins 0.18.9 did; by default it is held. `match_policies` overrides the defaults per dialect.
    `fail_on_any_member` sets the phase Failed when any member has failed, as scheduler-plugins does. `user_label`
    and `user_annotation` are the keys on pods that name the submitting user; the label has precedence.

    `gang_group_namespaces` are sets of namespaces within which gang groups can span namespaces ("*" matches
    all); by default gang groups stay within their namespace. Koordinator's quotas and ACK's tree can claim other
    namespaces only from one of `quota_namespaces`, to which only administrators have write access.

    `default_spread` spreads pods of Services and workloads that state no spread constraints, as kube-scheduler
    does; it needs a watch on these objects. In `system_namespaces`, beside kube-system, pods and groups can be
    critical. Pods of the workload kinds `ungrouped` ("*": all kinds) are in no gang because of their owner alone;
    `workloads` adds further kinds. `enforces_run_times` kills pods that exceed the run time of their queue or their
    own annotation (it follows from the policy's phalanx.exceededRunTimes).
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
        """Return whether gangs of the two namespaces can be in one gang group."""
        if namespace == other:
            return True
        return any(
            {namespace, other} <= namespaces or "*" in namespaces for namespaces in self.gang_group_namespaces
        )


def options_in_policy(text: str) -> DialectOptions:
    """Return the options in the text of a policy that a scheduler has accepted; the default ones if this version
    cannot read them."""
    from phalanx.model.text.yaml_text import decode_yaml

    try:
        document = decode_yaml(text) if text else None
    except ValueError:
        return DialectOptions()
    own = document.get("phalanx") if isinstance(document, Mapping) else None
    section = own.get("dialects") if isinstance(own, Mapping) else None
    if not isinstance(own, Mapping) or not isinstance(section, Mapping):
        return DialectOptions(enforces_run_times=isinstance(own, Mapping) and own.get("exceededRunTimes") == "kill")
    stated = {FORMER_DIALECT_KEYS.get(str(name), str(name)): value for name, value in section.items()}
    try:
        options = msgspec.convert(stated, DialectOptions)
    except msgspec.ValidationError:
        return DialectOptions()
    return msgspec.structs.replace(options, enforces_run_times=own.get("exceededRunTimes") == "kill")

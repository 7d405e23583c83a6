"""Grouping rules from a policy: the owner's kind, the paths of its minimum, and its subgroups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from phalanx.dialects.core import PodObject
from phalanx.dialects.gangs.declaration import controlling_owner
from phalanx.dialects.kinds import WantedKind
from phalanx.dialects.options import StatedWorkload
from phalanx.dialects.reader import MAX_WHOLE, is_whole, show
from phalanx.dialects.workloads.rule import (
    Membership,
    OwnerFieldError,
    OwnerReader,
    WorkloadRule,
    WorkloadSize,
    by_owner,
    one_gang,
)
from phalanx.model.topology import SubgroupRule


def stated_rule(stated: StatedWorkload) -> WorkloadRule:
    group, _, version = stated.api_version.rpartition("/")
    kind = WantedKind(group, stated.plural or f"{stated.kind.lower()}s", stated.kind, (version,))
    return WorkloadRule(
        f"{stated.kind}.{group}" if group else stated.kind,
        partial(_member, kind),
        controllers=((group, stated.kind),),
        owner=kind,
        sizes=partial(_sizes, stated),
    )


def _member(kind: WantedKind, pod: PodObject) -> Membership | None:
    owner = controlling_owner(pod.metadata)
    if owner is None or owner.kind != kind.kind:
        return None
    gang = by_owner(owner.kind, owner.name, owner.uid)
    return Membership(gang, f"{owner.kind} {owner.name}", kind=(kind.group, kind.plural))


def _sizes(stated: StatedWorkload, owner: OwnerReader) -> tuple[WorkloadSize, ...]:
    total = sum(_sum(owner, path) for path in stated.minimum)
    subgroups: tuple[SubgroupRule, ...] = ()
    if stated.subgroup:
        size = max(1, _sum(owner, stated.subgroup_size)) if stated.subgroup_size else 1
        subgroups = (SubgroupRule(stated.subgroup, keys=(stated.subgroup,), size=size),)
    return one_gang(owner, stated.kind, {"": total}, subgroups)


def _sum(owner: OwnerReader, path: str) -> int:
    """Return the sum of all numbers at a path in an owner's object, in which `*` matches every element of a list or
    object."""
    values: list[Any] = [{"spec": owner.spec, "status": owner.status}]
    for step in path.split("."):
        values = [value for value in values for value in _below(value, step)]
    for value in values:
        if not is_whole(value) or not 0 <= value <= MAX_WHOLE:
            raise OwnerFieldError(f"{path} is {show(value)}; write a whole number of at least 0, such as 3")
    return sum(values)


def _below(value: Any, step: str) -> Iterable[Any]:
    if step == "*":
        return value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return (value[step],) if isinstance(value, Mapping) and value.get(step) is not None else ()

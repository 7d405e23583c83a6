"""What a dialect is: one family of APIs in which gangs, queues and quotas are declared, as one object."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.resources.abc import Traversable
from typing import Any

import msgspec

from phalanx.dialects.enricher import PodEnricher
from phalanx.dialects.gangs.group_spec import GroupSpec
from phalanx.dialects.gangs.naming import GangNaming
from phalanx.dialects.gangs.status_input import GroupStatusInput
from phalanx.dialects.kinds import ServedKind, WantedKind
from phalanx.dialects.quotas.account_spec import AccountSpec
from phalanx.dialects.quotas.usage_status import UsageInput
from phalanx.dialects.reader import Document
from phalanx.dialects.warnings import ObjectWarnings
from phalanx.dialects.workloads.rule import WorkloadRule

Status = dict[str, Any]

READ = ("get", "list", "watch")


class AccessRule(msgspec.Struct, frozen=True):
    """Rights that the scheduler's ClusterRole needs."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...] = READ


class GroupKind(msgspec.Struct, frozen=True):
    """A kind of objects that declare gangs.

    `read` never raises for bad fields. `naming` is how pods name such an object. `status` gives the fields of the
    status as they should be, None where nothing is to be said; it is sent as a `strategic` merge patch where the
    API knows one. Queues count groups with `queue_counts` by their phase. Those with `says_short` are told by an
    event when members are lost and none waits; `waiting_reason` is that of events about groups that wait for a
    quota or a turn, or whose members are all gated ("": none for these, else the verdict's own code). With
    `says_eviction` a condition tells that a group is evicted as a whole. The annotation `hypernode` names the
    domain of the network in which all members are.
    """

    kind: WantedKind
    read: Callable[[ServedKind, Document], tuple[GroupSpec, ...]]
    naming: GangNaming
    status: Callable[[GroupStatusInput], Status | None] | None = None
    strategic: bool = False
    queue_counts: bool = False
    says_short: bool = True
    waiting_reason: str = ""
    says_eviction: bool = False
    hypernode: str = ""


class AccountKind(msgspec.Struct, frozen=True):
    """A kind of objects that declare queues or quotas; `status` gives the fields of the status that are wrong."""

    kind: WantedKind
    read: Callable[[ServedKind, Document], AccountSpec] | None = None
    status: Callable[[UsageInput], Status] | None = None


def no_enrichers(warnings: ObjectWarnings) -> Iterable[PodEnricher]:
    return ()


class Dialect(msgspec.Struct, frozen=True, eq=False):
    """`namings` are the ways in which pods name gangs, `enrichers` what its further objects decide about pods.
    `definitions` is a directory with the YAML of the kinds that `phalanx install` brings; API groups that nobody
    develops any more are `retired`. `workloads` are rules for pods that name no gang and have one by their owner.
    """

    name: str
    namings: tuple[GangNaming, ...] = ()
    groups: tuple[GroupKind, ...] = ()
    accounts: tuple[AccountKind, ...] = ()
    enrichers: Callable[[ObjectWarnings], Iterable[PodEnricher]] = no_enrichers
    access: tuple[AccessRule, ...] = ()
    definitions: Traversable | None = None
    retired: tuple[str, ...] = ()
    workloads: tuple[WorkloadRule, ...] = ()

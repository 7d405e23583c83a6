"""`Dialect`: one family of APIs that declare gangs, queues and quotas, as one object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
    """Permissions on a dialect's API resources that the scheduler's ClusterRole needs."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...] = READ


class GroupKind(msgspec.Struct, frozen=True):
    """A kind of objects that declare gangs.

    `read` never raises for invalid fields. `naming` is how pods refer to such an object. `status` returns the
    desired status fields, None for no status; they are sent as a `strategic` merge patch where the API supports it.
    With `names_owners`, the status names the owners of the oldest member. With `queue_counts`, queues report the
    number of groups by phase. With `says_short`, an event reports lost members of a group of which no member is
    pending. `waiting_reason` is the reason of events about groups that wait for a quota or their turn, or have
    gated members only ("": no event for these, the verdict's code for other groups). With `says_eviction`, a
    condition reports the eviction of the whole group. `hypernode` is the annotation that names the network domain
    of all members. `restate` returns a gang of `read` for an object that has another status, and no other change;
    without it, such an object is read again.
    """

    kind: WantedKind
    read: Callable[[ServedKind, Document], tuple[GroupSpec, ...]]
    naming: GangNaming
    status: Callable[[GroupStatusInput], Status | None] | None = None
    strategic: bool = False
    names_owners: bool = False
    queue_counts: bool = False
    says_short: bool = True
    waiting_reason: str = ""
    says_eviction: bool = False
    hypernode: str = ""
    restate: Callable[[GroupSpec, Mapping[str, Any]], GroupSpec] | None = None


class AccountKind(msgspec.Struct, frozen=True):
    """A kind of objects that declare queues or quotas; `status` returns the status fields that need an update."""

    kind: WantedKind
    read: Callable[[ServedKind, Document], AccountSpec] | None = None
    status: Callable[[UsageInput], Status] | None = None


def no_enrichers(warnings: ObjectWarnings) -> Iterable[PodEnricher]:
    return ()


class Dialect(msgspec.Struct, frozen=True, eq=False):
    """One family of APIs. `namings` are the ways in which pods refer to gangs. `enrichers` apply the dialect's
    other objects to pods. `definitions` is a directory with the YAML of the CRDs that `phalanx install` applies.
    API groups without further development are `retired`. `workloads` are rules that assign pods without a gang of
    their own to the gang of their owner.
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

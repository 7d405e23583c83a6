"""The dialects that there are: ours in one tuple, and those that installed packages offer."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points

from phalanx.dialects.dialect import Dialect, GroupKind, Status
from phalanx.dialects.families.koordinator import KOORDINATOR_DIALECT
from phalanx.dialects.families.kube_batch import KUBE_BATCH_DIALECT
from phalanx.dialects.families.kueue import KUEUE_DIALECT
from phalanx.dialects.families.native import NATIVE_DIALECT
from phalanx.dialects.families.operators import WORKLOADS_DIALECT
from phalanx.dialects.families.own import OWN_DIALECT
from phalanx.dialects.families.scheduler_plugins import SCHEDULER_PLUGINS_DIALECT
from phalanx.dialects.families.volcano import VOLCANO_DIALECT
from phalanx.dialects.gangs.declaration import GangDeclarations
from phalanx.dialects.gangs.group_spec import GroupSpec
from phalanx.dialects.gangs.naming import GangNaming
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.quotas.account_spec import AccountSpec
from phalanx.dialects.quotas.usage_status import UsageInput
from phalanx.dialects.reader import Document
from phalanx.dialects.warnings import ObjectWarnings
from phalanx.model.gang import GroupRef

log = logging.getLogger(__name__)

ENTRY_POINT_GROUP = "phalanx.dialects"

# Of objects of one name that declare a gang that of the first dialect holds, if the pods do not mean another.
BUILT_IN: tuple[Dialect, ...] = (
    SCHEDULER_PLUGINS_DIALECT,
    OWN_DIALECT,
    KOORDINATOR_DIALECT,
    VOLCANO_DIALECT,
    KUBE_BATCH_DIALECT,
    KUEUE_DIALECT,
    NATIVE_DIALECT,
    WORKLOADS_DIALECT,
)


class Dialects:
    """Several dialects as one; `declarations` reads what pods say."""

    def __init__(self, dialects: Sequence[Dialect] = BUILT_IN) -> None:
        self.all = tuple(dialects)
        self.namings = tuple(naming for dialect in dialects for naming in dialect.namings)
        self.declarations = GangDeclarations(self.namings)
        self.groups = {(each.kind.group, each.kind.plural): each for dialect in dialects for each in dialect.groups}
        self.accounts = {
            (each.kind.group, each.kind.plural): each for dialect in dialects for each in dialect.accounts
        }
        # By API group, in the order of preference: the way in which pods mean its objects first.
        self.naming_of: Mapping[str, GangNaming] = {each.kind.group: each.naming for each in self.groups.values()}

    def group_of(self, ref: GroupRef) -> GroupKind:
        """The kind of an object that declares a gang."""
        return self.groups[ref.group, ref.plural]

    def read_group(self, kind: ServedKind, document: Document) -> tuple[GroupSpec, ...]:
        """What one object declares. Never raises for bad fields."""
        return self.groups[kind.group, kind.plural].read(kind, document)

    def read_account(self, kind: ServedKind, document: Document) -> AccountSpec:
        """What one object declares by itself (a profile does not: ProfileBook). Never raises for bad fields."""
        read = self.accounts[kind.group, kind.plural].read
        assert read is not None, kind
        return read(kind, document)

    def usage_status(self, usage: UsageInput) -> Status:
        """The fields of the status of a queue or quota that are not true, as they should be."""
        source = usage.account.source
        kind = self.accounts.get((source.group, source.plural)) if source is not None else None
        return kind.status(usage) if kind is not None and kind.status is not None else {}


@cache
def installed_dialects() -> tuple[Dialect, ...]:
    """Ours and those that installed packages offer. One that cannot be used is told and left out."""
    dialects = list(BUILT_IN)
    for where, offered in _offered():
        try:
            fault = _fault(offered, dialects)
        except Exception as error:
            fault = f"it cannot be used: {type(error).__name__}: {error}"
        if fault:
            log.error("%s is left out: %s", where, fault)
        else:
            assert isinstance(offered, Dialect)
            dialects.append(offered)
    return tuple(dialects)


def _offered() -> Iterator[tuple[str, object]]:
    """(a phrase for the entry point, what it loads), in order of their names."""
    for entry in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name):
        where = f"dialect {entry.name} ({entry.value})"
        try:
            found = entry.load()
        except Exception as error:
            log.error("%s is left out: it cannot be loaded: %s", where, error)
            continue
        yield where, found


def _fault(offered: object, others: Iterable[Dialect]) -> str:
    """What keeps a dialect from being used beside others, "" if nothing does."""
    if not isinstance(offered, Dialect):
        return "it is no phalanx.dialects.dialect.Dialect"
    for words in (_names, _keys, _kinds):
        taken = {word: other.name for other in others for word in words(other)}
        for word in words(offered):
            if word in taken:
                return f"{word} belongs to the dialect {taken[word]!r} already"
    offered.enrichers(ObjectWarnings())
    return ""


def _names(dialect: Dialect) -> list[str]:
    return [f"the name {dialect.name!r}", *(f"the naming {each.rules.name!r}" for each in dialect.namings)]


def _keys(dialect: Dialect) -> list[str]:
    return [f"the key {key}" for naming in dialect.namings for key in (*naming.labels, *naming.annotations)]


def _kinds(dialect: Dialect) -> list[str]:
    kinds = [*(each.kind for each in dialect.groups), *(each.kind for each in dialect.accounts)]
    return [f"the kind {kind.plural}.{kind.group}" for kind in kinds]

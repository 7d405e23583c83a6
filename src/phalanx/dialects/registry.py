"""Registry of dialects: the built-in ones in one tuple, and those of installed packages."""

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
from phalanx.model.text.decoding import quoted

log = logging.getLogger(__name__)

ENTRY_POINT_GROUP = "phalanx.dialects"

# When objects of one name declare a gang, the first dialect here has precedence, unless the pods choose another.
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
    """Several dialects in the form of one; `declarations` reads the gang declarations of pods."""

    def __init__(self, dialects: Sequence[Dialect] = BUILT_IN) -> None:
        self.all = tuple(dialects)
        self.namings = tuple(naming for dialect in dialects for naming in dialect.namings)
        self.declarations = GangDeclarations(self.namings)
        self.groups = {
            (group.kind.group, group.kind.plural): group for dialect in dialects for group in dialect.groups
        }
        self.accounts = {
            (account.kind.group, account.kind.plural): account
            for dialect in dialects
            for account in dialect.accounts
        }
        # Naming rules by API group, in order of preference.
        self.naming_of: Mapping[str, GangNaming] = {
            group.kind.group: group.naming for group in self.groups.values()
        }

    def group_of(self, ref: GroupRef) -> GroupKind:
        """Return the `GroupKind` of an object that declares a gang."""
        return self.groups[ref.group, ref.plural]

    def read_group(self, kind: ServedKind, document: Document) -> tuple[GroupSpec, ...]:
        """Return the gangs that one object declares. Never raises for invalid fields."""
        return self.groups[kind.group, kind.plural].read(kind, document)

    def read_account(self, kind: ServedKind, document: Document) -> AccountSpec:
        """Return the queues and quotas that one object declares by itself (profiles need `QuotaProfileIndex`).
        Never raises for invalid fields."""
        read = self.accounts[kind.group, kind.plural].read
        assert read is not None, kind
        return read(kind, document)

    def usage_status(self, usage: UsageInput) -> Status:
        """Return the status fields of a queue or quota that need an update."""
        source = usage.account.source
        kind = self.accounts.get((source.group, source.plural)) if source is not None else None
        return kind.status(usage) if kind is not None and kind.status is not None else {}


@cache
def installed_dialects() -> tuple[Dialect, ...]:
    """Return the built-in dialects and those of installed packages. An unusable dialect is logged and skipped."""
    dialects = list(BUILT_IN)
    for where, offered in _offered():
        try:
            fault = _fault(offered, dialects)
        except Exception as error:
            fault = f"it cannot be used: {type(error).__name__}: {error}"
        if fault:
            log.error("%s is ignored: %s", where, fault)
        else:
            assert isinstance(offered, Dialect)
            dialects.append(offered)
    return tuple(dialects)


def _offered() -> Iterator[tuple[str, object]]:
    """Yield the dialects of installed packages as (description of the entry point, loaded object), sorted by
    name."""
    for entry in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name):
        where = f"dialect {entry.name} ({entry.value})"
        try:
            dialect = entry.load()
        except Exception as error:
            log.error("%s is ignored: it cannot be loaded: %s", where, error)
            continue
        yield where, dialect


def _fault(offered: object, dialects: Iterable[Dialect]) -> str:
    """Return the reason why a dialect cannot be used beside the given ones; "" if it can."""
    if not isinstance(offered, Dialect):
        return "it is not a phalanx.dialects.dialect.Dialect"
    for claims in (_names, _keys, _kinds):
        owners = {claim: dialect.name for dialect in dialects for claim in claims(dialect)}
        for claim in claims(offered):
            if claim in owners:
                return f"{claim} belongs to the dialect {quoted(owners[claim])} already"
    offered.enrichers(ObjectWarnings())
    return ""


def _names(dialect: Dialect) -> list[str]:
    return [
        f"the name {quoted(dialect.name)}",
        *(f"the naming {quoted(naming.rules.name)}" for naming in dialect.namings),
    ]


def _keys(dialect: Dialect) -> list[str]:
    return [f"the key {key}" for naming in dialect.namings for key in (*naming.labels, *naming.annotations)]


def _kinds(dialect: Dialect) -> list[str]:
    kinds = [*(declared.kind for declared in dialect.groups), *(declared.kind for declared in dialect.accounts)]
    return [f"the kind {kind.plural}.{kind.group}" for kind in kinds]

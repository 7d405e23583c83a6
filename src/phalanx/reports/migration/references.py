"""References between examined objects: parent queues and quotas, queues of PodGroups, and PriorityClasses.

Missing targets are reported in the scheduler's own words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from phalanx.admission.fields import mapping
from phalanx.cluster.account_paths import parent_not_found
from phalanx.cluster.network.hypernodes import HyperNodeTree
from phalanx.cluster.nodes.rows import NodeRows
from phalanx.cluster.resource_space import ResourceSpace
from phalanx.dialects.gangs.group_spec import GroupSpec
from phalanx.dialects.gangs.resolver import priority_class_not_found
from phalanx.dialects.pods.evictability import SYSTEM_CLASSES
from phalanx.dialects.quotas.koordinator_quotas import PARENT
from phalanx.dialects.reader import Document, describe
from phalanx.jobs.spec import CronJob, Job, JobSpec, JobTemplate
from phalanx.model.account import DEFAULT_QUEUE, ROOT_QUEUE, Account, AccountKey, Tree
from phalanx.model.events import AccountRemoved, AccountUpdated, HyperNodeUpdated
from phalanx.model.gang import GroupRef
from phalanx.model.topology import HyperNode
from phalanx.reports.migration.findings import FieldFinding, MigrationVerdict
from phalanx.reports.migration.readers import spelled
from phalanx.status.warnings.orphaned_accounts import CHARGES_NOTHING

_PARENTS = {Tree.QUEUE: "spec.parent", Tree.KOORDINATOR: spelled(("metadata", "labels", PARENT))}
_KINDS = {Tree.QUEUE: "Queue", Tree.KOORDINATOR: "ElasticQuota"}
# Accounts that the scheduler or the cluster creates itself.
_ALWAYS = {AccountKey(Tree.QUEUE, ROOT_QUEUE), AccountKey(Tree.QUEUE, DEFAULT_QUEUE)}


class _Names(msgspec.Struct, frozen=True):
    """Queue and PriorityClass that an object names ("" for none), in fields below `place`."""

    ref: GroupRef
    place: str
    queue: str
    priority_class: str


class References:
    """Collector of references between examined objects. Missing targets are determined after all objects are added.

    `partial` names kinds that were read only in part: their objects are never reported as missing.
    """

    def __init__(self) -> None:
        self.partial: set[str] = set()
        self._accounts: dict[AccountKey, Account] = {}
        self._classes: set[str] = set()
        # Keyed by the index of the finding that the entry belongs to.
        self._parents: dict[int, AccountKey] = {}
        self._names: dict[int, _Names] = {}
        self._hypernodes: dict[str, tuple[int, HyperNode, Document]] = {}

    def add_class(self, document: Document) -> None:
        self._classes.add(str(mapping(document.get("metadata")).get("name")))

    def add(self, place: int, document: Document, facts: object) -> None:
        """Add the references in an object's decoded form; `place` is the index of the object's finding."""
        names = _names_of(document, facts)
        if names is not None:
            self._names[place] = names
        for event in facts if isinstance(facts, list) else ():
            if isinstance(event, HyperNodeUpdated):
                self._hypernodes[event.hypernode.name] = place, event.hypernode, document

    def add_accounts(self, place: int, document: Document, events: Iterable[object]) -> None:
        """Apply an object's events about queues and quotas; `place` is the index of the object's finding."""
        metadata = mapping(document.get("metadata"))
        name = (str(document.get("kind")), str(metadata.get("namespace") or ""), str(metadata.get("name")))
        for event in events:
            if isinstance(event, AccountUpdated):
                account, source = event.account, event.account.source
                self._accounts[account.key] = account
                if source is not None and (source.kind, source.namespace, source.name) == name:
                    self._parents[place] = account.key
            elif isinstance(event, AccountRemoved):
                self._accounts.pop(event.key, None)

    def missing(self) -> Iterator[tuple[int, FieldFinding]]:
        for place, key in self._parents.items():
            account = self._accounts.get(key)
            parent = account.parent if account is not None else None
            if account is None or parent is None or _KINDS.get(key.tree, "") in {"", *self.partial}:
                continue
            if parent not in self._accounts and parent not in _ALWAYS:
                message = f"{parent_not_found(account.label, parent).message}; {CHARGES_NOTHING}"
                yield (
                    place,
                    FieldFinding(_PARENTS[key.tree], MigrationVerdict.CHANGE, f"{message}; create {parent.name}"),
                )
        yield from self._missing_queues()
        yield from self._hypernode_faults()
        # Every cluster has built-in classes: no class at all means that classes were not read.
        if self._classes and "PriorityClass" not in self.partial:
            known = self._classes | set(SYSTEM_CLASSES) | {""}
            for place, names in self._names.items():
                if names.priority_class not in known:
                    message = priority_class_not_found(names.ref, names.priority_class)
                    yield place, FieldFinding(f"{names.place}.priorityClassName", MigrationVerdict.CHANGE, message)

    def _hypernode_faults(self) -> Iterator[tuple[int, FieldFinding]]:
        """Yield the faults that the scheduler finds in HyperNodes. Nodes are unknown here and are not checked."""
        if "HyperNode" in self.partial:
            return
        tree = HyperNodeTree(NodeRows(ResourceSpace()))
        for _, hypernode, _ in self._hypernodes.values():
            tree.put(hypernode)
        for fault in tree.faults() if self._hypernodes else ():
            place, _, document = self._hypernodes[fault.hypernode]
            yield (
                place,
                FieldFinding(_member_named(document, fault.message), MigrationVerdict.CHANGE, fault.message),
            )

    def _missing_queues(self) -> Iterator[tuple[int, FieldFinding]]:
        """Yield references to missing queues; nothing if neither queues nor a cluster was read."""
        known = {key.name for key in (*self._accounts, *_ALWAYS) if key.tree is Tree.QUEUE} | {""}
        if "Queue" in self.partial or not (self._classes or len(known) > len(_ALWAYS) + 1):
            return
        for place, names in self._names.items():
            if names.queue not in known:
                message = (
                    f"{describe(names.ref)}: queue {names.queue} does not exist; create it: until then no gang "
                    "that names it starts"
                )
                yield place, FieldFinding(f"{names.place}.queue", MigrationVerdict.CHANGE, message)


def _member_named(document: Document, message: str) -> str:
    """Return the path of the HyperNode member that a fault concerns."""
    members = mapping(document.get("spec")).get("members")
    for at, member in enumerate(members if isinstance(members, list) else ()):
        name = mapping(mapping(mapping(member).get("selector")).get("exactMatch")).get("name")
        if name and mapping(member).get("type") == "HyperNode" and f"HyperNode {name} " in message:
            return f"spec.members[{at}].selector.exactMatch.name"
    return "spec.members"


def _names_of(document: Document, facts: object) -> _Names | None:
    """Return the queue and PriorityClass that an object names; None without any."""
    match facts:
        case (GroupSpec() as group,):
            return _Names(group.ref, "spec", group.queue, group.priority_class)
        case Job(spec=spec) | JobTemplate(spec=spec):
            return _of_job(document, "spec", spec)
        case CronJob(spec=spec):
            return _of_job(document, "spec.jobTemplate.spec", spec.job_template.spec)
    return None


def _of_job(document: Document, place: str, spec: JobSpec) -> _Names:
    metadata, kind = mapping(document.get("metadata")), str(document.get("kind"))
    group, _, version = str(document.get("apiVersion")).rpartition("/")
    namespace, name = str(metadata.get("namespace") or ""), str(metadata.get("name"))
    ref = GroupRef(group, version, kind, f"{kind.lower()}s", namespace, name, "")
    return _Names(ref, place, spec.queue, spec.priority_class_name)


def with_missing(fields: tuple[FieldFinding, ...], finding: FieldFinding) -> tuple[FieldFinding, ...]:
    """Return the findings about fields with `finding` in place of an earlier finding about the same field."""
    if any(field_finding.field == finding.field for field_finding in fields):
        return tuple(finding if field_finding.field == finding.field else field_finding for field_finding in fields)
    return (*fields, finding)

"""Owners of pods: objects such as JobSets, of which only the gang sizes are stored."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import msgspec

from phalanx.dialects.gangs.gang_index import GangIndex
from phalanx.dialects.gangs.job_owner import submitted_job
from phalanx.dialects.kinds import ServedKind, WantedKind
from phalanx.dialects.reader import Document
from phalanx.dialects.warnings import ObjectRef
from phalanx.dialects.workloads.replicas import REPLICA_RULES
from phalanx.dialects.workloads.rule import KindKey, OwnerFieldError, OwnerReader, WorkloadRule, WorkloadSize
from phalanx.dialects.workloads.suspension import SUSPENSION_RULES, with_suspension
from phalanx.model.events import ClusterEvent

log = logging.getLogger(__name__)

#: Rules that group no pods, of owners that change the gangs of other declarations.
OWNER_RULES = (*REPLICA_RULES, *SUSPENSION_RULES)

Address = tuple[ServedKind, str, str]


class WorkloadOwners:
    """Processes owners of pods and updates the sizes of gangs; `publish` returns the resulting events for members
    and expected members."""

    def __init__(
        self,
        gangs: GangIndex,
        rules: Iterable[WorkloadRule],
        warn: Callable[[ObjectRef, str, str], None],
        publish: Callable[[], list[ClusterEvent]],
    ) -> None:
        self._gangs = gangs
        self._warn = warn
        self._publish = publish
        self._rules = {rule.kind: rule for rule in rules if rule.kind is not None and rule.sizes is not None}
        self._sizes: dict[Address, tuple[WorkloadSize, ...]] = {}

    @property
    def kinds(self) -> list[WantedKind]:
        """Kinds of owners that any grouping rule reads."""
        return [rule.owner for rule in self._rules.values() if rule.owner is not None]

    def __contains__(self, kind: ServedKind) -> bool:
        return (kind.group, kind.plural) in self._rules

    def __len__(self) -> int:
        return len(self._sizes)

    def updated(self, kind: ServedKind, document: Document) -> list[ClusterEvent]:
        metadata = document["metadata"]
        namespace, name = str(metadata.get("namespace") or ""), str(metadata["name"])
        read = self._rules[kind.group, kind.plural].sizes
        assert read is not None, kind
        try:
            owner = OwnerReader(document)
            sizes = with_suspension(owner, read(owner))
            if (job := submitted_job(metadata)) is not None:
                sizes = tuple(msgspec.structs.replace(size, submitted=job) for size in sizes)
        except Exception as error:
            text = str(error) if isinstance(error, OwnerFieldError) else f"{type(error).__name__}: {error}"
            if not isinstance(error, OwnerFieldError):
                log.exception("%s of %s/%s cannot be read", kind.plural, namespace, name)
            about = ObjectRef(kind.api_version, kind.kind, namespace, name, str(metadata.get("uid") or ""))
            self._warn(about, "InvalidWorkload", f"{text}; until then its new pods are held")
            sizes = ()
        return self._declare((kind, namespace, name), sizes)

    def removed(self, kind: ServedKind, namespace: str, name: str) -> list[ClusterEvent]:
        return self._declare((kind, namespace, name), ())

    def readable(self, kind: KindKey, readable: bool) -> list[ClusterEvent]:
        """Set whether a kind of owners is readable: all its objects have arrived, or the API serves none to us."""
        events: list[ClusterEvent] = []
        if not readable:
            for address in sorted(
                address for address in self._sizes if (address[0].group, address[0].plural) == kind
            ):
                events += self.removed(*address)
        return events + self._gangs.set_unreadable(kind, not readable) + self._publish()

    def _declare(self, address: Address, sizes: tuple[WorkloadSize, ...]) -> list[ClusterEvent]:
        last = self._sizes.pop(address, ())
        if sizes:
            self._sizes[address] = sizes
        return self._gangs.set_sizes(address[1], last, sizes) + self._publish() if sizes != last else []

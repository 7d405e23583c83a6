"""Queue objects: Volcano's (docs/rules/volcano.md, 1.2), and kube-batch's of each of its API groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phalanx.dialects.api_groups import KUBE_BATCH_GROUPS, VOLCANO
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.quotas.account_spec import AccountReader, AccountSpec, Place
from phalanx.dialects.quotas.node_groups import read_node_group_rule
from phalanx.dialects.reader import MAX_WHOLE, Document, is_whole
from phalanx.model.account import (
    DEFAULT_QUEUE,
    ROOT_QUEUE,
    Account,
    AccountKey,
    AccountState,
    Tree,
    limits_of,
)

HIERARCHY = "volcano.sh/hierarchy"
HIERARCHY_WEIGHTS = "volcano.sh/hierarchy-weights"
CLOSED_BY_PARENT = "volcano.sh/closed-by-parent"

# Precedence of the API groups for queues of one name.
_FAMILIES = (VOLCANO, *KUBE_BATCH_GROUPS)
_MAX_WEIGHT = 65535


def read_queue(resource: ServedKind, document: Document) -> AccountSpec:
    reader = _QueueReader(resource, document)
    account = reader.volcano_queue() if resource.group == VOLCANO else reader.kube_batch_queue()
    place, rank = Place(Tree.QUEUE, reader.ref.name), reader.rank(_FAMILIES.index(resource.group))
    return AccountSpec(reader.ref, place, rank, (account,), "DuplicateQueue")


def builtin_queues() -> list[dict[str, Any]]:
    """Return the queues that Volcano creates at start-up: groups without a queue wait in `default`."""
    return [_queue(ROOT_QUEUE, reclaimable=False), _queue(DEFAULT_QUEUE, reclaimable=True)]


def _queue(name: str, *, reclaimable: bool) -> dict[str, Any]:
    return {
        "apiVersion": f"{VOLCANO}/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": 1, "reclaimable": reclaimable},
    }


class _QueueReader(AccountReader):
    code = "InvalidQueue"

    def kube_batch_queue(self) -> Account:
        capability = self.amounts(self.spec.get("capability"), "spec.capability")
        return Account(
            key=self._key(self.ref.name),
            uid=self.ref.uid,
            label=f"Queue {self.ref.name}",
            source=self.ref,
            parent=self._parent(""),
            capability=limits_of(capability),
            weight=self._weight(),
            budget=self.budget(),
            min_run_time=self.min_run_time(),
            collect_after=self.collect_after(),
            max_run_time=self.max_run_time(),
            eviction_rate=self.eviction_rate(),
            self_protection=self.self_protection(),
            max_protection=self.max_protection(),
            created=self.created,
            problem=self.problem,
            warnings=tuple(self.warnings),
        )

    def volcano_queue(self) -> Account:
        spec = self.spec
        capability = self.amounts(spec.get("capability"), "spec.capability")
        deserved = self.amounts(spec.get("deserved"), "spec.deserved")
        guarantee = self._guarantee()
        return Account(
            key=self._key(self.ref.name),
            uid=self.ref.uid,
            label=f"Queue {self.ref.name}",
            source=self.ref,
            parent=self._parent(self.text("parent")),
            guarantee=self.below(
                guarantee, "spec.guarantee.resource", capability, "spec.capability", "GuaranteeExceedsCapability"
            ),
            # As in Go, an empty map counts as absent.
            deserved=self.below(
                deserved, "spec.deserved", capability, "spec.capability", "DeservedExceedsCapability"
            )
            if deserved
            else None,
            capability=limits_of(capability),
            weight=self._weight(),
            priority=self._priority(),
            reclaimable=self._reclaimable(),
            state=self._state(),
            fifo=self._fifo(),
            hierarchy=self._hierarchy(),
            pools=read_node_group_rule(self),
            budget=self.budget(),
            min_run_time=self.min_run_time(),
            collect_after=self.collect_after(),
            max_run_time=self.max_run_time(),
            eviction_rate=self.eviction_rate(),
            self_protection=self.self_protection(),
            max_protection=self.max_protection(),
            created=self.created,
            problem=self.problem,
            warnings=tuple(self.warnings),
        )

    def _key(self, name: str) -> AccountKey:
        return AccountKey(Tree.QUEUE, name)

    def _parent(self, stated: str) -> AccountKey | None:
        return None if self.ref.name == ROOT_QUEUE else self._key(stated or ROOT_QUEUE)

    def _weight(self) -> int:
        value = self.spec.get("weight")
        if value is None:
            return 1
        if is_whole(value) and 1 <= value <= _MAX_WEIGHT:
            return value
        self.warn("InvalidWeight", "spec.weight", value, f"write a whole number from 1 to {_MAX_WEIGHT}; 1 is used")
        return 1

    def _priority(self) -> int:
        value = self.spec.get("priority")
        if value is None:
            return 0
        if is_whole(value) and 0 <= value <= MAX_WHOLE:
            return value
        self.warn("InvalidPriority", "spec.priority", value, "write a whole number of at least 0; 0 is used")
        return 0

    def _guarantee(self) -> dict[str, int]:
        guarantee = self.spec.get("guarantee")
        if guarantee is None:
            return {}
        if not isinstance(guarantee, Mapping):
            self.refuse("spec.guarantee", guarantee, "write {resource: {cpu: 4}}")
            return {}
        return self.amounts(guarantee.get("resource"), "spec.guarantee.resource")

    def _reclaimable(self) -> bool:
        value = self.spec.get("reclaimable")
        if value is None or isinstance(value, bool):
            return value is not False
        self.warn("InvalidReclaimable", "spec.reclaimable", value, "write true or false; true is used")
        return True

    def _state(self) -> AccountState:
        """Return the queue's state (Open or Closed) that its spec requests (first version of Volcano's kind), else
        the one in its status."""
        for place, fields in (("spec", self.spec), ("status", self.status)):
            value = fields.get("state")
            if value in (None, ""):
                continue
            try:
                return AccountState(value)
            except ValueError:
                words = ", ".join(AccountState)
                self.warn("InvalidState", f"{place}.state", value, f"write one of {words}; the value is ignored")
        return AccountState.CLOSED if self.annotations.get(CLOSED_BY_PARENT) == "true" else AccountState.OPEN

    def _fifo(self) -> bool:
        value = self.spec.get("dequeueStrategy")
        if value in (None, "", "traverse", "fifo"):
            return value == "fifo"
        advice = "write fifo or traverse; traverse is used"
        self.warn("InvalidDequeueStrategy", "spec.dequeueStrategy", value, advice)
        return False

    def _hierarchy(self) -> tuple[tuple[str, int], ...]:
        """Parse a queue's hierarchy annotations, `root/a/b` with weights `1/2/8`, as Volcano's drf plugin does."""
        path, weights = self.annotations.get(HIERARCHY, ""), self.annotations.get(HIERARCHY_WEIGHTS, "")
        if not path and not weights:
            return ()
        names, numbers = path.split("/"), weights.split("/")
        legal = [text.isascii() and text.isdecimal() and 1 <= int(text[:6]) <= _MAX_WEIGHT for text in numbers]
        if len(names) == len(numbers) and all(names) and all(legal):
            return tuple((name, int(number)) for name, number in zip(names, numbers, strict=True))
        self.warn(
            "InvalidHierarchy",
            f"annotations {HIERARCHY} and {HIERARCHY_WEIGHTS}",
            [path, weights],
            'write a path and as many whole weights, such as "root/research/vision" and "1/2/8"; '
            "the annotations are ignored",
        )
        return ()

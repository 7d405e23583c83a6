"""policy/v1 PodDisruptionBudgets: what each allows now, and which pods it counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from phalanx.dialects.label_selectors import IllegibleSelectorError, Labels, Selector, read_selector, selects
from phalanx.dialects.notices import Notice, NoticeBoard, ObjectRef
from phalanx.dialects.reader import Document, is_whole, show
from phalanx.model.disruption import DisruptionBudget
from phalanx.model.events import ClusterEvent, DisruptionBudgetRemoved, DisruptionBudgetUpdated

KIND = "PodDisruptionBudget"

LabelSet = tuple[tuple[str, str], ...]
Names = tuple[str, ...]

# Beyond this many the caches start anew: what is in use stays, it is only shared less.
_CACHE_SIZE = 50_000


class _Budget(msgspec.Struct, frozen=True):
    """`selector` is None where no pod is meant; `fault` says what cannot be read."""

    noun: DisruptionBudget
    uid: str
    selector: Selector | None = None
    fault: str = ""


class DisruptionBook:
    """Every budget, and the labels of every pod that one might count.

    Labels are kept because a budget may come after the pods that it means. Pods of one template share them. Methods
    that take news of a budget return what `ClusterState` is to know, and which budgets count whom now: all pods of
    the namespace by uid, or none where nothing about that has changed.
    """

    def __init__(self, notices: NoticeBoard) -> None:
        self._notices = notices
        self._budgets: dict[str, dict[str, _Budget]] = {}
        self._pods: dict[str, dict[str, LabelSet]] = {}
        # Per namespace with budgets: who counts pods with these labels.
        self._matches: dict[str, dict[LabelSet, Names]] = {}
        self._sets: dict[LabelSet, LabelSet] = {}
        self._pairs: dict[tuple[str, str], tuple[str, str]] = {}

    # pods

    def join(self, namespace: str, uid: str, labels: Labels) -> Names:
        """A pod has these labels now; the budgets that count it, sorted."""
        found = self._shared(labels)
        pods = self._pods.get(namespace)
        if pods is None:
            pods = self._pods[namespace] = {}
        pods[uid] = found
        return self._names(namespace, found)

    def leave(self, namespace: str, uid: str) -> None:
        """A pod is gone, or has finished: no budget counts it."""
        pods = self._pods.get(namespace)
        if pods is not None and pods.pop(uid, None) is not None and not pods:
            del self._pods[namespace]

    def _shared(self, labels: Labels) -> LabelSet:
        found = tuple(labels.items())
        known = self._sets.get(found)
        if known is not None:
            return known
        if len(self._sets) >= _CACHE_SIZE:
            self._sets.clear()
            self._pairs.clear()
        pairs = self._pairs
        own = tuple([pairs.setdefault(pair, pair) for pair in found])
        self._sets[own] = own
        return own

    def _names(self, namespace: str, labels: LabelSet) -> Names:
        budgets = self._budgets.get(namespace)
        if budgets is None:
            return ()
        matches = self._matches.setdefault(namespace, {})
        found = matches.get(labels)
        if found is None:
            if len(matches) >= _CACHE_SIZE:
                matches.clear()
            found = matches[labels] = tuple(sorted(_counting(budgets, dict(labels))))
        return found

    # budgets

    def replace(self, document: Document) -> tuple[list[ClusterEvent], dict[str, Names]]:
        """A budget as its API serves it. Never raises for bad fields: what cannot be read allows nothing."""
        budget = _read(document)
        return [*self._tell(budget)], self._put(budget)

    def malformed(
        self, namespace: str, name: str, uid: str, error: str
    ) -> tuple[list[ClusterEvent], dict[str, Names]]:
        """A budget whose JSON cannot be decoded allows nothing to those that it counted when it could be read."""
        last = self._budgets.get(namespace, {}).get(name)
        budget = _Budget(
            DisruptionBudget(namespace, name),
            uid or (last.uid if last else ""),
            last.selector if last else None,
            f"cannot be read: {error}; apply it again",
        )
        return [*self._tell(budget)], self._put(budget)

    def remove(self, namespace: str, name: str) -> tuple[list[ClusterEvent], dict[str, Names]]:
        budgets = self._budgets.get(namespace, {})
        last = budgets.pop(name, None)
        if last is None:
            return [], {}
        if not budgets:
            del self._budgets[namespace]
            self._matches.pop(namespace, None)
        return [DisruptionBudgetRemoved(namespace, name)], self._count_anew(namespace, last.selector, None)

    def _tell(self, budget: _Budget) -> list[ClusterEvent]:
        noun = budget.noun
        last = self._budgets.get(noun.namespace, {}).get(noun.name)
        if budget.fault and (last is None or (last.uid, last.fault) != (budget.uid, budget.fault)):
            about = ObjectRef("policy/v1", KIND, noun.namespace, noun.name, budget.uid)
            text = f"{KIND} {noun.namespace}/{noun.name}: {budget.fault}"
            notice = Notice(about, "Warning", f"Invalid{KIND}", text)
            self._notices.pin(notice, lambda: self._says(noun.namespace, noun.name, budget.fault))
        return [DisruptionBudgetUpdated(noun)] if last is None or last.noun != noun else []

    def _says(self, namespace: str, name: str, fault: str) -> bool:
        budget = self._budgets.get(namespace, {}).get(name)
        return budget is not None and budget.fault == fault

    def _put(self, budget: _Budget) -> dict[str, Names]:
        noun = budget.noun
        budgets = self._budgets.setdefault(noun.namespace, {})
        last = budgets.get(noun.name)
        budgets[noun.name] = budget
        return self._count_anew(noun.namespace, last.selector if last else None, budget.selector)

    def _count_anew(self, namespace: str, last: Selector | None, now: Selector | None) -> dict[str, Names]:
        if last == now:
            return {}
        self._matches.pop(namespace, None)
        return {uid: self._names(namespace, labels) for uid, labels in self._pods.get(namespace, {}).items()}


def _counting(budgets: Mapping[str, _Budget], labels: Labels) -> list[str]:
    return [
        name for name, budget in budgets.items() if budget.selector is not None and selects(budget.selector, labels)
    ]


def _read(document: Document) -> _Budget:
    metadata = _object(document.get("metadata"))
    namespace, name = str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
    faults: list[str] = []
    selector = _selector(document.get("spec"), faults)
    status = document.get("status")
    noun = DisruptionBudget(
        namespace,
        name,
        _allowed(metadata, status, faults),
        _disrupted(_object(status).get("disruptedPods"), faults),
    )
    return _Budget(noun, str(metadata.get("uid") or ""), selector, "; ".join(faults))


def _selector(spec: object, faults: list[str]) -> Selector | None:
    """An empty selector means every pod of the namespace; none, or one that cannot be read, means no pod."""
    if spec is not None and not isinstance(spec, Mapping):
        faults.append(f"spec is {show(spec)}; it protects no pod until it is an object with a selector")
    stated = _object(spec).get("selector")
    if stated is None:
        return None
    try:
        return read_selector(stated)
    except IllegibleSelectorError as error:
        faults.append(f"spec.selector is {show(stated)}; {error}; it protects no pod until that is corrected")
        return None


def _allowed(metadata: Document, status: object, faults: list[str]) -> int:
    """What the disruption controller grants; nothing while it has not seen what the budget says now."""
    if status is not None and not isinstance(status, Mapping):
        faults.append(f"status is {show(status)}; nothing is allowed until it is an object")
    granted = _object(status).get("disruptionsAllowed")
    if granted is None:
        return 0
    if not is_whole(granted):
        faults.append(f"status.disruptionsAllowed is {show(granted)}; nothing is allowed until it is a number")
        return 0
    seen, generation = _object(status).get("observedGeneration"), metadata.get("generation")
    stale = is_whole(generation) and (seen if is_whole(seen) else 0) < generation
    return 0 if stale else max(0, granted)


def _disrupted(stated: object, faults: list[str]) -> frozenset[str]:
    if stated is not None and not isinstance(stated, Mapping):
        faults.append(f"status.disruptedPods is {show(stated)}; it is passed over")
    return frozenset(map(str, _object(stated)))


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}

"""policy/v1 PodDisruptionBudgets: what each allows now, and which pods it counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from phalanx.dialects.label_selectors import IllegibleSelectorError, Selector, read_selector, selects
from phalanx.dialects.pods.known_pods import KnownPods
from phalanx.dialects.reader import Document, is_whole, show
from phalanx.dialects.warnings import ObjectRef, ObjectWarning, ObjectWarnings
from phalanx.model.disruption import DisruptionBudget
from phalanx.model.events import ClusterEvent, DisruptionBudgetRemoved, DisruptionBudgetUpdated

KIND = "PodDisruptionBudget"

Pair = tuple[str, str]
Names = tuple[str, ...]

# Beyond this many the caches start anew: what is in use stays, it is only shared less.
_CACHE_SIZE = 50_000
_SPARE = 1000


class LabelSet(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """The labels of a pod as they came; compared by what they are, hashed once."""

    pairs: tuple[Pair, ...]


class _Meant(msgspec.Struct, frozen=True):
    """Whom a selector means: those with all of `pairs` among their labels of whom all of `rest` holds too.

    Most selectors are pairs alone, and those cost little to ask, which thousands of pods are.
    """

    pairs: tuple[Pair, ...] = ()
    rest: Selector = ()

    def includes(self, labels: LabelSet) -> bool:
        own = labels.pairs
        for pair in self.pairs:
            if pair not in own:
                return False
        return not self.rest or selects(self.rest, dict(own))


class _Budget(msgspec.Struct, frozen=True):
    """`meant` is None where no pod is meant; `fault` says what cannot be read."""

    spec: DisruptionBudget
    uid: str
    meant: _Meant | None = None
    fault: str = ""


class DisruptionBudgetIndex:
    """Every budget, and which of the `pods` it counts, whether it came before or after them.

    Methods that take news of a budget return what `ClusterState` is to know, and by uid the pods which other
    budgets may count now, with the names of those.
    """

    def __init__(self, warnings: ObjectWarnings, pods: KnownPods) -> None:
        self._object_warnings = warnings
        self._budgets: dict[str, dict[str, _Budget]] = {}
        self._pods = pods
        # Per namespace with budgets: who counts pods with these labels, for all that its pods have or had.
        self._matches: dict[str, dict[LabelSet, Names]] = {}
        self._sets: dict[tuple[Pair, ...], LabelSet] = {}

    # pods

    def counting(self, namespace: str, labels: tuple[Pair, ...]) -> Names:
        """The budgets that count a pod with these labels (sorted) while it has not finished; sorted."""
        matches = self._matches.get(namespace)
        if matches is None:
            return ()
        own = self._shared(labels)
        found = matches.get(own)
        if found is None:
            known = self._known(namespace)
            if len(matches) > 2 * len(known) + _SPARE:
                in_use = set(known.values())
                matches = self._matches[namespace] = {each: matches[each] for each in matches if each in in_use}
            found = matches[own] = _counting(self._budgets[namespace], own)
        return found

    def _known(self, namespace: str) -> dict[str, LabelSet]:
        """By uid: the labels of all pods that a budget might count."""
        pods = (known.pod for known in self._pods.of_namespace(namespace))
        return {pod.uid: self._shared(pod.labels) for pod in pods if not pod.finished}

    def _shared(self, labels: tuple[Pair, ...]) -> LabelSet:
        known = self._sets.get(labels)
        if known is None:
            if len(self._sets) >= _CACHE_SIZE:
                self._sets.clear()
            known = self._sets[labels] = LabelSet(labels)
        return known

    # budgets

    def replace(self, document: Document) -> tuple[list[ClusterEvent], dict[str, Names]]:
        """A budget as its API serves it. Never raises for bad fields: what cannot be read allows nothing."""
        budget = _read(document)
        return [*self._events_of(budget)], self._put(budget)

    def malformed(
        self, namespace: str, name: str, uid: str, error: str
    ) -> tuple[list[ClusterEvent], dict[str, Names]]:
        """A budget whose JSON cannot be decoded allows nothing to those that it counted when it could be read."""
        last = self._budgets.get(namespace, {}).get(name)
        budget = _Budget(
            DisruptionBudget(namespace, name),
            uid or (last.uid if last else ""),
            last.meant if last else None,
            f"cannot be read: {error}; apply it again",
        )
        return [*self._events_of(budget)], self._put(budget)

    def remove(self, namespace: str, name: str) -> tuple[list[ClusterEvent], dict[str, Names]]:
        budgets = self._budgets.get(namespace, {})
        if budgets.pop(name, None) is None:
            return [], {}
        counted = self._count_anew(namespace, name, None)
        if not budgets:
            del self._budgets[namespace], self._matches[namespace]
        return [DisruptionBudgetRemoved(namespace, name)], counted

    def _events_of(self, budget: _Budget) -> list[ClusterEvent]:
        spec = budget.spec
        last = self._budgets.get(spec.namespace, {}).get(spec.name)
        if budget.fault and (last is None or (last.uid, last.fault) != (budget.uid, budget.fault)):
            about = ObjectRef("policy/v1", KIND, spec.namespace, spec.name, budget.uid)
            text = f"{KIND} {spec.namespace}/{spec.name}: {budget.fault}"
            notice = ObjectWarning(about, "Warning", f"Invalid{KIND}", text)
            self._object_warnings.add(notice, lambda: self._says(spec.namespace, spec.name, budget.fault))
        return [DisruptionBudgetUpdated(spec)] if last is None or last.spec != spec else []

    def _says(self, namespace: str, name: str, fault: str) -> bool:
        budget = self._budgets.get(namespace, {}).get(name)
        return budget is not None and budget.fault == fault

    def _put(self, budget: _Budget) -> dict[str, Names]:
        namespace, name = budget.spec.namespace, budget.spec.name
        if namespace not in self._budgets:
            self._budgets[namespace] = {}
            self._matches[namespace] = dict.fromkeys(self._known(namespace).values(), ())
        budgets = self._budgets[namespace]
        last = budgets.get(name)
        budgets[name] = budget
        if last is not None and last.meant == budget.meant:
            return {}
        return self._count_anew(namespace, name, budget.meant)

    def _count_anew(self, namespace: str, name: str, meant: _Meant | None) -> dict[str, Names]:
        """The pods that a budget counts, or counts no more, now that it means others than before."""
        matches = self._matches[namespace]
        changed: dict[LabelSet, Names] = {}
        for labels, names in matches.items():
            counts = meant is not None and meant.includes(labels)
            if counts != (name in names):
                rest = [each for each in names if each != name]
                changed[labels] = tuple(sorted([*rest, name] if counts else rest))
        if not changed:
            return {}
        matches.update(changed)
        return {uid: changed[labels] for uid, labels in self._known(namespace).items() if labels in changed}


def _counting(budgets: Mapping[str, _Budget], labels: LabelSet) -> Names:
    counting = (name for name, each in budgets.items() if each.meant is not None and each.meant.includes(labels))
    return tuple(sorted(counting))


def _read(document: Document) -> _Budget:
    metadata = _object(document.get("metadata"))
    namespace, name = str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
    faults: list[str] = []
    meant = _meant(document.get("spec"), faults)
    status = document.get("status")
    spec = DisruptionBudget(
        namespace,
        name,
        _allowed(metadata, status, faults),
        _disrupted(_object(status).get("disruptedPods"), faults),
    )
    return _Budget(spec, str(metadata.get("uid") or ""), meant, "; ".join(faults))


def _meant(spec: object, faults: list[str]) -> _Meant | None:
    """An empty selector means every pod of the namespace; none, or one that cannot be read, means no pod."""
    if spec is not None and not isinstance(spec, Mapping):
        faults.append(f"spec is {show(spec)}; it protects no pod until it is an object with a selector")
    stated = _object(spec).get("selector")
    if stated is None:
        return None
    try:
        selector = read_selector(stated)
    except IllegibleSelectorError as error:
        faults.append(f"spec.selector is {show(stated)}; {error}; it protects no pod until that is corrected")
        return None
    exact = [each for each in selector if each.operator == "In" and len(each.values) == 1]
    return _Meant(
        tuple((each.key, each.values[0]) for each in exact), tuple(each for each in selector if each not in exact)
    )


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

"""Index of policy/v1 PodDisruptionBudgets: their allowed disruptions, and the pods that they cover."""

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

# A cache with more entries is cleared: entries in use still exist, they are only no longer shared.
_CACHE_SIZE = 50_000
_SPARE = 1000


class LabelSet(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """Labels of a pod as written; compared by value, hashed once."""

    pairs: tuple[Pair, ...]


class _Meant(msgspec.Struct, frozen=True):
    """Pods that a PodDisruptionBudget's selector matches: all of `pairs` are among their labels, and the
    `requirements` hold.

    Most selectors consist of pairs only, which are cheap to check for thousands of pods.
    """

    pairs: tuple[Pair, ...] = ()
    requirements: Selector = ()

    def includes(self, labels: LabelSet) -> bool:
        own = labels.pairs
        for pair in self.pairs:
            if pair not in own:
                return False
        return not self.requirements or selects(self.requirements, dict(own))


class _Budget(msgspec.Struct, frozen=True):
    """PodDisruptionBudget with its selector (`meant`; None selects no pod) and the message about unreadable fields
    (`fault`)."""

    spec: DisruptionBudget
    uid: str
    meant: _Meant | None = None
    fault: str = ""


class DisruptionBudgetIndex:
    """All PodDisruptionBudgets, and which of the `pods` each covers, independent of the order of arrival.

    Methods that process a budget return the events for `ClusterState`, and by uid the names of the covering budgets
    of each pod for which they have changed.
    """

    def __init__(self, warnings: ObjectWarnings, pods: KnownPods) -> None:
        self._object_warnings = warnings
        self._budgets: dict[str, dict[str, _Budget]] = {}
        self._pods = pods
        # Per namespace with budgets: the covering budgets by pod labels, for all present and some past labels.
        self._matches: dict[str, dict[LabelSet, Names]] = {}
        self._sets: dict[tuple[Pair, ...], LabelSet] = {}

    # pods

    def counting(self, namespace: str, labels: tuple[Pair, ...]) -> Names:
        """Return the sorted names of the PodDisruptionBudgets that cover an unfinished pod with these sorted
        labels."""
        matches = self._matches.get(namespace)
        if matches is None:
            return ()
        own = self._shared(labels)
        names = matches.get(own)
        if names is None:
            known = self._known(namespace)
            if len(matches) > 2 * len(known) + _SPARE:
                in_use = set(known.values())
                matches = self._matches[namespace] = {
                    label_set: matches[label_set] for label_set in matches if label_set in in_use
                }
            names = matches[own] = _counting(self._budgets[namespace], own)
        return names

    def _known(self, namespace: str) -> dict[str, LabelSet]:
        """Return by uid the labels of all pods in a namespace that a PodDisruptionBudget can cover."""
        pods = (known.pod for known in self._pods.of_namespace(namespace))
        return {pod.uid: self._shared(pod.labels) for pod in pods if not pod.finished}

    def _shared(self, labels: tuple[Pair, ...]) -> LabelSet:
        label_set = self._sets.get(labels)
        if label_set is None:
            if len(self._sets) >= _CACHE_SIZE:
                self._sets.clear()
            label_set = self._sets[labels] = LabelSet(labels)
        return label_set

    # budgets

    def replace(self, document: Document) -> tuple[list[ClusterEvent], dict[str, Names]]:
        """Process an added or changed PodDisruptionBudget. Never raises for invalid fields: an unreadable one
        allows no eviction."""
        budget = _read(document)
        return [*self._events_of(budget)], self._put(budget)

    def malformed(
        self, namespace: str, name: str, uid: str, error: str
    ) -> tuple[list[ClusterEvent], dict[str, Names]]:
        """Process a budget with undecodable JSON: it allows no eviction of the pods that it covered last."""
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
        """Return the pods that a PodDisruptionBudget with a changed selector covers now or no longer, each with the
        names of all its budgets."""
        matches = self._matches[namespace]
        changed: dict[LabelSet, Names] = {}
        for labels, names in matches.items():
            counts = meant is not None and meant.includes(labels)
            if counts != (name in names):
                other_names = [budget_name for budget_name in names if budget_name != name]
                changed[labels] = tuple(sorted([*other_names, name] if counts else other_names))
        if not changed:
            return {}
        matches.update(changed)
        return {uid: changed[labels] for uid, labels in self._known(namespace).items() if labels in changed}


def _counting(budgets: Mapping[str, _Budget], labels: LabelSet) -> Names:
    counting = (
        name for name, budget in budgets.items() if budget.meant is not None and budget.meant.includes(labels)
    )
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
    """Decode a PodDisruptionBudget's selector: an empty one matches every pod of the namespace, a missing or
    unreadable one none."""
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
    exact = [
        requirement for requirement in selector if requirement.operator == "In" and len(requirement.values) == 1
    ]
    return _Meant(
        tuple((requirement.key, requirement.values[0]) for requirement in exact),
        tuple(requirement for requirement in selector if requirement not in exact),
    )


def _allowed(metadata: Document, status: object, faults: list[str]) -> int:
    """Return the number of evictions that the disruption controller allows; 0 until it has observed this generation
    of the PodDisruptionBudget."""
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
        faults.append(f"status.disruptedPods is {show(stated)}; the value is ignored")
    return frozenset(map(str, _object(stated)))


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}

"""Which topology domains are closed to our pending pods by the pods that are there already.

A pod with required anti-affinity keeps others away as long as it occupies its node, whoever scheduled it and even
while it terminates: kube-scheduler's InterPodAffinity, the symmetric half (kubernetes_native.md, B8).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from phalanx.dialects.core import PodAffinityTerm, PodObject
from phalanx.dialects.label_selectors import IllegibleSelectorError, Labels, Selector, requirements_of, selects
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass

K = TypeVar("K")
Domains = tuple[tuple[str, str], ...]

_RULE = "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"


class Term(msgspec.Struct, frozen=True, cache_hash=True):
    """One required anti-affinity term: whom it keeps away, and of which domains (those of `topology_key`).

    A pod is meant where all of `selector` hold of its labels and its namespace is among `namespaces` or all of
    `namespace_selector` hold of the namespace's labels (None selects no namespace, () all).
    """

    topology_key: str
    selector: Selector
    namespaces: tuple[str, ...]
    namespace_selector: Selector | None = None


class _Rule:
    """A term in force: the pods that state it by node, its domains with how many nodes make each, its victims."""

    __slots__ = ("domains", "stated_on", "victims")

    def __init__(self) -> None:
        self.stated_on: Counter[str] = Counter()
        self.domains: Counter[str] = Counter()
        self.victims: set[str] = set()


class Repulsion:
    """The terms of the pods that occupy nodes, matched against the pods that wait.

    Every method that takes news returns the uids of waiting pods whose `domains` may have changed. Where nobody
    states a term it costs a dictionary entry per waiting pod; a term that is stated for the first time looks at
    the waiting pods once, everything after that at those concerned.
    """

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes
        self._rules: dict[Term, _Rule] = {}
        self._repelling: dict[str, tuple[str, tuple[Term, ...]]] = {}
        self._on_node: dict[str, Counter[Term]] = {}
        self._waiting: dict[str, dict[str, Labels]] = {}
        self._hit: dict[str, tuple[Term, ...]] = {}
        self._namespaces: dict[str, Labels] = {}
        # Victims of the same terms share one answer and one class, until a domain changes.
        self._answers: dict[tuple[Term, ...], Domains] = {}
        self._classes: dict[tuple[PodClass, Domains], PodClass] = {}

    def domains(self, uid: str) -> Domains:
        """The (topology key, value) pairs that are closed to a waiting pod, sorted."""
        terms = self._hit.get(uid)
        if terms is None:
            return ()
        found = self._answers.get(terms)
        if found is None:
            closed = {(term.topology_key, value) for term in terms for value in self._rules[term].domains}
            found = self._answers[terms] = tuple(sorted(closed))
        return found

    def repelled(self, pod: Pod) -> Pod:
        """The pod as the scheduler is to see it."""
        domains = self.domains(pod.uid)
        if not domains:
            return pod
        return msgspec.structs.replace(pod, pod_class=self.class_among(pod.pod_class, domains))

    def class_among(self, pod_class: PodClass, domains: Domains) -> PodClass:
        """The class of pods to which these domains are closed."""
        if not domains:
            return pod_class
        key = (pod_class, domains)
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = msgspec.structs.replace(pod_class, repelled=domains)
        return found

    def closed_to(self, namespace: str, labels: Labels) -> Domains:
        """The (topology key, value) pairs that would be closed to a pod with these labels, sorted."""
        terms = [term for term in self._rules if self._means(term, namespace, labels)]
        return tuple(sorted({(term.topology_key, value) for term in terms for value in self._rules[term].domains}))

    # news of pods

    def waits(self, pod: Pod, labels: Labels) -> None:
        """A pod of ours waits for a node, with these labels now."""
        known = self._waiting.setdefault(pod.namespace, {})
        if self._rules and known.get(pod.uid) != labels:
            self._match(pod.uid, pod.namespace, labels)
        known[pod.uid] = labels

    def waits_no_more(self, pod: Pod) -> None:
        known = self._waiting.get(pod.namespace)
        if known is None or known.pop(pod.uid, None) is None:
            return
        if not known:
            del self._waiting[pod.namespace]
        for term in self._hit.pop(pod.uid, ()):
            self._rules[term].victims.discard(pod.uid)

    def repels(self, uid: str, node: str, terms: tuple[Term, ...] | None) -> set[str]:
        """A pod occupies `node` and states `terms` (None: those that it stated last)."""
        last_node, last_terms = self._repelling.get(uid, ("", ()))
        terms = last_terms if terms is None else terms
        if (last_node, last_terms) == (node, terms):
            return set()
        touched: set[str] = set()
        if terms:
            self._repelling[uid] = (node, terms)
            touched |= self._state(node, terms)
        else:
            self._repelling.pop(uid, None)
        return touched | self._withdraw(last_node, last_terms)

    def repels_no_more(self, uid: str) -> set[str]:
        return self._withdraw(*self._repelling.pop(uid)) if uid in self._repelling else set()

    def _state(self, node: str, terms: Iterable[Term]) -> set[str]:
        touched: set[str] = set()
        for term in terms:
            rule = self._rules.get(term)
            if rule is None:
                rule = self._begin(term)
            rule.stated_on[node] += 1
            self._on_node.setdefault(node, Counter())[term] += 1
            if rule.stated_on[node] == 1 and self._count(term, rule, self._nodes.get(node), 1):
                touched |= rule.victims
        return touched

    def _withdraw(self, node: str, terms: Iterable[Term]) -> set[str]:
        touched: set[str] = set()
        for term in terms:
            rule, here = self._rules[term], self._on_node[node]
            _lower(rule.stated_on, node)
            _lower(here, term)
            if not here:
                del self._on_node[node]
            if node not in rule.stated_on and self._count(term, rule, self._nodes.get(node), -1):
                touched |= rule.victims
            if not rule.stated_on:
                self._end(term, rule)
        return touched

    def _begin(self, term: Term) -> _Rule:
        rule = self._rules[term] = _Rule()
        for namespace in self._waiting if term.namespace_selector is not None else term.namespaces:
            for uid, labels in self._waiting.get(namespace, {}).items():
                if self._means(term, namespace, labels):
                    rule.victims.add(uid)
                    self._hit[uid] = tuple(sorted((*self._hit.get(uid, ()), term), key=repr))
        return rule

    def _end(self, term: Term, rule: _Rule) -> None:
        del self._rules[term]
        for uid in rule.victims:
            self._set_hit(uid, tuple(other for other in self._hit[uid] if other != term))

    # news of nodes and namespaces

    def node_changed(self, name: str, last: Node | None, node: Node | None) -> set[str]:
        """A node has come, gone or changed; `nodes` may show either of the two by now."""
        terms = self._on_node.get(name)
        if terms is None or (last and last.labels) == (node and node.labels):
            return set()
        touched: set[str] = set()
        for term in terms:
            rule = self._rules[term]
            gained = self._count(term, rule, node, 1)
            if self._count(term, rule, last, -1) or gained:
                touched |= rule.victims
        return touched

    def namespace_changed(self, name: str, labels: Labels | None) -> set[str]:
        if self._namespaces.get(name) == labels:
            return set()
        if labels is None:
            del self._namespaces[name]
        else:
            self._namespaces[name] = labels
        if all(not term.namespace_selector for term in self._rules):
            return set()
        waiting = self._waiting.get(name, {})
        for uid, own in waiting.items():
            self._match(uid, name, own)
        return set(waiting)

    # matching

    def _match(self, uid: str, namespace: str, labels: Labels) -> None:
        for term in self._hit.get(uid, ()):
            self._rules[term].victims.discard(uid)
        hit = sorted((term for term in self._rules if self._means(term, namespace, labels)), key=repr)
        for term in hit:
            self._rules[term].victims.add(uid)
        self._set_hit(uid, tuple(hit))

    def _set_hit(self, uid: str, terms: tuple[Term, ...]) -> None:
        if terms:
            self._hit[uid] = terms
        else:
            self._hit.pop(uid, None)

    def _means(self, term: Term, namespace: str, labels: Labels) -> bool:
        if namespace not in term.namespaces and (
            term.namespace_selector is None
            or not selects(term.namespace_selector, self._namespaces.get(namespace, {}))
        ):
            return False
        return selects(term.selector, labels)

    def _count(self, term: Term, rule: _Rule, node: Node | None, sign: int) -> bool:
        """Counts a node in or out of its domain; whether that opened or closed one."""
        value = (
            None if node is None else next((text for key, text in node.labels if key == term.topology_key), None)
        )
        if value is None:
            return False
        if sign > 0:
            rule.domains[value] += 1
            changed = rule.domains[value] == 1
        else:
            _lower(rule.domains, value)
            changed = value not in rule.domains
        if changed:
            self._answers.clear()
            self._classes.clear()
        return changed


def terms_of(pod: PodObject) -> tuple[Term, ...]:
    """The required anti-affinity terms that a pod states, each once.

    Like kube-scheduler we take none of a pod that states one which cannot be read: half a selector would keep
    away pods that it does not mean.
    """
    affinity = pod.spec.affinity
    if affinity is None or affinity.pod_anti_affinity is None or not affinity.pod_anti_affinity.required:
        return ()
    if any(fault.path.startswith(_RULE) for fault in pod.faults):
        return ()
    try:
        terms = [_term(wire, pod.metadata.namespace) for wire in affinity.pod_anti_affinity.required]
    except IllegibleSelectorError:
        return ()
    return tuple(dict.fromkeys(term for term in terms if term is not None))


def _term(wire: PodAffinityTerm, namespace: str) -> Term | None:
    """None where the term means nobody."""
    selector, spaces = wire.label_selector, wire.namespace_selector
    if selector is None or not wire.topology_key:
        return None
    return Term(
        topology_key=wire.topology_key,
        selector=requirements_of(selector),
        namespaces=tuple(sorted(set(wire.namespaces))) or (() if spaces is not None else (namespace,)),
        namespace_selector=None if spaces is None else requirements_of(spaces),
    )


def _lower(counter: Counter[K], key: K) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]

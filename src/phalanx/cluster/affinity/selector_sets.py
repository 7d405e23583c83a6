"""Who is meant by what pods ask of other pods, and how many of them are where.

A *match set* is all pods that some selections mean together. Pods with equal labels need not be told apart, nor
those whose labels differ where nobody looks: what counts of a pod is its *affinity profile*, the match sets that it
belongs to and what it states itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import msgspec

from phalanx.cluster.affinity.domains import DomainCounter, LabelDomains, Region, Tally
from phalanx.cluster.nodes.eligibility import selected, tolerated
from phalanx.cluster.nodes.labels import Rows
from phalanx.cluster.resource_space import BoolArray
from phalanx.model.peers import NO_PEERS, Peers, PodSelection, selects
from phalanx.model.selectors import NodeSelectorTerm, Toleration

if TYPE_CHECKING:
    from phalanx.cluster.nodes.rows import NodeRows
    from phalanx.model.pod import Pod

Labels = tuple[tuple[str, str], ...]
Whom = tuple[PodSelection, ...]

# Match sets that nobody asks for any more are forgotten when there are so many, or as many as others.
_IDLE = 64
# Beyond so many the match sets of labels seen are worked out anew.
_KNOWN = 50_000
_ANYWHERE = "*"


class SelectorMatchSet:
    """The pods that all of `whom` mean. Who is on its way out counts as `present`, and as `leaving` too.

    By topology key: `repelling` counts those who keep the set out of their domain, `drawing` those who want it
    there at any rate, `leaning` what those weigh who would rather have it there (or, below 0, not). `wanted` is how
    many kinds of pods can be helped by one of the set being placed.
    """

    __slots__ = (
        "__weakref__",
        "drawing",
        "leaning",
        "leaving",
        "number",
        "present",
        "repelling",
        "traits",
        "users",
        "wanted",
        "whom",
    )

    def __init__(self, number: int, whom: Whom) -> None:
        self.number = number
        self.whom = whom
        self.users = 0
        self.wanted = 0
        # What its pods must have one of: (namespace, key, value), or (namespace,) where no label is demanded.
        self.traits: list[tuple[str, ...]] = []
        self.present = Tally()
        self.leaving = Tally()
        self.repelling: dict[str, Tally] = {}
        self.drawing: dict[str, Tally] = {}
        self.leaning: dict[str, Tally] = {}

    @property
    def minds(self) -> bool:
        """Whether anybody minds, or likes, where its pods are."""
        return bool(self.repelling or self.drawing or self.leaning)

    def tallies(self) -> Iterator[Tally]:
        yield from (self.present, self.leaving)
        for stated in (self.repelling, self.drawing, self.leaning):
            yield from stated.values()


class AffinityProfile:
    """What of a pod's labels and statements matters: `matching_sets` are the match sets that it belongs to, in
    their order, `stated_sets` those of whom it states something.

    `tallies` is what one such pod adds to which tally while it occupies a row, `terminating_tallies` what it adds
    beside that while it is on its way out.
    """

    __slots__ = (
        "__weakref__",
        "_states",
        "matching_sets",
        "peers",
        "stated_sets",
        "tallies",
        "terminating_tallies",
    )

    def __init__(
        self, matching: tuple[SelectorMatchSet, ...], peers: Peers, stated: Mapping[Whom, SelectorMatchSet]
    ) -> None:
        self.matching_sets = matching
        self.peers = peers
        self._states = peers != NO_PEERS
        self.stated_sets = stated
        self.tallies: list[tuple[Tally, int]] = [(match_set.present, 1) for match_set in matching]
        self.terminating_tallies: list[tuple[Tally, int]] = [(match_set.leaving, 1) for match_set in matching]
        for term in peers.anti:
            self.tallies.append((stated[term.whom,].repelling[term.key], 1))
        for term in peers.affinity:
            self.tallies.append((stated[term.whom,].drawing[term.key], 1))
        for each in peers.preferred:
            self.tallies.append((stated[each.term.whom,].leaning[each.term.key], each.weight))

    @property
    def restricts(self) -> bool:
        """Whether it matters for its pods which pods are where."""
        if not self.matching_sets:
            return self._states
        return self._states or any(match_set.minds for match_set in self.matching_sets)

    @property
    def may_unblock_others(self) -> bool:
        """Whether somebody may find a place that was closed to him when one such pod is placed."""
        return bool(self.matching_sets) and any(match_set.wanted for match_set in self.matching_sets)

    @property
    def may_be_unblocked(self) -> bool:
        """Whether its pods may find a place that was closed to them when others are placed."""
        return bool(self.peers.affinity) or any(each.required for each in self.peers.spread)

    def add(self, rows: Iterable[int], sign: int) -> None:
        """A pod each occupies these rows (sign 1), or no longer does (sign -1)."""
        self._add(self.tallies, rows, sign)

    def mark_terminating(self, row: int, sign: int) -> None:
        """One of its pods on a row is on its way out (sign 1), or stays after all (sign -1)."""
        self._add(self.terminating_tallies, (row,), sign)

    def _add(self, tallies: list[tuple[Tally, int]], rows: Iterable[int], sign: int) -> None:
        for tally, amount in tallies:
            for row in rows:
                tally.add(row, amount * sign)


NO_AFFINITY = AffinityProfile((), NO_PEERS, {})
"""Of pods that nobody means and that state nothing."""


class Inclusion(msgspec.Struct, frozen=True, cache_hash=True):
    """Which nodes are of interest: those with all of `keys`, that the pod may use as far as it is asked."""

    keys: tuple[str, ...] = ()
    selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] | None = None


class _Statement:
    """What pods state, how many state it, and the match sets that it means."""

    __slots__ = ("match_sets", "users")

    def __init__(self, match_sets: dict[Whom, SelectorMatchSet]) -> None:
        self.match_sets = match_sets
        self.users = 0


class AffinityIndex:
    """The match sets that are asked for, and where their pods are.

    `shape` grows when it matters for further pods where they are. Methods that take news return the uids of pods
    whose profile may be another one now.
    """

    def __init__(self, nodes: NodeRows) -> None:
        self._nodes = nodes
        self.match_sets: dict[Whom, SelectorMatchSet] = {}
        self.shape = 0
        self._numbers = 0
        self._statements: dict[Peers, _Statement] = {}
        self._nothing: Mapping[Whom, SelectorMatchSet] = {}
        self._idle: dict[Whom, SelectorMatchSet] = {}
        self.namespaces: dict[str, dict[str, str]] = {}
        self._known: dict[tuple[str, Labels], tuple[SelectorMatchSet, ...]] = {}
        self._profiles: WeakValueDictionary[tuple[tuple[SelectorMatchSet, ...], Peers], AffinityProfile] = (
            WeakValueDictionary()
        )
        self._by_trait: dict[tuple[str, ...], dict[SelectorMatchSet, None]] = {}
        # Uids of pods by (namespace, value) of each label that some match set demands.
        self._members: dict[str, dict[tuple[str, str], dict[str, None]]] = {}
        # namespace -> uid -> labels.
        self._pods: dict[str, dict[str, Labels]] = {}
        self._domains: dict[str, LabelDomains] = {}
        self._regions: dict[tuple[str, Inclusion | None], Region] = {}

    # pods

    def enter(self, pod: Pod) -> None:
        """A pod is known now, with these labels."""
        self._pods.setdefault(pod.namespace, {})[pod.uid] = pod.labels
        if self._members:
            labels = dict(pod.labels)
            for key, members in self._members.items():
                if key in labels:
                    members.setdefault((pod.namespace, labels[key]), {})[pod.uid] = None

    def leave(self, pod: Pod) -> None:
        """The pod is gone, or has other labels now."""
        known = self._pods[pod.namespace]
        del known[pod.uid]
        if not known:
            del self._pods[pod.namespace]
        if self._members:
            for key, value in pod.labels:
                members = self._members.get(key)
                if members is not None:
                    of_value = members[pod.namespace, value]
                    del of_value[pod.uid]
                    if not of_value:
                        del members[pod.namespace, value]

    def profile(self, namespace: str, labels: Labels, peers: Peers) -> AffinityProfile:
        """Of pods with these labels that state this; it must have been stated."""
        matching = self._matching_sets(namespace, labels) if self._by_trait else ()
        if not matching and peers == NO_PEERS:
            return NO_AFFINITY
        found = self._profiles.get((matching, peers))
        stated = self._statements[peers].match_sets if peers != NO_PEERS else self._nothing
        if found is None or found.stated_sets is not stated:
            found = self._profiles[matching, peers] = AffinityProfile(matching, peers, stated)
        return found

    # namespaces

    def label(self, namespace: str, labels: Labels) -> list[str]:
        """A namespace has these labels now (none where it is gone)."""
        new = dict(labels)
        if self.namespaces.get(namespace, {}) == new:
            return []
        if new:
            self.namespaces[namespace] = new
        else:
            del self.namespaces[namespace]
        if not any(each.namespace_selector for whom in self.match_sets for each in whom):
            return []
        self._known.clear()
        return list(self._pods.get(namespace, ()))

    # counts

    def domains(self, key: str) -> LabelDomains:
        """The domains of a node label, current."""
        found = self._domains.get(key)
        if found is None:
            found = self._domains[key] = LabelDomains(key, self._nodes)
        found.update()
        return found

    def counter(self, key: str, *parts: tuple[Tally, int], inclusion: Inclusion | None = None) -> DomainCounter:
        """The sum of some tallies per domain of a node label, counted on the nodes of interest, current."""
        region = self._regions.get((key, inclusion))
        if region is None:
            includes = None if inclusion is None else self._includes(inclusion)
            region = self._regions[key, inclusion] = Region(self.domains(key), self._nodes, includes)
        region.update()
        for counter, _ in parts[0][0].counters:
            if counter.region is region and counter.parts == parts:
                return counter
        return DomainCounter(region, *parts)

    def _includes(self, inclusion: Inclusion) -> Callable[[Rows], BoolArray]:
        nodes = self._nodes

        def includes(rows: Rows) -> BoolArray:
            mask = nodes.alive[rows] & selected(inclusion.selector, inclusion.affinity, nodes, rows)
            for key in inclusion.keys:
                mask &= self.domains(key).ids[rows] >= 0
            if inclusion.tolerations is not None:
                mask &= tolerated(inclusion.tolerations, nodes, rows)
            return mask

        return includes

    # what is stated

    def state(self, peers: Peers) -> list[str]:
        """One more pod states this."""
        if peers is NO_PEERS or peers == NO_PEERS:
            return []
        statement = self._statements.get(peers)
        if statement is not None:
            statement.users += 1
            return []
        statement = self._statements[peers] = _Statement({})
        statement.users = 1
        touched: dict[str, None] = {}
        for whom in whom_of(peers):
            match_set = self.match_sets.get(whom)
            if match_set is None:
                match_set = self._found(whom)
                touched.update(dict.fromkeys(self._everybody(match_set)))
            self._idle.pop(whom, None)
            match_set.users += 1
            statement.match_sets[whom] = match_set
        for wanted in wanted_of(peers):
            statement.match_sets[wanted].wanted += 1
        for term in peers.anti:
            self._note(statement.match_sets[term.whom,].repelling, term.key)
        for term in peers.affinity:
            self._note(statement.match_sets[term.whom,].drawing, term.key)
        for each in peers.preferred:
            self._note(statement.match_sets[each.term.whom,].leaning, each.term.key)
        return list(touched)

    def _note(self, stated: dict[str, Tally], key: str) -> None:
        if key not in stated:
            stated[key] = Tally()
            self.shape += 1

    def withdraw(self, peers: Peers) -> list[str]:
        """One pod less states this."""
        if peers == NO_PEERS:
            return []
        statement = self._statements[peers]
        statement.users -= 1
        if statement.users:
            return []
        del self._statements[peers]
        for wanted in wanted_of(peers):
            statement.match_sets[wanted].wanted -= 1
        for whom, match_set in statement.match_sets.items():
            match_set.users -= 1
            if not match_set.users:
                self._idle[whom] = match_set
        return self._sweep() if len(self._idle) > max(_IDLE, len(self.match_sets) // 2) else []

    def _found(self, whom: Whom) -> SelectorMatchSet:
        match_set = self.match_sets[whom] = SelectorMatchSet(self._numbers, whom)
        self._numbers += 1
        self._known.clear()
        match_set.traits = self._traits(match_set)
        for trait in match_set.traits:
            self._by_trait.setdefault(trait, {})[match_set] = None
        return match_set

    def _sweep(self) -> list[str]:
        """Forgets the match sets that nobody asks for."""
        touched: dict[str, None] = {}
        for whom, match_set in self._idle.items():
            touched.update(dict.fromkeys(self._everybody(match_set)))
            del self.match_sets[whom]
            for trait in match_set.traits:
                del self._by_trait[trait][match_set]
                if not self._by_trait[trait]:
                    del self._by_trait[trait]
            for tally in match_set.tallies():
                for counter, _ in list(tally.counters):
                    if counter in counter.region.counters:
                        counter.drop()
        self._idle.clear()
        self._known.clear()
        for key, region in list(self._regions.items()):
            if not region.counters:
                del self._regions[key]
        demanded = {trait[1] for trait in self._by_trait if len(trait) > 1}
        for label in [label for label in self._members if label not in demanded]:
            del self._members[label]
        return list(touched)

    # who is meant

    def _traits(self, match_set: SelectorMatchSet) -> list[tuple[str, ...]]:
        """Of the requirements the one that fewest others share."""
        first = match_set.whom[0]
        if first.selector is None:
            return []
        spaces = [_ANYWHERE] if first.namespace_selector is not None else list(first.namespaces)
        best: list[tuple[str, ...]] | None = None
        least = (0, 0)
        for requirement in first.selector:
            if requirement.operator == "In":
                traits = [(space, requirement.key, value) for space in spaces for value in requirement.values]
                cost = (sum(len(self._by_trait.get(trait, ())) for trait in traits), len(requirement.values))
                if best is None or cost < least:
                    best, least = [*traits], cost
        if best is None:
            return [(space,) for space in spaces]
        for key in {trait[1] for trait in best} - self._members.keys():
            self._index(key)
        return best

    def _index(self, key: str) -> None:
        members: dict[tuple[str, str], dict[str, None]] = {}
        for namespace, pods in self._pods.items():
            for uid, labels in pods.items():
                for label, value in labels:
                    if label == key:
                        members.setdefault((namespace, value), {})[uid] = None
        self._members[key] = members

    def _everybody(self, match_set: SelectorMatchSet) -> Iterator[str]:
        """The pods of a match set."""
        for trait in match_set.traits:
            spaces = list(self._pods) if trait[0] == _ANYWHERE else [trait[0]]
            for space in spaces:
                pods = self._pods.get(space, {})
                uids = pods if len(trait) == 1 else self._members[trait[1]].get((space, trait[2]), ())
                for uid in uids:
                    if self._means(match_set, space, dict(pods[uid])):
                        yield uid

    def _matching_sets(self, namespace: str, labels: Labels) -> tuple[SelectorMatchSet, ...]:
        found = self._known.get((namespace, labels))
        if found is None:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            own = dict(labels)
            candidates: dict[SelectorMatchSet, None] = {}
            for space in (namespace, _ANYWHERE):
                candidates.update(self._by_trait.get((space,), {}))
                for key, value in labels:
                    if key in self._members:
                        candidates.update(self._by_trait.get((space, key, value), {}))
            meant = [match_set for match_set in candidates if self._means(match_set, namespace, own)]
            found = self._known[namespace, labels] = tuple(sorted(meant, key=lambda match_set: match_set.number))
        return found

    def _means(self, match_set: SelectorMatchSet, namespace: str, labels: Mapping[str, str]) -> bool:
        spaces = self.namespaces.get(namespace, {})
        return all(
            each.selector is not None and each.reaches(namespace, spaces) and selects(each.selector, labels)
            for each in match_set.whom
        )


def whom_of(peers: Peers) -> list[Whom]:
    """Everybody whom it means, each once."""
    found: dict[Whom, None] = {}
    for term in (*peers.affinity, *peers.anti, *(each.term for each in peers.preferred)):
        found[term.whom,] = None
    found.update(dict.fromkeys((each.whom,) for each in peers.spread))
    if peers.affinity:
        found[required_affinity_whom(peers)] = None
    return list(found)


def required_affinity_whom(peers: Peers) -> Whom:
    """A pod counts for required affinity only if all terms mean it."""
    return tuple(dict.fromkeys(term.whom for term in peers.affinity))


def wanted_of(peers: Peers) -> list[Whom]:
    """Those of whom one more in the right place may open it."""
    found: list[Whom] = [(each.whom,) for each in peers.spread if each.required]
    if peers.affinity:
        found.append(required_affinity_whom(peers))
    return list(dict.fromkeys(found))

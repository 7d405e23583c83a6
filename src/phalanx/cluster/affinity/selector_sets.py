"""Match sets: the pods that constraints on other pods select, and the number of these pods per node row.

A *match set* is the set of pods that all of some selections match. Pods with equal labels, or with labels that
differ only where no selector looks, are equivalent: the relevant part of a pod is its *affinity profile*, which
consists of the match sets that contain it and its own constraints.
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

# Unused match sets are discarded above this number, and above half of all match sets.
_IDLE = 64
# With more known label sets, their match sets are computed again.
_KNOWN = 50_000
_ANYWHERE = "*"


class SelectorMatchSet:
    """Pods that all selections of `whom` match. Terminating pods count as `present`, and also as `leaving`.

    By topology key: `repelling` counts the pods with required anti-affinity against the set, `drawing` those with
    required affinity to it, and `leaning` sums the weights of preferred affinity (negative for anti-affinity).
    `wanted` is the number of kinds of pods that a further pod of the set can unblock, `evened` the number of kinds
    with a spread constraint, required or not, on the set.
    """

    __slots__ = (
        "__weakref__",
        "drawing",
        "evened",
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
        self.evened = 0
        # Alternatives of which a member has one: (namespace, key, value), or (namespace,) if no label is required.
        self.traits: list[tuple[str, ...]] = []
        self.present = Tally()
        self.leaving = Tally()
        self.repelling: dict[str, Tally] = {}
        self.drawing: dict[str, Tally] = {}
        self.leaning: dict[str, Tally] = {}

    @property
    def minds(self) -> bool:
        """Whether any pod has an affinity or anti-affinity term that selects the match set."""
        return bool(self.repelling or self.drawing or self.leaning)

    def tallies(self) -> Iterator[Tally]:
        yield from (self.present, self.leaving)
        for stated in (self.repelling, self.drawing, self.leaning):
            yield from stated.values()


class AffinityProfile:
    """Relevant part of a pod's labels and constraints: `matching_sets` are the match sets that contain it, in their
    order, `stated_sets` those that its own constraints select.

    `tallies` are the tallies to which such a pod contributes while it occupies a row, `terminating_tallies` the
    additional ones while it terminates.
    """

    __slots__ = (
        "__weakref__",
        "_has_constraints",
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
        self._has_constraints = peers != NO_PEERS
        self.stated_sets = stated
        self.tallies: list[tuple[Tally, int]] = [(match_set.present, 1) for match_set in matching]
        self.terminating_tallies: list[tuple[Tally, int]] = [(match_set.leaving, 1) for match_set in matching]
        for term in peers.anti:
            self.tallies.append((stated[term.whom,].repelling[term.key], 1))
        for term in peers.affinity:
            self.tallies.append((stated[term.whom,].drawing[term.key], 1))
        for preferred in peers.preferred:
            self.tallies.append((stated[preferred.term.whom,].leaning[preferred.term.key], preferred.weight))

    @property
    def restricts(self) -> bool:
        """Whether the nodes of other pods matter to pods of this profile."""
        if not self.matching_sets:
            return self._has_constraints
        return self._has_constraints or any(match_set.minds for match_set in self.matching_sets)

    @property
    def may_unblock_others(self) -> bool:
        """Whether a pod of this profile, once placed, can make nodes feasible for other pods."""
        return bool(self.matching_sets) and any(match_set.wanted for match_set in self.matching_sets)

    @property
    def may_be_unblocked(self) -> bool:
        """Whether further placed pods can make nodes feasible for pods of this profile."""
        return bool(self.peers.affinity) or any(constraint.required for constraint in self.peers.spread)

    @property
    def repels_only(self) -> bool:
        """Whether the rules of these pods about other pods, and those of other pods about these, are required
        anti-affinity only.
        """
        peers = self.peers
        if peers.affinity or peers.preferred or peers.spread:
            return False
        return not any(
            match_set.wanted or match_set.evened or match_set.drawing or match_set.leaning
            for match_set in self.matching_sets
        )

    def add(self, rows: Iterable[int], sign: int) -> None:
        """Add (sign 1) or remove (sign -1) one pod of this profile on each of the node rows."""
        self._add(self.tallies, rows, sign)

    def mark_terminating(self, row: int, sign: int) -> None:
        """Mark one pod of this profile on a node row as terminating (sign 1), or no longer (sign -1)."""
        self._add(self.terminating_tallies, (row,), sign)

    def _add(self, tallies: list[tuple[Tally, int]], rows: Iterable[int], sign: int) -> None:
        for tally, amount in tallies:
            for row in rows:
                tally.add(row, amount * sign)


NO_AFFINITY = AffinityProfile((), NO_PEERS, {})
"""Profile of pods without constraints that no selector matches."""


class Inclusion(msgspec.Struct, frozen=True, cache_hash=True):
    """Nodes that a spread constraint includes: those with all of `keys` that the pod's other rules accept."""

    keys: tuple[str, ...] = ()
    selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] | None = None


class _Statement:
    """The same constraints of several pods: the number of pods with them, and the match sets that they select."""

    __slots__ = ("match_sets", "users")

    def __init__(self, match_sets: dict[Whom, SelectorMatchSet]) -> None:
        self.match_sets = match_sets
        self.users = 0


class AffinityIndex:
    """Match sets in use, and the nodes of their pods.

    `shape` is incremented when the places of further pods become relevant. Methods that process changes return the
    uids of pods with a possibly changed profile.
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
        # Uids of pods by (namespace, value), for each label that a match set requires.
        self._members: dict[str, dict[tuple[str, str], dict[str, None]]] = {}
        # Labels by namespace and uid.
        self._pods: dict[str, dict[str, Labels]] = {}
        self._domains: dict[str, LabelDomains] = {}
        self._regions: dict[tuple[str, Inclusion | None], Region] = {}

    # pods

    def enter(self, pod: Pod) -> None:
        """Add a pod with its labels to the match sets."""
        self._pods.setdefault(pod.namespace, {})[pod.uid] = pod.labels
        if self._members:
            labels = dict(pod.labels)
            for key, members in self._members.items():
                if key in labels:
                    members.setdefault((pod.namespace, labels[key]), {})[pod.uid] = None

    def leave(self, pod: Pod) -> None:
        """Remove a pod from the match sets, also before a change of its labels."""
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
        """Return the profile of pods with these labels and constraints; the constraints must have been added by
        `state`."""
        matching = self._matching_sets(namespace, labels) if self._by_trait else ()
        if not matching and peers == NO_PEERS:
            return NO_AFFINITY
        profile = self._profiles.get((matching, peers))
        stated = self._statements[peers].match_sets if peers != NO_PEERS else self._nothing
        if profile is None or profile.stated_sets is not stated:
            profile = self._profiles[matching, peers] = AffinityProfile(matching, peers, stated)
        return profile

    # namespaces

    def label(self, namespace: str, labels: Labels) -> list[str]:
        """Set the labels of a namespace; none if it is deleted."""
        new = dict(labels)
        if self.namespaces.get(namespace, {}) == new:
            return []
        if new:
            self.namespaces[namespace] = new
        else:
            del self.namespaces[namespace]
        if not any(selection.namespace_selector for whom in self.match_sets for selection in whom):
            return []
        self._known.clear()
        return list(self._pods.get(namespace, ()))

    # counts

    def domains(self, key: str) -> LabelDomains:
        """Return the updated domains of a node label."""
        domains = self._domains.get(key)
        if domains is None:
            domains = self._domains[key] = LabelDomains(key, self._nodes)
        domains.update()
        return domains

    def counter(self, key: str, *parts: tuple[Tally, int], inclusion: Inclusion | None = None) -> DomainCounter:
        """Return the updated sum of some tallies per domain of a node label, on the included nodes."""
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

    # Constraints

    def state(self, peers: Peers) -> list[str]:
        """Count one more pod with these constraints on other pods."""
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
                match_set = self._create(whom)
                touched.update(dict.fromkeys(self._pods_of(match_set)))
            self._idle.pop(whom, None)
            match_set.users += 1
            statement.match_sets[whom] = match_set
        for wanted in wanted_of(peers):
            statement.match_sets[wanted].wanted += 1
        for evened in evened_by(peers):
            statement.match_sets[evened].evened += 1
        for term in peers.anti:
            self._note(statement.match_sets[term.whom,].repelling, term.key)
        for term in peers.affinity:
            self._note(statement.match_sets[term.whom,].drawing, term.key)
        for preferred in peers.preferred:
            self._note(statement.match_sets[preferred.term.whom,].leaning, preferred.term.key)
        return list(touched)

    def _note(self, stated: dict[str, Tally], key: str) -> None:
        if key not in stated:
            stated[key] = Tally()
            self.shape += 1

    def withdraw(self, peers: Peers) -> list[str]:
        """Count one pod less with these constraints on other pods."""
        if peers == NO_PEERS:
            return []
        statement = self._statements[peers]
        statement.users -= 1
        if statement.users:
            return []
        del self._statements[peers]
        for wanted in wanted_of(peers):
            statement.match_sets[wanted].wanted -= 1
        for evened in evened_by(peers):
            statement.match_sets[evened].evened -= 1
        for whom, match_set in statement.match_sets.items():
            match_set.users -= 1
            if not match_set.users:
                self._idle[whom] = match_set
        return self._sweep() if len(self._idle) > max(_IDLE, len(self.match_sets) // 2) else []

    def _create(self, whom: Whom) -> SelectorMatchSet:
        match_set = self.match_sets[whom] = SelectorMatchSet(self._numbers, whom)
        self._numbers += 1
        self._known.clear()
        match_set.traits = self._traits(match_set)
        for trait in match_set.traits:
            self._by_trait.setdefault(trait, {})[match_set] = None
        return match_set

    def _sweep(self) -> list[str]:
        """Remove the match sets that no constraint uses."""
        touched: dict[str, None] = {}
        for whom, match_set in self._idle.items():
            touched.update(dict.fromkeys(self._pods_of(match_set)))
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

    # Selection

    def _traits(self, match_set: SelectorMatchSet) -> list[tuple[str, ...]]:
        """Return the (namespace, key, value) traits of that requirement of a match set that the fewest match sets
        share."""
        first = match_set.whom[0]
        if first.selector is None:
            return []
        spaces = [_ANYWHERE] if first.namespace_selector is not None else list(first.namespaces)
        best: list[tuple[str, ...]] | None = None
        lowest_cost = (0, 0)
        for requirement in first.selector:
            if requirement.operator == "In":
                traits = [(space, requirement.key, value) for space in spaces for value in requirement.values]
                cost = (sum(len(self._by_trait.get(trait, ())) for trait in traits), len(requirement.values))
                if best is None or cost < lowest_cost:
                    best, lowest_cost = [*traits], cost
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

    def _pods_of(self, match_set: SelectorMatchSet) -> Iterator[str]:
        """Yield the uids of the pods in a match set."""
        for trait in match_set.traits:
            spaces = list(self._pods) if trait[0] == _ANYWHERE else [trait[0]]
            for space in spaces:
                pods = self._pods.get(space, {})
                uids = pods if len(trait) == 1 else self._members[trait[1]].get((space, trait[2]), ())
                for uid in uids:
                    if self._selects(match_set, space, dict(pods[uid])):
                        yield uid

    def _matching_sets(self, namespace: str, labels: Labels) -> tuple[SelectorMatchSet, ...]:
        match_sets = self._known.get((namespace, labels))
        if match_sets is None:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            own = dict(labels)
            candidates: dict[SelectorMatchSet, None] = {}
            for space in (namespace, _ANYWHERE):
                candidates.update(self._by_trait.get((space,), {}))
                for key, value in labels:
                    if key in self._members:
                        candidates.update(self._by_trait.get((space, key, value), {}))
            selecting = [match_set for match_set in candidates if self._selects(match_set, namespace, own)]
            match_sets = self._known[namespace, labels] = tuple(
                sorted(selecting, key=lambda match_set: match_set.number)
            )
        return match_sets

    def _selects(self, match_set: SelectorMatchSet, namespace: str, labels: Mapping[str, str]) -> bool:
        spaces = self.namespaces.get(namespace, {})
        return all(
            selection.selector is not None
            and selection.reaches(namespace, spaces)
            and selects(selection.selector, labels)
            for selection in match_set.whom
        )


def whom_of(peers: Peers) -> list[Whom]:
    """Return all sets of pods that the constraints select, each once."""
    sets: dict[Whom, None] = {}
    for term in (*peers.affinity, *peers.anti, *(preferred.term for preferred in peers.preferred)):
        sets[term.whom,] = None
    sets.update(dict.fromkeys((constraint.whom,) for constraint in peers.spread))
    if peers.affinity:
        sets[required_affinity_whom(peers)] = None
    return list(sets)


def required_affinity_whom(peers: Peers) -> Whom:
    """Return the selections of a pod's required affinity as one: another pod counts only if all terms match it."""
    return tuple(dict.fromkeys(term.whom for term in peers.affinity))


def wanted_of(peers: Peers) -> list[Whom]:
    """Return the sets of pods of which one more in the right domain can make nodes feasible for this pod."""
    sets: list[Whom] = [(constraint.whom,) for constraint in peers.spread if constraint.required]
    if peers.affinity:
        sets.append(required_affinity_whom(peers))
    return list(dict.fromkeys(sets))


def evened_by(peers: Peers) -> list[Whom]:
    """Return the sets on which the pod has a spread constraint."""
    return list(dict.fromkeys((constraint.whom,) for constraint in peers.spread))

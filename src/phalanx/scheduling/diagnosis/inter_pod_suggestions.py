"""The smallest change that would let a pod in where other pods keep it out."""

from __future__ import annotations

import numpy as np

from phalanx.cluster.affinity.domains import DomainCounter, LabelDomains
from phalanx.cluster.affinity.state import (
    MISSING_LABEL,
    NOT_NEAR,
    TOO_NEAR,
    UNEVEN,
    UNWELCOME,
    AffinityState,
    SpreadConstraint,
)
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.node_table import NodeTable
from phalanx.cluster.resource_space import BoolArray
from phalanx.model.peers import PodSelection

# So many domains are named.
_NAMED = 3


def peer_remedy(reason: str, pod_class: ClassRecord, nodes: NodeTable, room: BoolArray) -> str | None:
    """What would open the rows with `room` that are closed for a reason; None for reasons of others."""
    if reason not in (MISSING_LABEL, UNEVEN, NOT_NEAR, TOO_NEAR, UNWELCOME):
        return None
    affinity_state = pod_class.affinity_state(nodes.affinity)
    if reason == MISSING_LABEL:
        keys = " and ".join(dict.fromkeys(each.rule.key for each in affinity_state.spread))
        return f"label nodes with {keys}"
    if reason == UNEVEN:
        return _even_out(affinity_state, room)
    if reason == NOT_NEAR:
        return _be_near(affinity_state, pod_class)
    if reason == TOO_NEAR:
        keys = " and ".join(dict.fromkeys(_key(each) for each in affinity_state.anti_affinity))
        return f"add a node in another {keys}, or relax podAntiAffinity: {_occupied(affinity_state.anti_affinity)}"
    where = _occupied(affinity_state.existing_anti_affinity)
    return f"wait for pods that tolerate no such pod beside them to leave: {where}"


def wider_skew(pod_class: ClassRecord, nodes: NodeTable, room: BoolArray) -> str:
    """The maxSkew that would let a pod onto rows with room; "" where a spread constraint keeps it from none."""
    if not pod_class.affinity.restricts:
        return ""
    found = [_skew(each, room) for each in pod_class.affinity_state(nodes.affinity).spread]
    return " and ".join(
        f"set maxSkew to {skew} for {each.rule.key}"
        for each, skew in zip(pod_class.affinity_state(nodes.affinity).spread, found, strict=True)
        if skew > each.rule.max_skew
    )


def _even_out(affinity_state: AffinityState, room: BoolArray) -> str:
    """For the first constraint that is in the way."""
    each = next(
        (each for each in affinity_state.spread if _skew(each, room) > each.rule.max_skew), affinity_state.spread[0]
    )
    counts, present = each.counter.counts[:-1], each.counter.region.present[:-1] > 0
    domains, eligible = each.domains, int(present.sum())
    wider = f"set maxSkew to {_skew(each, room)}"
    if eligible < each.rule.min_domains:
        more = each.rule.min_domains - eligible
        return f"add nodes in {more} more domain(s) of {domains.key}, lower minDomains to {eligible}, or {wider}"
    if not eligible:
        return f"label nodes with {domains.key}"
    least = each.least()
    emptiest = [domains.values[place] for place in np.flatnonzero(present & (counts == least)).tolist()]
    return (
        f"make room in {domains.key} {_listed(emptiest)}, which has {least} of these pods while others have up to "
        f"{int(counts[present].max())}, or {wider}"
    )


def _skew(each: SpreadConstraint, room: BoolArray) -> int:
    """The maxSkew with which one of the rows with room would be open."""
    ids = each.domains.ids[room[: len(each.domains.ids)]]
    ids = ids[ids >= 0]
    if not len(ids):
        return each.rule.max_skew
    return max(each.rule.max_skew, int(each.counter.counts[ids].min()) + each.own - each.least())


def _be_near(affinity_state: AffinityState, pod_class: ClassRecord) -> str:
    near = affinity_state.affinity
    assert near is not None
    for counter in near.counters:
        where = [counter.region.domains.values[place] for place in np.flatnonzero(counter.counts[:-1] > 0).tolist()]
        if where:
            return f"make room in {_key(counter)} {_listed(where)}, where the pods are that it has to be near to"
    wanted = " that are also ".join(dict.fromkeys(_named(term.whom) for term in pod_class.affinity.peers.affinity))
    keys = " and ".join(dict.fromkeys(_key(counter) for counter in near.counters))
    return f"start pods with {wanted} on nodes with the label {keys}, or relax podAffinity"


def _occupied(counters: list[DomainCounter]) -> str:
    """The domains that are closed, per label."""
    closed: dict[str, set[str]] = {}
    for counter in counters:
        domains: LabelDomains = counter.region.domains
        places = np.flatnonzero(counter.counts[:-1] > 0).tolist()
        closed.setdefault(domains.key, set()).update(domains.values[place] for place in places)
    parts = [f"{key} {_listed(sorted(values))}" for key, values in closed.items() if values]
    return f"there are some in {' and in '.join(parts)}"


def _key(counter: DomainCounter) -> str:
    return counter.region.domains.key


def _named(whom: PodSelection) -> str:
    """A selector as kubectl takes it."""
    if whom.selector is None:
        return "no labels at all (the term has no labelSelector)"
    words = {"In": "in", "NotIn": "notin"}
    parts = [
        f"{each.key}={each.values[0]}"
        if each.operator == "In" and len(each.values) == 1
        else f"{each.key} {words[each.operator]} ({', '.join(each.values)})"
        if each.operator in words
        else f"{each.key}"
        if each.operator == "Exists"
        else f"!{each.key}"
        for each in whom.selector
    ]
    return ",".join(parts) or "any labels"


def _listed(values: list[str]) -> str:
    shown = ", ".join(sorted(values)[:_NAMED])
    more = len(values) - _NAMED
    return f"{shown} and {more} more" if more > 0 else shown

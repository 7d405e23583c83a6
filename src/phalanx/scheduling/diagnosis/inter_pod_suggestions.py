"""Smallest changes for pods that affinity, anti-affinity or spread constraints exclude from nodes."""

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
from phalanx.model.text.counts import count_of, first_of

# Maximum number of domains in a message.
_NAMED = 3


def peer_remedy(reason: str, pod_class: ClassRecord, nodes: NodeTable, room: BoolArray) -> str | None:
    """Return the change that makes the node rows with `room` eligible, for a reason about other pods; None for
    reasons of other filters."""
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
    return f"wait until pods with anti-affinity to this pod terminate: {where}"


def wider_skew(pod_class: ClassRecord, nodes: NodeTable, room: BoolArray) -> str:
    """Return the change of maxSkew that makes rows with `room` eligible; "" if none is excluded."""
    if not pod_class.affinity.restricts:
        return ""
    found = [_skew(each, room) for each in pod_class.affinity_state(nodes.affinity).spread]
    return " and ".join(
        f"set maxSkew to {skew} for {each.rule.key}"
        for each, skew in zip(pod_class.affinity_state(nodes.affinity).spread, found, strict=True)
        if skew > each.rule.max_skew
    )


def _even_out(affinity_state: AffinityState, room: BoolArray) -> str:
    """Return the change that helps against the first spread constraint that excludes the pod."""
    each = next(
        (each for each in affinity_state.spread if _skew(each, room) > each.rule.max_skew), affinity_state.spread[0]
    )
    counts, present = each.counter.counts[:-1], each.counter.region.present[:-1] > 0
    domains, eligible = each.domains, int(present.sum())
    wider = f"set maxSkew to {_skew(each, room)}"
    if eligible < each.rule.min_domains:
        more = each.rule.min_domains - eligible
        return (
            f"add nodes in {count_of(more, 'more domain')} of {domains.key}, lower minDomains to {eligible}, "
            f"or {wider}"
        )
    if not eligible:
        return f"label nodes with {domains.key}"
    least = each.least()
    emptiest = [domains.values[place] for place in np.flatnonzero(present & (counts == least)).tolist()]
    return (
        f"make room in {domains.key} {first_of(sorted(emptiest), _NAMED)} ({count_of(least, 'matching pod')}; "
        f"other domains have up to {int(counts[present].max())}), or {wider}"
    )


def _skew(each: SpreadConstraint, room: BoolArray) -> int:
    """Return the smallest maxSkew that makes one of the rows with `room` eligible."""
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
            return f"make room in {_key(counter)} {first_of(sorted(where), _NAMED)}, the domain of its podAffinity"
    wanted = " and also ".join(dict.fromkeys(_named(term.whom) for term in pod_class.affinity.peers.affinity))
    keys = " and ".join(dict.fromkeys(_key(counter) for counter in near.counters))
    return f"start pods with {wanted} on nodes with the label {keys}, or relax podAffinity"


def _occupied(counters: list[DomainCounter]) -> str:
    """Return for messages the topology domains that anti-affinity excludes, per label."""
    closed: dict[str, set[str]] = {}
    for counter in counters:
        domains: LabelDomains = counter.region.domains
        places = np.flatnonzero(counter.counts[:-1] > 0).tolist()
        closed.setdefault(domains.key, set()).update(domains.values[place] for place in places)
    parts = [f"{key} {first_of(sorted(values), _NAMED)}" for key, values in closed.items() if values]
    return f"such pods are in {' and in '.join(parts)}"


def _key(counter: DomainCounter) -> str:
    return counter.region.domains.key


def _named(whom: PodSelection) -> str:
    """Return a label selector in kubectl's syntax."""
    if whom.selector is None:
        return "no labels (the term has no labelSelector)"
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

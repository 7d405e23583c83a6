"""Diagnosis of pods of a class for which no node is left: counts over all nodes, shared by all gangs and pods with
the same demand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from phalanx.cluster.affinity.state import UNEVEN
from phalanx.cluster.allocators.ports import TAKEN
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.devices.claims import NOT_ALLOCATABLE, TAINTED
from phalanx.cluster.maintenance import CLOSE_FOR_MAINTENANCE, IN_MAINTENANCE
from phalanx.cluster.node_table import NodeTable
from phalanx.cluster.resource_space import PODS_COLUMN, BoolArray
from phalanx.model.node import CORDONED
from phalanx.model.pools import POOL_LABEL, PoolRule
from phalanx.model.text.counts import count_of
from phalanx.model.text.quantity import format_quantity
from phalanx.model.verdict import NodeCount
from phalanx.scheduling.diagnosis.inter_pod_suggestions import peer_remedy, wider_skew
from phalanx.scheduling.refusals.no_room import Shortage

if TYPE_CHECKING:
    from phalanx.scheduling.framework.plugin_runtime import PluginRuntime

UNSCHEDULABLE = "node(s) were unschedulable"
_CORDON_TAINT = f"taint {{{CORDONED.key}:"


class Spot(msgspec.Struct, frozen=True):
    """Eligible nodes (bool[N]), their name in messages, and the change that makes more nodes eligible."""

    rows: BoolArray
    where: str
    change: str = ""


def shortage(
    plugin_runtime: PluginRuntime,
    nodes: NodeTable,
    pod_class: ClassRecord,
    placed: int = 0,
    need: int = 1,
    missing: int = 1,
    culprit: int = 0,
    spot: Spot | None = None,
    alike: Sequence[int] = (),
) -> Shortage:
    """Return the refusal of `missing` more pods of the class, on all nodes or on those of `spot`.

    Call it while the placed members are still charged to the nodes: then no node fits a further copy, and each
    node counts for its reason. `alike` are the rows of placed copies: their resources cannot be freed.
    """
    where = spot.where if spot is not None else ""
    refusal = plugin_runtime.pre_filter(pod_class)
    if refusal is not None:
        change = "remove these fields from the pod, or use another scheduler"
        return Shortage(
            pod_class, len(nodes), change=change, refusal=refusal, placed=placed, need=need, culprit=culprit
        )
    unready = plugin_runtime.unready(pod_class)
    if unready is not None:
        change = "create or correct the named object; the pod is retried then"
        if pod_class.spec.reservation is not None and pod_class.spec.reservation.inside:
            change = "wait until the reservation is open, or remove the reservation annotation of the pod"
        return Shortage(
            pod_class, len(nodes), change=change, unready=unready, placed=placed, need=need, culprit=culprit
        )
    rows = nodes.alive if spot is None else nodes.alive & spot.rows
    counts, eligible, lacking = _node_counts(plugin_runtime, nodes, pod_class, rows)
    change = _smallest_change(plugin_runtime, nodes, pod_class, missing, eligible, lacking, rows, alike)
    if spot is not None:
        change = ", or ".join(filter(None, [f"{change} there", spot.change]))
    total = int(np.count_nonzero(rows))
    some = bool(np.count_nonzero(eligible))
    return Shortage(pod_class, total, counts, some, change, placed=placed, need=need, where=where, culprit=culprit)


def _node_counts(
    plugin_runtime: PluginRuntime, nodes: NodeTable, pod_class: ClassRecord, rows: BoolArray
) -> tuple[tuple[NodeCount, ...], BoolArray, dict[int, int]]:
    """Return the reasons with counts, most frequent first (then by text), bool[N] of the nodes that pass the
    filters, and the number of these that lack a resource by its column.

    A node that lacks several resources counts for each of them, as in kube-scheduler's messages.
    """
    open_rows = rows.copy()
    counts: dict[str, int] = {}
    names: dict[str, str] = {}
    lacking: dict[int, int] = {}
    for reason, out in plugin_runtime.explain(pod_class, nodes, slice(None)):
        rejected = int(np.count_nonzero(open_rows & out))
        if rejected:
            counts[reason] = counts.get(reason, 0) + rejected
            open_rows &= ~out
    for column, amount in pod_class.demand:
        short = int(np.count_nonzero(open_rows & (nodes.idle[column] < amount)))
        if short:
            name = nodes.space.names[column]
            reason = "Too many pods" if column == PODS_COLUMN else f"Insufficient {name}"
            counts[reason] = counts.get(reason, 0) + short
            names[reason], lacking[column] = name, short
    ranked = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    named = tuple(NodeCount(reason, count, names.get(reason, "")) for reason, count in ranked)
    return named, open_rows, lacking


def _smallest_change(
    plugin_runtime: PluginRuntime,
    nodes: NodeTable,
    pod_class: ClassRecord,
    missing: int,
    eligible: BoolArray,
    lacking: Mapping[int, int],
    among: BoolArray,
    alike: Sequence[int],
) -> str:
    if not np.count_nonzero(among):
        return "add a node"
    if not np.count_nonzero(eligible):
        return _open_nodes(plugin_runtime, nodes, pod_class, among, missing, alike)
    (rows,) = eligible.nonzero()
    short: list[tuple[int, str, int, int]] = []
    asked = missing + (int(np.count_nonzero(eligible[list(alike)])) if alike else 0)
    for column, amount in pod_class.demand if lacking else ():
        if column not in lacking:
            continue
        name, offered = nodes.space.names[column], nodes.allocatable[column].take(rows)
        largest = int(offered.max())
        if largest < amount:
            return _too_large(name, amount, largest, missing)
        # Placed members are not freed: the amount beyond the capacity of all nodes has to be added.
        added = min(missing, max(0, asked - int((offered // amount).sum())))
        short.append((lacking[column], name, amount, added))
    highest = max((entry[0] for entry in short), default=0)
    needs = _needs([entry[1:] for entry in short if entry[0] == highest], missing)
    where = "" if len(rows) == np.count_nonzero(among) else f" on the {count_of(len(rows), 'eligible node')}"
    uneven = (
        _alone_in_the_way(plugin_runtime, nodes, pod_class, among).get(UNEVEN)
        if pod_class.affinity.peers.spread
        else None
    )
    wider = wider_skew(pod_class, nodes, uneven) if uneven is not None else ""
    return f"{needs}{where}" + (f", or {wider}" if wider else "")


def _needs(short: Iterable[tuple[str, int, int]], missing: int) -> str:
    """Return the change that adds and frees the amounts that pods lack, of each (resource, amount per pod, pods
    that need added capacity)."""
    added = [_amount_short(name, amount, count) for name, amount, count in short if count]
    freed = [_amount_short(name, amount, missing - count) for name, amount, count in short if count < missing]
    parts = [f"add {' and '.join(added)}"] if added else []
    if freed or not added:
        parts.append(f"free or add {' and '.join(freed) or 'resources'}" + " more" * bool(added))
    return " and ".join(parts)


def _too_large(name: str, amount: int, largest: int, missing: int) -> str:
    offers = f"{format_quantity(amount, name)} {name}"
    wanted = f"add a node that offers {offers}"
    if missing > 1:
        wanted = f"add nodes that offer {offers} to each of {missing} pods"
    if not largest:
        return f"{wanted} (0 eligible nodes offer {name})"
    offered = f"{format_quantity(largest, name)} {name}"
    return f"request at most {offered} per pod, or {wanted} (the largest eligible node offers {offered})"


def _amount_short(name: str, amount: int, missing: int) -> str:
    if name == "pods":
        return count_of(missing, "pod slot")
    whole = format_quantity(amount * missing, name)
    return f"{whole} {name}" if missing == 1 else f"{whole} {name} ({missing} x {format_quantity(amount, name)})"


def _open_nodes(
    plugin_runtime: PluginRuntime,
    nodes: NodeTable,
    pod_class: ClassRecord,
    among: BoolArray,
    missing: int,
    alike: Sequence[int],
) -> str:
    """Return the change against the filter reason that alone excludes the most nodes with enough free resources."""
    parts = _alone_in_the_way(plugin_runtime, nodes, pod_class, among)
    if not parts:
        return "add a node that matches the selectors, affinity and tolerations of the pod"
    ranked = sorted(parts, key=lambda reason: -int(parts[reason].sum()))
    if ranked[0] == TAKEN and set(np.flatnonzero(parts[ranked[0]]).tolist()) <= set(alike):
        # Members of its own gang use the port on these nodes, so another port would be in use too.
        return f"add {count_of(missing, 'node')} (each node takes 1 pod per host port), or lower the minimum"
    # A fix on nodes that the pod selects comes first, even where more nodes are outside its selection.
    selected = [reason for reason in ranked if not _is_mismatch(reason)]
    first = (selected or ranked)[0]
    named = [first] if _is_mismatch(first) or not _is_mismatch(ranked[0]) else [first, ranked[0]]
    return ", or ".join(
        f"{peer_remedy(reason, pod_class, nodes, parts[reason]) or _remedy(reason, pod_class)} "
        f"(makes {count_of(int(parts[reason].sum()), 'node')} eligible)"
        for reason in named
    )


def _alone_in_the_way(
    plugin_runtime: PluginRuntime, nodes: NodeTable, pod_class: ClassRecord, among: BoolArray
) -> dict[str, BoolArray]:
    """Return for each filter reason bool[N] of the nodes with enough free resources that only this reason
    excludes."""
    room = among & (nodes.idle >= pod_class.min_idle).all(axis=0)
    parts = plugin_runtime.explain(pod_class, nodes, slice(None))
    # Kubernetes taints a cordoned node: the taint and spec.unschedulable count as one reason.
    cordoned = np.sum([out for reason, out in parts if reason == UNSCHEDULABLE], axis=0, dtype=np.bool_)
    parts = [(reason, out & ~cordoned if _CORDON_TAINT in reason else out) for reason, out in parts]
    objections = np.sum([out for _, out in parts], axis=0)
    blocked: dict[str, BoolArray] = {}
    for reason, out in parts:
        rows: BoolArray = room & out & (objections == 1)
        if rows.any():
            blocked[reason] = blocked[reason] | rows if reason in blocked else rows
    return blocked


def _is_mismatch(reason: str) -> bool:
    return "affinity/selector" in reason


def _remedy(reason: str, pod_class: ClassRecord) -> str:
    if reason == UNSCHEDULABLE:
        return "uncordon nodes"
    if "untolerated taint" in reason:
        taint = reason.split("taint ", 1)[1]
        return f"tolerate the taint {taint} or remove it"
    if _is_mismatch(reason):
        return "label nodes to match the selector or affinity of the pod, or relax it"
    if reason == TAKEN:
        return "use another host port"
    if reason == IN_MAINTENANCE:
        return "wait until the maintenance is over"
    if reason.startswith(CLOSE_FOR_MAINTENANCE):
        return "set activeDeadlineSeconds so that it ends before the maintenance, or wait until that is over"
    if "node group" in reason:
        return _group_remedy(pod_class.spec.pool)
    if reason.startswith(NOT_ALLOCATABLE + TAINTED):
        return "delete the named DeviceTaintRule, or tolerate its taint in the request of the claim"
    if reason == NOT_ALLOCATABLE:
        return "free or add devices that match its claims"
    return f"remove the cause of: {reason}"


def _group_remedy(rule: PoolRule | None) -> str:
    groups = rule.permitted if rule is not None else ()
    if not groups:
        return "list node groups in spec.affinity.nodeGroupAffinity of the queue"
    return f"label nodes {POOL_LABEL} with a node group of the queue ({', '.join(groups)})"

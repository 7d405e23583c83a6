"""Why there is no room: counted once over all nodes, told to everyone who asks for the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from phalanx.cluster.affinity.state import UNEVEN
from phalanx.cluster.allocators.ports import TAKEN
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.devices.claims import NOT_ALLOCATABLE
from phalanx.cluster.maintenance import CLOSE_FOR_MAINTENANCE, IN_MAINTENANCE
from phalanx.cluster.node_table import NodeTable
from phalanx.cluster.resource_space import PODS_COLUMN, BoolArray
from phalanx.model.node import CORDONED
from phalanx.model.pools import POOL_LABEL, PoolRule
from phalanx.model.text.quantity import format_quantity
from phalanx.model.verdict import NodeCount
from phalanx.scheduling.diagnosis.inter_pod_suggestions import peer_remedy, wider_skew
from phalanx.scheduling.refusals.no_room import Shortage

if TYPE_CHECKING:
    from phalanx.scheduling.framework.plugin_runtime import PluginRuntime

UNSCHEDULABLE = "node(s) were unschedulable"
_CORDON_TAINT = f"taint {{{CORDONED.key}:"


class Spot(msgspec.Struct, frozen=True):
    """The nodes (bool[N]) that come into question, what people call them, and what would let others in."""

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
    """Why `missing` more copies of the class have no room, anywhere or on the spot.

    To be asked while what has been placed is still on the arrays: then no node takes a further copy, and the
    counts say why for each. `alike` are the rows of the copies among it, which nobody can free.
    """
    where = spot.where if spot is not None else ""
    refusal = plugin_runtime.pre_filter(pod_class)
    if refusal is not None:
        change = f"remove the field(s) from the pod, or leave it to another scheduler: {refusal}"
        return Shortage(
            pod_class, len(nodes), change=change, refusal=refusal, placed=placed, need=need, culprit=culprit
        )
    unready = plugin_runtime.unready(pod_class)
    if unready is not None:
        change = "create or correct what is named; the pod goes on by itself"
        if pod_class.spec.reservation is not None and pod_class.spec.reservation.inside:
            change = "wait until it is open to the pod, or remove the annotation by which the pod asks for it"
        return Shortage(
            pod_class, len(nodes), change=change, unready=unready, placed=placed, need=need, culprit=culprit
        )
    rows = nodes.alive if spot is None else nodes.alive & spot.rows
    counts, eligible = _node_counts(plugin_runtime, nodes, pod_class, rows)
    change = _smallest_change(plugin_runtime, nodes, pod_class, missing, eligible, rows, alike)
    if spot is not None:
        change = ", or ".join(filter(None, [f"{change} there", spot.change]))
    total = int(rows.sum())
    some = bool(eligible.any())
    return Shortage(pod_class, total, counts, some, change, placed=placed, need=need, where=where, culprit=culprit)


def _node_counts(
    plugin_runtime: PluginRuntime, nodes: NodeTable, pod_class: ClassRecord, rows: BoolArray
) -> tuple[tuple[NodeCount, ...], BoolArray]:
    """Reasons with counts, most frequent first (then by text), and bool[N] of the nodes that pass the filters.

    A node that several resources rule out counts for each of them, as in kube-scheduler's messages.
    """
    open_rows = rows.copy()
    counts: dict[str, int] = {}
    lacking: dict[str, str] = {}
    for reason, out in plugin_runtime.explain(pod_class, nodes, slice(None)):
        found = int((open_rows & out).sum())
        if found:
            counts[reason] = counts.get(reason, 0) + found
            open_rows &= ~out
    for column, amount in zip(pod_class.columns.tolist(), pod_class.amounts.tolist(), strict=True):
        short = int((open_rows & (nodes.idle[column] < amount)).sum())
        if short:
            name = nodes.space.names[column]
            reason = "Too many pods" if column == PODS_COLUMN else f"Insufficient {name}"
            counts[reason] = counts.get(reason, 0) + short
            lacking[reason] = name
    ranked = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return tuple(NodeCount(reason, count, lacking.get(reason, "")) for reason, count in ranked), open_rows


def _smallest_change(
    plugin_runtime: PluginRuntime,
    nodes: NodeTable,
    pod_class: ClassRecord,
    missing: int,
    eligible: BoolArray,
    among: BoolArray,
    alike: Sequence[int],
) -> str:
    if not among.any():
        return "add a node"
    if not eligible.any():
        return _open_nodes(plugin_runtime, nodes, pod_class, among, missing, alike)
    rows = np.flatnonzero(eligible)
    short: list[tuple[int, str, int, int]] = []
    asked = missing + int(eligible[list(alike)].sum())
    for column, amount in zip(pod_class.columns.tolist(), pod_class.amounts.tolist(), strict=True):
        name = nodes.space.names[column]
        largest = int(nodes.allocatable[column, rows].max())
        if largest < amount:
            return _too_large(name, amount, largest, missing)
        out = int((nodes.idle[column, rows] < amount).sum())
        if out:
            # Who is placed leaves no room to free: what all nodes together cannot hold has to be added.
            added = min(missing, max(0, asked - int((nodes.allocatable[column, rows] // amount).sum())))
            short.append((out, name, amount, added))
    most = max((each[0] for each in short), default=0)
    needs = _needs([each[1:] for each in short if each[0] == most], missing)
    where = "" if len(rows) == int(among.sum()) else f" on the {len(rows)} node(s) that the pod may use"
    uneven = (
        _alone_in_the_way(plugin_runtime, nodes, pod_class, among).get(UNEVEN)
        if pod_class.affinity.peers.spread
        else None
    )
    wider = wider_skew(pod_class, nodes, uneven) if uneven is not None else ""
    return f"{needs}{where}" + (f", or {wider}" if wider else "")


def _needs(short: Iterable[tuple[str, int, int]], missing: int) -> str:
    """What has to be added, and what freed or added, of each (resource, amount per pod, pods to add room for)."""
    added = [_amount_short(name, amount, count) for name, amount, count in short if count]
    freed = [_amount_short(name, amount, missing - count) for name, amount, count in short if count < missing]
    parts = [f"add {' and '.join(added)}"] if added else []
    if freed or not added:
        parts.append(f"free or add {' and '.join(freed) or 'room'}" + " more" * bool(added))
    return " and ".join(parts)


def _too_large(name: str, amount: int, largest: int, missing: int) -> str:
    offers = f"{format_quantity(amount, name)} {name}"
    wanted = f"add a node that offers {offers}"
    if missing > 1:
        wanted = f"add nodes that offer {offers} to each of {missing} pods"
    if not largest:
        return f"{wanted} (no eligible node offers any)"
    offered = f"{format_quantity(largest, name)} {name}"
    return f"request at most {offered} per pod, or {wanted} (no eligible node offers more than {offered})"


def _amount_short(name: str, amount: int, missing: int) -> str:
    if name == "pods":
        return f"{missing} pod slot(s)"
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
    """The one reason whose removal opens most nodes that would have room."""
    parts = _alone_in_the_way(plugin_runtime, nodes, pod_class, among)
    if not parts:
        return "add a node that the pod's selectors, affinity and tolerations accept"
    ranked = sorted(parts, key=lambda reason: -int(parts[reason].sum()))
    if ranked[0] == TAKEN and set(np.flatnonzero(parts[ranked[0]]).tolist()) <= set(alike):
        # Its own mates have the port there: another one would be theirs too.
        return f"add {missing} node(s), as no two of these pods can share one (hostPort), or lower the minimum"
    # Nodes that the pod asks for itself are nearer than others, however many there are of these.
    asked_for = [reason for reason in ranked if not _is_mismatch(reason)]
    first = (asked_for or ranked)[0]
    named = [first] if _is_mismatch(first) or not _is_mismatch(ranked[0]) else [first, ranked[0]]
    return ", or ".join(
        f"{peer_remedy(reason, pod_class, nodes, parts[reason]) or _remedy(reason, pod_class)} "
        f"({int(parts[reason].sum())} node(s) with room would open)"
        for reason in named
    )


def _alone_in_the_way(
    plugin_runtime: PluginRuntime, nodes: NodeTable, pod_class: ClassRecord, among: BoolArray
) -> dict[str, BoolArray]:
    """reason -> bool[N] of the nodes with room that nothing else closes; in the order of the filters."""
    room = among & (nodes.idle >= pod_class.min_idle).all(axis=0)
    parts = plugin_runtime.explain(pod_class, nodes, slice(None))
    # (The cluster puts a taint on nodes that are cordoned, which goes with that: one thing is in the way, not two.)
    cordoned = np.sum([out for reason, out in parts if reason == UNSCHEDULABLE], axis=0, dtype=np.bool_)
    parts = [(reason, out & ~cordoned if _CORDON_TAINT in reason else out) for reason, out in parts]
    objections = np.sum([out for _, out in parts], axis=0)
    found: dict[str, BoolArray] = {}
    for reason, out in parts:
        opened: BoolArray = room & out & (objections == 1)
        if opened.any():
            found[reason] = found[reason] | opened if reason in found else opened
    return found


def _is_mismatch(reason: str) -> bool:
    return "affinity/selector" in reason


def _remedy(reason: str, pod_class: ClassRecord) -> str:
    if reason == UNSCHEDULABLE:
        return "uncordon nodes"
    if "untolerated taint" in reason:
        taint = reason.split("taint ", 1)[1]
        return f"tolerate the taint {taint} or remove it"
    if _is_mismatch(reason):
        return "label nodes as the pod's selector or affinity asks, or relax it"
    if reason == TAKEN:
        return "choose another host port"
    if reason == IN_MAINTENANCE:
        return "wait until the maintenance is over"
    if reason.startswith(CLOSE_FOR_MAINTENANCE):
        return "let it end before the maintenance by a limit (activeDeadlineSeconds), or wait until that is over"
    if "node group" in reason:
        return _group_remedy(pod_class.spec.pool)
    if reason == NOT_ALLOCATABLE:
        return "free or add devices that its claims ask for"
    return f"remove the cause of: {reason}"


def _group_remedy(rule: PoolRule | None) -> str:
    groups = rule.permitted if rule is not None else ()
    if not groups:
        return "name the node groups that it may use in the queue's spec.affinity.nodeGroupAffinity"
    return f"label nodes {POOL_LABEL} with a group that the queue may use ({', '.join(groups)})"

"""Verdicts: why a gang or a pod is held, with the counts and the smallest change that would help."""

from __future__ import annotations

import numpy as np

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.members import GangRecord, PodRecord
from phalanx.cluster.nodes import NodeTable
from phalanx.cluster.resource_space import PODS_COLUMN, BoolArray
from phalanx.model.gang import Gang, GangKey
from phalanx.model.pod import MemberState
from phalanx.model.quantity import format_quantity
from phalanx.model.verdict import NodeCount, Verdict
from phalanx.scheduling.quorum import Requirement
from phalanx.scheduling.session import Session

NOT_ENOUGH_MEMBERS = "NotEnoughMembers"
NOT_ENOUGH_RESOURCES = "NotEnoughResources"
NO_ELIGIBLE_NODE = "NoEligibleNode"
UNSUPPORTED = "UnsupportedField"
UNREADABLE = "UnreadablePod"
WAITING_FOR_BUNDLE = "WaitingForBundle"
AWAITING_ADMISSION = "AwaitingAdmission"


def members_missing(gang: GangRecord, noun: Gang, need: Requirement) -> Verdict | None:
    """A verdict if the quorum cannot be met by the members that exist, else None."""
    pending = gang.count(MemberState.PENDING)
    counts = gang.counts()
    for role, least in need.roles:
        have = gang.count(MemberState.PENDING, role)
        if have < least:
            minimum = dict(noun.roles)[role]
            held = minimum - least + have
            return Verdict(
                NOT_ENOUGH_MEMBERS,
                f"gang {gang.key} has {held} of the {minimum} {role} members that it needs{_aside(gang)}",
                needed=minimum,
                members=counts.present,
                change=f"create {least - have} more pod(s) of role {role}, or lower minTaskMember.{role} to {held}",
            )
    short = need.total - pending
    if short <= 0:
        return None
    have = noun.min_member - short
    if have < 0:
        have = pending
        short = need.total - pending
    return Verdict(
        NOT_ENOUGH_MEMBERS,
        f"gang {gang.key} has {have} of the {noun.min_member} members that it needs{_aside(gang)}",
        needed=noun.min_member,
        members=counts.present,
        change=f"create {short} more pod(s) of the gang, or lower its minimum to {have}",
    )


def held_by_problem(gang: GangRecord, noun: Gang) -> Verdict:
    assert noun.problem is not None
    return Verdict(
        noun.problem.code,
        f"gang {gang.key} is held: {noun.problem.message}",
        needed=noun.min_member,
        members=gang.counts().present,
        change=noun.problem.message,
    )


def waiting_for_bundle(gang: GangKey, mate: GangKey, why: str) -> Verdict:
    return Verdict(
        WAITING_FOR_BUNDLE,
        f"gang {gang} waits for gang {mate} of its bundle: {why}",
        change=f"help gang {mate} first",
    )


def awaiting_admission(gang: GangRecord, noun: Gang) -> Verdict:
    wanted = ", ".join(f"{format_quantity(amount, name)} {name}" for name, amount in noun.min_resources or ())
    return Verdict(
        AWAITING_ADMISSION,
        f"gang {gang.key} waits to be admitted: its minResources ({wanted}) exceed what may be promised now",
        unschedulable=False,
        needed=noun.min_member,
        members=gang.counts().present,
        change="wait for other groups to finish, lower minResources, or raise overcommit-factor",
    )


def resource_gap(gang: GangRecord, noun: Gang, gaps: list[tuple[str, int]]) -> Verdict:
    text = ", ".join(f"{format_quantity(amount, name)} {name}" for name, amount in gaps)
    return Verdict(
        NOT_ENOUGH_RESOURCES,
        f"gang {gang.key} asks for minResources that the cluster lacks: {text} too little is free",
        needed=noun.min_member,
        members=gang.counts().present,
        change=f"free or add {text}, or lower minResources",
    )


def unreadable(record: PodRecord) -> Verdict:
    return Verdict(
        UNREADABLE, f"pod {record.pod.key} cannot be scheduled: {record.pod.problem}", change="correct the pod"
    )


def does_not_fit(
    session: Session,
    cls: ClassRecord,
    example: PodRecord,
    missing: int,
    gang: GangRecord | None,
    placed: int,
    need: int,
) -> Verdict:
    """Why `missing` more copies of a class fit nowhere, after `placed` of `need` members have been placed.

    To be asked while those placements are still on the arrays: then no node has room for a further copy, and the
    counts say why for each.
    """
    refusal = session.refusal(cls)
    nodes = session.state.nodes
    total = len(nodes)
    head = f"{placed} of the {need} members that gang {gang.key} needs fit; " if gang is not None else ""
    target = f" for {example.pod.name}" if gang is not None else ""
    members = gang.counts().present if gang is not None else 1
    if refusal is not None:
        return Verdict(
            UNSUPPORTED,
            f"{head}pod {example.pod.name} asks for {refusal}",
            needed=need,
            placeable=placed,
            members=members,
            change=f"remove the field(s) from the pod, or leave it to another scheduler: {refusal}",
        )
    counts, eligible = _node_counts(session, cls)
    reasons = ", ".join(f"{part.count} {part.reason}" for part in counts) or "there are no nodes"
    return Verdict(
        NOT_ENOUGH_RESOURCES if eligible.any() else NO_ELIGIBLE_NODE,
        f"{head}0/{total} nodes are available{target}: {reasons}.",
        needed=need,
        placeable=placed,
        members=members,
        nodes=tuple(counts),
        change=_smallest_change(session, cls, missing, eligible),
    )


def _node_counts(session: Session, cls: ClassRecord) -> tuple[list[NodeCount], BoolArray]:
    """Reasons with counts, most frequent first (then by text), and bool[N] of the nodes that pass the filters.

    A node that several resources rule out counts for each of them, as in kube-scheduler's messages.
    """
    nodes = session.state.nodes
    open_rows = nodes.alive.copy()
    counts: dict[str, int] = {}
    for reason, out in session.pipeline.explain(cls, nodes, slice(None)):
        hit = open_rows & out
        found = int(hit.sum())
        if found:
            counts[reason] = counts.get(reason, 0) + found
            open_rows &= ~out
    for column, amount in zip(cls.columns.tolist(), cls.amounts.tolist(), strict=True):
        short = int((open_rows & (nodes.idle[column] < amount)).sum())
        if short:
            name = nodes.space.names[column]
            reason = "Too many pods" if column == PODS_COLUMN else f"Insufficient {name}"
            counts[reason] = counts.get(reason, 0) + short
    ranked = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return [NodeCount(reason, count) for reason, count in ranked], open_rows


def _smallest_change(session: Session, cls: ClassRecord, missing: int, eligible: BoolArray) -> str:
    nodes = session.state.nodes
    if not len(nodes):
        return "add a node"
    if not eligible.any():
        return _open_nodes(session, cls, nodes)
    rows = np.flatnonzero(eligible)
    short: list[tuple[int, str]] = []
    for column, amount in zip(cls.columns.tolist(), cls.amounts.tolist(), strict=True):
        name = nodes.space.names[column]
        largest = int(nodes.allocatable[column, rows].max())
        if largest < amount:
            offered = format_quantity(largest, name)
            return (
                f"request at most {offered} {name} per pod, or add a node that offers "
                f"{format_quantity(amount, name)} (no eligible node offers more than {offered})"
            )
        out = int((nodes.idle[column, rows] < amount).sum())
        if out:
            short.append((-out, _shortage(name, amount, missing)))
    if not short:
        return "no two members fit on one node; add nodes"
    most = min(short)[0]
    needs = " and ".join(text for out, text in short if out == most)
    where = "" if len(rows) == len(nodes) else f" on the {len(rows)} node(s) that the pod may use"
    return f"free or add {needs}{where}"


def _shortage(name: str, amount: int, missing: int) -> str:
    if name == "pods":
        return f"{missing} pod slot(s)"
    whole = format_quantity(amount * missing, name)
    return f"{whole} {name}" if missing == 1 else f"{whole} {name} ({missing} x {format_quantity(amount, name)})"


def _open_nodes(session: Session, cls: ClassRecord, nodes: NodeTable) -> str:
    """The one reason whose removal opens most nodes that would have room."""
    room = nodes.alive & (nodes.idle[cls.columns] >= cls.amounts[:, None]).all(axis=0)
    best: tuple[int, str] | None = None
    parts = session.pipeline.explain(cls, nodes, slice(None))
    for number, (reason, out) in enumerate(parts):
        others = np.zeros_like(out)
        for other, (_, mask) in enumerate(parts):
            if other != number:
                others |= mask
        opened = int((room & out & ~others).sum())
        if opened and (best is None or opened > best[0]):
            best = (opened, reason)
    if best is None:
        return "add a node that the pod's selectors, affinity and tolerations accept"
    opened, reason = best
    return f"{_remedy(reason)} ({opened} node(s) with room would open)"


def _remedy(reason: str) -> str:
    if reason == "node(s) were unschedulable":
        return "uncordon nodes"
    if "untolerated taint" in reason:
        taint = reason.split("taint ", 1)[1]
        return f"tolerate the taint {taint} or remove it"
    if "affinity/selector" in reason:
        return "label nodes as the pod's selector or affinity asks, or relax it"
    if "free ports" in reason:
        return "choose another host port"
    return f"remove the cause of: {reason}"


def _aside(gang: GangRecord) -> str:
    """What keeps existing members from counting."""
    counts = gang.counts()
    parts = [
        f"{count} {word}"
        for count, word in (
            (counts.gated, "gated"),
            (counts.foreign, "of another scheduler"),
            (counts.terminating, "terminating"),
            (counts.succeeded, "succeeded"),
            (counts.failed, "failed"),
        )
        if count
    ]
    return f" ({', '.join(parts)})" if parts else ""

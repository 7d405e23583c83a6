"""`allocate`: gangs onto nodes, whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from phalanx.cluster.members import GangRecord, PodRecord
from phalanx.cluster.transaction import Transaction
from phalanx.model.pod import PlanMark
from phalanx.model.resources import PODS
from phalanx.model.verdict import Verdict
from phalanx.scheduling.explanation import (
    awaiting_admission,
    does_not_fit,
    held_by_problem,
    members_missing,
    resource_gap,
    unreadable,
    waiting_for_bundle,
)
from phalanx.scheduling.quorum import Requirement
from phalanx.scheduling.session import Session
from phalanx.scheduling.work import Unit


def allocate(session: Session) -> None:
    """Walks the units in order: first every quorum of a priority band, then the band's surplus in fair turns.

    A unit that does not fit holds nothing and does not block those behind it.
    """
    for _, band in groupby(session.units, key=lambda unit: session_band(session, unit)):
        surplus: list[GangRecord] = []
        for run in _runs(list(band)):
            if session.should_stop():
                session.plan.complete = False
                return
            if run[0].pod is not None:
                place_alone(session, [unit.pod for unit in run if unit.pod is not None])
            elif place_unit(session, run[0]):
                surplus.extend(gang for gang in run[0].gangs if gang.pending)
        place_surplus(session, surplus)


def session_band(session: Session, unit: Unit) -> tuple[bool, int]:
    """Units that are repaired come first, then by priority (if any plugin orders by it)."""
    if unit.pod is not None:
        return (True, -session.priority(unit.pod))
    repair = any(gang.marks and session.requirement(gang).repair for gang in unit.gangs)
    return (not repair, min(-session.priority(gang) for gang in unit.gangs))


def place_alone(session: Session, pods: list[PodRecord]) -> None:
    """Places identical pods that belong to no gang, one after the other in one step; what fits is bound."""
    cls = pods[0].cls
    for record in pods:
        if record.pod.problem:
            session.judge_pod(record, unreadable(record))
    waiting = [record for record in pods if not record.pod.problem]
    while waiting:
        rows = session.placer.place(cls, len(waiting))
        if not rows:
            break
        transaction = session.state.transaction()
        transaction.place(cls, waiting[: len(rows)], rows)
        for record, row in transaction.commit():
            session.bind(record, row, None, None)
            session.judge_pod(record, None)
        waiting = waiting[len(rows) :]
    if waiting:
        verdict = does_not_fit(session, cls, waiting[0], 1, None, 0, 1)
        for record in waiting:
            session.judge_pod(record, verdict)


def place_unit(session: Session, unit: Unit) -> bool:
    """Places the quorum of every gang of a bundle in one transaction, or nothing. True if all quorums hold."""
    needs: list[tuple[GangRecord, Requirement]] = []
    for gang in unit.gangs:
        verdict = _held(session, unit, gang)
        if verdict is not None:
            _judge_unit(session, unit, gang, verdict)
            return False
        needs.append((gang, session.requirement(gang)))
    if unit.missing:
        mate = unit.missing[0]
        for gang in unit.gangs:
            session.judge_gang(gang.key, waiting_for_bundle(gang.key, mate, "no pod or object declares it"))
        return False
    transaction = session.state.transaction()
    ends: list[tuple[GangRecord, Requirement, int]] = []
    for gang, need in needs:
        before = transaction.placed
        verdict = _place_quorum(session, transaction, gang, need)
        if verdict is not None:
            transaction.rollback()
            _judge_unit(session, unit, gang, verdict)
            return False
        ends.append((gang, need, transaction.placed - before))
    _commit(session, transaction, ends)
    return True


def place_surplus(session: Session, gangs: list[GangRecord]) -> None:
    """Members above the minimum, best effort: one member per gang and turn, so that no gang takes all the room."""
    turns = [(gang, _in_order(session, gang)) for gang in gangs]
    while turns:
        left: list[tuple[GangRecord, list[PodRecord]]] = []
        for gang, members in turns:
            if session.should_stop():
                session.plan.complete = False
                return
            head = members[0]
            size = _run_length(members) if len(turns) == 1 else 1
            rows = [] if head.pod.problem else session.placer.place(head.cls, size)
            if rows:
                transaction = session.state.transaction()
                transaction.place(head.cls, members[: len(rows)], rows)
                for record, row in transaction.commit():
                    session.bind(record, row, gang.key, None)
                members = members[len(rows) :]
            else:
                same = [member for member in members if member.cls is head.cls]
                verdict = unreadable(head) if head.pod.problem else _surplus_verdict(session, gang, same)
                for member in same:
                    session.judge_pod(member, verdict)
                members = [member for member in members if member.cls is not head.cls]
            if members:
                left.append((gang, members))
        turns = left


def _surplus_verdict(session: Session, gang: GangRecord, members: list[PodRecord]) -> Verdict:
    return does_not_fit(session, members[0].cls, members[0], 1, None, 0, 1)


def _held(session: Session, unit: Unit, gang: GangRecord) -> Verdict | None:
    """What holds a gang before any node is looked at."""
    noun = gang.noun
    assert noun is not None
    if noun.problem is not None:
        return held_by_problem(gang, noun)
    if not session.is_admitted(gang):
        if "enqueue" in session.pipeline.policy.actions:
            return awaiting_admission(gang, noun)
        session.admit(gang)
    need = session.requirement(gang)
    verdict = members_missing(gang, noun, need)
    if verdict is None and need.total and not noun.admission and noun.min_resources:
        gaps = _resource_gaps(session, gang)
        verdict = resource_gap(gang, noun, gaps) if gaps else None
    return verdict


def _resource_gaps(session: Session, gang: GangRecord) -> list[tuple[str, int]]:
    """What minResources ask beyond what is idle in all (the gang's own members counted as idle).

    The coscheduling plugin's test before it tries a group (research/coscheduling.md, section 2). A sum can only
    say no: whether the members really fit is for the placement to find out.
    """
    assert gang.noun is not None
    nodes = session.state.nodes
    wanted = dict(gang.noun.min_resources or ())
    wanted.setdefault(PODS, gang.noun.min_member)
    gaps = []
    for name, amount in sorted(wanted.items()):
        column = nodes.space.find(name)
        idle = int(nodes.idle[column].clip(min=0).sum()) if column is not None else 0
        own = sum(
            int(member.footprint.usage[column])
            for member in gang.members.values()
            if column is not None and member.row >= 0 and not member.pod.finished
        )
        if amount > idle + own:
            gaps.append((name, amount - idle - own))
    return gaps


def _place_quorum(
    session: Session, transaction: Transaction, gang: GangRecord, need: Requirement
) -> Verdict | None:
    """Places what the quorum asks for within the transaction; a verdict if that is impossible."""
    if need.satisfied:
        return None
    waiting = _in_order(session, gang)
    placed = 0
    for role, least in need.roles:
        chosen = [member for member in waiting if member.pod.role == role]
        done, failed = _place_some(session, transaction, chosen, least)
        placed += len(done)
        if len(done) < least:
            return _shortfall(session, gang, failed, least - len(done), placed, need.total)
        waiting = [member for member in waiting if member.pod.uid not in done]
    rest = need.total - placed
    done, failed = _place_some(session, transaction, waiting, rest)
    placed += len(done)
    if len(done) < rest:
        return _shortfall(session, gang, failed, rest - len(done), placed, need.total)
    return None


def _place_some(
    session: Session, transaction: Transaction, members: list[PodRecord], count: int
) -> tuple[set[str], list[PodRecord]]:
    """Places `count` of the members, hardest class first within a priority; (uids placed, members that failed).

    A class of which no more fits is passed over: another member may fill the quorum in its stead.
    """
    done: set[str] = set()
    failed: list[PodRecord] = []
    for group in _by_hardness(session, members):
        cls = group[0].cls
        if group[0].pod.problem:
            failed.extend(group)
            continue
        while group and len(done) < count:
            rows = session.placer.place(cls, min(len(group), count - len(done)))
            if not rows:
                failed.extend(group)
                break
            transaction.place(cls, group[: len(rows)], rows)
            done.update(member.pod.uid for member in group[: len(rows)])
            group = group[len(rows) :]
        if len(done) >= count:
            break
    return done, failed


def _by_hardness(session: Session, members: list[PodRecord]) -> list[list[PodRecord]]:
    """Members grouped by class: higher priority first, then fewest eligible nodes, then largest share of the
    cluster, then the order of the members. Placing the hard ones first is what finds room where there is some.
    """
    groups: dict[tuple[int, int, bool], list[PodRecord]] = {}
    for member in members:
        groups.setdefault((-member.pod.priority, member.cls.number, bool(member.pod.problem)), []).append(member)
    if len(groups) == 1:
        return list(groups.values())
    totals = session.totals()
    names = session.state.space.names

    def hardness(entry: tuple[int, list[PodRecord]]) -> tuple[int, int, float, int]:
        position, group = entry
        cls = group[0].cls
        eligible = int(session.placer.view(cls).mask.sum())
        share = max(
            amount / max(1, totals.get(names[column], (0, 0))[0])
            for column, amount in zip(cls.columns.tolist(), cls.amounts.tolist(), strict=True)
        )
        return (-group[0].pod.priority, eligible, -share, position)

    return [group for _, group in sorted(enumerate(groups.values()), key=hardness)]


def _shortfall(
    session: Session, gang: GangRecord, failed: list[PodRecord], missing: int, placed: int, needed: int
) -> Verdict:
    example = failed[0]
    if example.pod.problem:
        return unreadable(example)
    return does_not_fit(session, example.cls, example, missing, gang, placed, needed)


def _commit(session: Session, transaction: Transaction, ends: list[tuple[GangRecord, Requirement, int]]) -> None:
    placed = iter(transaction.commit())
    for gang, need, count in ends:
        assert gang.noun is not None
        mark = None
        if need.total > 1 or need.repair:
            mark = PlanMark(f"{session.cause}-{int(session.now)}", need.total, int(session.now))
        for _ in range(count):
            record, row = next(placed)
            session.bind(record, row, gang.key, mark)
        session.judge_gang(gang.key, None)


def _judge_unit(session: Session, unit: Unit, culprit: GangRecord, verdict: Verdict) -> None:
    """The gang that failed gets the verdict; its mates learn whom they wait for."""
    for gang in unit.gangs:
        if gang is culprit:
            session.judge_gang(gang.key, verdict)
        elif gang.pending:
            session.judge_gang(gang.key, waiting_for_bundle(gang.key, culprit.key, verdict.message))


def _in_order(session: Session, gang: GangRecord) -> list[PodRecord]:
    """Pending members by the plugins' pod order, then index, age and name."""
    plugins = session.pipeline.plugins("pod_order")
    return sorted(
        gang.pending.values(),
        key=lambda member: (*(plugin.pod_order(session, member) for plugin in plugins), *member.order[1:]),
    )


def _run_length(members: list[PodRecord]) -> int:
    """How many members at the head are of one class."""
    cls = members[0].cls
    return next((place for place, member in enumerate(members) if member.cls is not cls), len(members))


def _runs(units: list[Unit]) -> Iterator[list[Unit]]:
    """Single pods of one class that follow each other, as one run; every bundle on its own.

    Zero-request pods without a gang are left to `backfill`.
    """
    run: list[Unit] = []
    for unit in units:
        pod = unit.pod
        if pod is not None and pod.cls.pod_class.best_effort:
            continue
        if run and (pod is None or run[0].pod is None or run[0].pod.cls is not pod.cls):
            yield run
            run = []
        run.append(unit)
        if pod is None:
            yield run
            run = []
    if run:
        yield run

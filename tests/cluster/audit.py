"""Recount of all incremental state of `ClusterState` from its pods and nodes, and comparison."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np

from phalanx.cluster.affinity.domains import DomainCounter
from phalanx.cluster.allocators.node_groups import NODE_GROUPS, NodeGroups, NodeGroupShare
from phalanx.cluster.allocators.ports import Ports
from phalanx.cluster.devices.held import Held
from phalanx.cluster.devices.shared import SHARED_DEVICES, Given, SharedDevices
from phalanx.cluster.node_table import NO_ROW
from phalanx.cluster.pods.records import NO_NODE, GangRecord, PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.gang import GangKey
from phalanx.model.node import CORDONED
from phalanx.model.peers import selects
from phalanx.model.pod import ACTIVE, MemberState, PlanMark, Pod, PodPhase
from phalanx.model.pools import POOL_LABEL
from phalanx.model.selectors import HostPort
from phalanx.scheduling.gangs.priorities import Priorities

from .volume_audit import audit_volumes

_STATES = tuple(MemberState)
ON_A_NODE = (MemberState.ASSUMED, MemberState.BOUND, MemberState.RUNNING, MemberState.TERMINATING)


def audit(state: ClusterState) -> None:
    """Raise AssertionError where an index, a count or an amount differs from the pods."""
    _audit_states(state)
    _audit_amounts(state)
    _audit_gangs(state)
    _audit_promises(state)
    _audit_claims(state)
    _audit_ledger(state)
    _audit_peers(state)
    _audit_cards(state)
    _audit_node_groups(state)
    audit_volumes(state)


def observed_state(pod: Pod, schedulers: frozenset[str]) -> MemberState:
    """Rule of docs/rules/coscheduling.md, section 0, written out."""
    if pod.phase is PodPhase.SUCCEEDED:
        return MemberState.SUCCEEDED
    if pod.phase is PodPhase.FAILED:
        return MemberState.FAILED
    if pod.terminating:
        return MemberState.TERMINATING
    if pod.node and pod.phase is PodPhase.RUNNING:
        return MemberState.RUNNING
    if pod.node:
        return MemberState.BOUND
    if pod.gated:
        return MemberState.GATED
    return MemberState.PENDING if pod.scheduler in schedulers else MemberState.OTHER_SCHEDULER


def place_of(record: PodRecord) -> str:
    """Return the node whose room the pod uses, "" for none."""
    if record.state is MemberState.ASSUMED:
        return record.assumed_node
    if record.state in ON_A_NODE:
        return record.pod.node
    if record.nomination is not None:
        return record.nominated_node
    return record.pod.nominated_node if record.state is MemberState.OTHER_SCHEDULER else ""


def _audit_states(state: ClusterState) -> None:
    for uid, record in state.pods.items():
        assert record.pod.uid == uid
        seen = observed_state(record.pod, state.schedulers)
        if record.state is MemberState.ASSUMED:
            assert seen is MemberState.PENDING
            assert record.assumed_node
        elif record.evicting and not record.pod.terminating:
            assert record.state is MemberState.TERMINATING
            assert seen in (MemberState.BOUND, MemberState.RUNNING)
        else:
            assert record.state is seen
            assert not record.assumed_node
        assert (record.nomination is not None) == bool(record.nominated_node)
        assert record.nomination is None or record.state is MemberState.PENDING
    leaving = {uid for uid, record in state.pods.items() if record.state is MemberState.TERMINATING}
    assert set(state.pods.terminating) == leaving
    assert set(state.pods.nominated) == {uid for uid, record in state.pods.items() if record.nomination is not None}
    lone = {uid for uid, r in state.pods.items() if not r.pod.gang and r.state is MemberState.PENDING}
    assert set(state.pods.standalone) == lone
    assert all(state.pods.standalone[uid] is state.pods[uid] for uid in lone)


def _audit_amounts(state: ClusterState) -> None:
    nodes, names = state.nodes, state.space.names
    used: defaultdict[str, _Amounts] = defaultdict(_no_amounts)
    reserved: defaultdict[str, _Amounts] = defaultdict(_no_amounts)
    releasing: defaultdict[str, _Amounts] = defaultdict(_no_amounts)
    scored: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    ports: defaultdict[str, Counter[HostPort]] = defaultdict(Counter)
    tenants: defaultdict[str, set[str]] = defaultdict(set)
    for uid, record in state.pods.items():
        node = place_of(record)
        row = nodes.row(node)
        assert record.row == (row if row != NO_ROW else NO_NODE)
        if row == NO_ROW:
            continue
        tenants[node].add(uid)
        pod, pod_class = record.pod, record.pod.pod_class
        usage = {"pods": 1, **dict(pod.usage or pod_class.requests)}
        if record.state in (MemberState.OTHER_SCHEDULER, MemberState.PENDING):
            _add(reserved[node], usage)
            continue
        _add(used[node], usage)
        scored[node][0] += pod_class.scored_cpu
        scored[node][1] += pod_class.scored_memory
        if pod_class.host_ports:
            ports[node].update(pod_class.host_ports)
        if record.state is MemberState.TERMINATING:
            _add(releasing[node], usage)
    assert len(nodes) == int(nodes.alive.sum()) == len({n for n in nodes.names if n})
    assert not any(array[:, ~nodes.alive].any() for array in (nodes.used, nodes.idle, nodes.reserved, nodes.scored))
    rows = nodes.rows()
    found = [
        array[: len(names), rows].T.tolist()
        for array in (nodes.allocatable, nodes.used, nodes.reserved, nodes.idle, nodes.releasing, nodes.inverse)
    ]
    books = nodes.allocators["ports"]
    assert isinstance(books, Ports)
    for place, row in enumerate(rows.tolist()):
        name, node = nodes.names[row], nodes.nodes[row]
        assert bool(nodes.alive[row]) == bool(name)
        allocatable = dict(node.allocatable) if node else {}
        for column, resource in enumerate(names):
            offered, taken = allocatable.get(resource, 0), used[name].get(resource, 0)
            kept = reserved[name].get(resource, 0)
            expected = [
                *(offered, taken, kept, offered - taken - kept, releasing[name].get(resource, 0)),
                1.0 / offered if offered > 0 else 0.0,
            ]
            assert [amounts[place][column] for amounts in found] == expected, (name, resource)
        assert nodes.scored[:, row].tolist() == scored[name]
        assert books.taken(row) == dict(ports[name])
        assert {record.pod.uid for record in state.pods.on(row)} == tenants[name]
        assert nodes.labels.of(row) == dict(node.labels if node else ())
        # On a node that we cordoned, the cordon's own fields do not count: its window does.
        cordoned = bool(node and node.cordoned_by)
        taints = [taint for taint in (node.taints if node else ()) if not (cordoned and taint == CORDONED)]
        assert list(nodes.taints.sets[nodes.taints.ids[row]]) == taints
        assert bool(nodes.unschedulable[row]) == bool(node and node.unschedulable and not cordoned)
        assert nodes.row(name) == row


_Amounts = dict[str, int]
_no_amounts = dict[str, int]


def _add(sums: _Amounts, amounts: _Amounts) -> None:
    for name, amount in amounts.items():
        sums[name] = sums.get(name, 0) + amount


def _audit_gangs(state: ClusterState) -> None:
    members: dict[GangKey, list[PodRecord]] = defaultdict(list)
    for record in state.pods.values():
        if record.pod.gang:
            members[GangKey(record.pod.namespace, record.pod.gang)].append(record)
        else:
            assert record.gang is None
    declared = {key for key, gang in state.gangs.items() if gang.spec is not None}
    assert set(state.gangs) == declared | set(members)
    assert set(state.pods.placeholders) == {uid for uid, r in state.pods.items() if r.pod.placeholder}
    for key, gang in state.gangs.items():
        expected_ones = {r.pod.uid: r for r in members[key] if r.pod.placeholder}
        assert gang.placeholders == expected_ones
        assert all(record.gang is gang for record in expected_ones.values())
        mine = [record for record in members[key] if not record.pod.placeholder]
        assert gang.key == key
        assert set(gang.members) == {record.pod.uid for record in mine}
        assert all(record.gang is gang for record in mine)
        assert set(gang.pending) == {r.pod.uid for r in mine if r.state is MemberState.PENDING}
        counts: dict[str | None, list[int]] = {role: [0] * len(MemberState) for role in (None, *gang.roles())}
        for record in mine:
            counts[None][record.state] += 1
            counts.setdefault(record.pod.role, [0] * len(MemberState))[record.state] += 1
        for role, expected in counts.items():
            found = [gang.count(member_state, role) for member_state in _STATES]
            assert found == expected, (key, role)
        bound = (*ACTIVE, MemberState.SUCCEEDED, MemberState.FAILED)
        marked = [(r.mark, r.state) for r in mine if r.mark is not None and r.state in bound]
        marks: Counter[PlanMark] = Counter(mark for mark, _ in marked)
        assert gang.marks == dict(marks)
        highest = gang.highest_priority
        gang.highest_priority = None
        # Read after each audit, so that the next change must reset it.
        assert highest in (None, Priorities(state.gangs.composites).highest(gang))
        Priorities(state.gangs.composites).highest(gang)
        assert gang.live_marks() == {mark for mark, member_state in marked if member_state in ACTIVE}
        on_nodes = gang.count(MemberState.BOUND) + gang.count(MemberState.RUNNING)
        assert gang.peak >= on_nodes
        assert gang.counts().active or not gang.peak


def _releases_its_amounts(state: ClusterState, gang: GangRecord) -> bool:
    """Return whether the outstanding minResources of an admitted group are released for other groups."""
    spec, inqueue = gang.spec, state.gangs.inqueue
    assert spec is not None
    inqueue.total()  # updates `lapsed`
    if gang.key in inqueue.lapsed:
        assert not gang.active, f"{gang.key} has lapsed and runs"
        return True
    ended = sum(gang.count(each) for each in (MemberState.SUCCEEDED, MemberState.FAILED))
    finished = ended == len(gang.members) and (spec.completed or (ended > 0 and not spec.owned))
    return finished or spec.suspended or inqueue.is_unplaceable(gang.key)


def _audit_promises(state: ClusterState) -> None:
    expected: Counter[str] = Counter()
    uncreated: dict[str, Counter[str]] = defaultdict(Counter)
    for gang in state.gangs.values():
        spec = gang.spec
        if spec is None or not spec.admission or not spec.min_resources or not gang.may_create_pods:
            continue
        if _releases_its_amounts(state, gang):
            continue
        taken: Counter[str] = Counter()
        for record in gang.members.values():
            if record.pod.node or record.assumed_node or record.unplaceable:
                taken += Counter(dict(record.pod.usage))
        asks_for_nodes = state.gangs.node_requests.open_for(gang.key) is not None
        for name, amount in () if asks_for_nodes else spec.min_resources:
            expected[name] += max(0, amount - taken[name])
        there = Counter(pods=len(gang.members))
        for record in gang.members.values():
            there.update(dict(record.pod.usage))
        # Subtraction of counters drops entries that are not positive.
        for name, amount in spec.min_limits:
            limits = math.ceil(amount * max(0, spec.min_member - len(gang.members)) / spec.min_member)
            uncreated[gang.key.namespace] += Counter({name: limits})
        uncreated[gang.key.namespace] += Counter({"pods": spec.min_member} | dict(spec.min_resources)) - there
    for namespace, amounts in uncreated.items():
        assert state.gangs.inqueue.uncreated(namespace) == dict(amounts)
    found = {name: amount for name, amount in state.gangs.inqueue.total().items() if amount}
    assert found == {name: amount for name, amount in expected.items() if amount}


def _audit_claims(state: ClusterState) -> None:
    expected: dict[str, Counter[str]] = defaultdict(Counter)
    for gang in state.gangs.values():
        spec = gang.spec
        if spec is None or not spec.min_resources:
            continue
        held: Counter[str] = Counter()
        for footprint, count in gang.allocated:
            held.update({name: amount * count for name, amount in footprint.amounts.items()})
        least = Counter(dict(spec.min_resources))
        expected[spec.queue].subtract(held - least)
        asks_for_nodes = state.gangs.node_requests.open_for(gang.key) is not None
        counts = spec.admission and gang.may_create_pods and not asks_for_nodes
        if counts and not _releases_its_amounts(state, gang):
            placed: Counter[str] = Counter()
            for record in gang.members.values():
                if record.pod.node or record.assumed_node or record.unplaceable:
                    placed.update(dict(record.pod.usage))
            expected[spec.queue].update(least - placed)
    _, found = state.gangs.inqueue.claimed_since(0)
    for queue in expected.keys() | found.keys():
        assert found.get(queue, {}) == {name: amount for name, amount in expected[queue].items() if amount}, queue


def _audit_ledger(state: ClusterState) -> None:
    assert list(state.ledger.discrepancies(state.pods.values())) == []
    for gang in state.gangs.values():
        held = Counter(
            record.footprint
            for record in (*gang.members.values(), *gang.placeholders.values())
            if record.state is MemberState.ASSUMED
            # On a missing node a pod holds nothing.
            or (record.state in ON_A_NODE and record.pod.node and record.row != NO_NODE)
        )
        assert dict(gang.allocated) == dict(held)
    keys = {record.charge_path.key for record in state.pods.values() if record.charge_path is not None}
    assert {charge_path.key for charge_path in state.ledger.charge_paths} == keys
    assert all(record.charge_path is not None for record in state.pods.values())


def _audit_peers(state: ClusterState) -> None:
    """Check the counts of matching pods per inter-pod rule."""
    book = state.nodes.affinity
    present: dict[object, Counter[int]] = defaultdict(Counter)
    leaving: dict[object, Counter[int]] = defaultdict(Counter)
    stated: dict[object, Counter[int]] = defaultdict(Counter)
    for record in state.pods.values():
        pod = record.pod
        own, spaces = dict(pod.labels), book.namespaces.get(pod.namespace, {})
        matching = [
            match_set
            for match_set in book.match_sets.values()
            if all(
                each.selector is not None and each.reaches(pod.namespace, spaces) and selects(each.selector, own)
                for each in match_set.whom
            )
        ]
        assert list(record.pod_class.affinity.matching_sets) == matching, pod.key
        if record.row == NO_NODE or record.state in (MemberState.OTHER_SCHEDULER, MemberState.PENDING):
            continue
        for match_set in matching:
            present[match_set][record.row] += 1
            leaving[match_set][record.row] += record.state is MemberState.TERMINATING
        peers = pod.pod_class.peers
        for term in peers.anti:
            stated["repelling", term.whom, term.key][record.row] += 1
        for term in peers.affinity:
            stated["drawing", term.whom, term.key][record.row] += 1
        for each in peers.preferred:
            stated["leaning", each.term.whom, each.term.key][record.row] += each.weight
    for match_set in book.match_sets.values():
        assert match_set.present.at == dict(present[match_set])
        assert match_set.leaving.at == {row: count for row, count in leaving[match_set].items() if count}
        for name in ("repelling", "drawing", "leaning"):
            for key, tally in getattr(match_set, name).items():
                expected = stated[name, match_set.whom[0], key] if len(match_set.whom) == 1 else {}
                assert tally.at == {row: count for row, count in expected.items() if count}
        for tally in match_set.tallies():
            for counter, _ in tally.counters:
                _audit_counter(state, counter)


def _audit_counter(state: ClusterState, counter: DomainCounter) -> None:
    region = counter.region
    region.update()
    expected: Counter[str] = Counter()
    for tally, sign in counter.parts:
        for row, amount in tally.at.items():
            value = state.nodes.labels.of(row).get(region.domains.key)
            if region.where[row] >= 0:
                assert value is not None
                expected[value] += sign * amount
    found = {region.domains.values[place]: int(count) for place, count in enumerate(counter.counts[:-1]) if count}
    assert found == {value: count for value, count in expected.items() if count}
    assert counter.counts[-1] == 0


def arrays_by_name(state: ClusterState) -> dict[str, dict[str, tuple[int, ...]]]:
    """Return everything about each node by its name: equal facts must give equal values in any order."""
    nodes = state.nodes
    result: dict[str, dict[str, tuple[int, ...]]] = {}
    for row in np.flatnonzero(nodes.alive):
        columns = sorted(range(len(state.space)), key=lambda column: state.space.names[column])
        amounts = {
            name: tuple(int(getattr(nodes, name)[column, row]) for column in columns)
            for name in ("allocatable", "used", "releasing", "reserved", "idle")
        }
        amounts["scored"] = tuple(nodes.scored[:, row].tolist())
        result[nodes.names[row]] = amounts
    return result


def _audit_cards(state: ClusterState) -> None:
    """Check that the accounting of each card equals the usage of the pods on it."""
    allocator = state.nodes.allocators[SHARED_DEVICES]
    assert isinstance(allocator, SharedDevices)
    for row in state.nodes.rows().tolist():
        held: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
        for record in state.pods.on(row):
            taken = record.allocated.get(SHARED_DEVICES)
            for hold in (
                (hold for share in taken.shares for hold in share) if isinstance(taken, Given | Held) else ()
            ):
                sums = held[hold.family, hold.card]
                for place, amount in enumerate((hold.memory, hold.cores, 1)):
                    sums[place] += amount
        for card in allocator.cards(row):
            assert list(allocator.use(row, card.family, card.id)) == held[card.family, card.id]


def _audit_node_groups(state: ClusterState) -> None:
    allocator = state.nodes.allocators[NODE_GROUPS]
    assert isinstance(allocator, NodeGroups)
    held: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in state.nodes.rows().tolist():
        group = state.nodes.labels.of(row).get(POOL_LABEL, "")
        for record in state.pods.on(row):
            taken = record.allocated.get(NODE_GROUPS)
            if group and isinstance(taken, NodeGroupShare):
                held[taken.queue, group].update(dict(taken.amounts))
    for (queue, group), amounts in held.items():
        assert dict(allocator.held(queue, group)) == dict(amounts)

"""Expected members, which a gang's leader creates only once it runs, and their placeholders."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain, count, repeat

import msgspec

from phalanx.dialects.gangs.gang_index import GangIndex
from phalanx.dialects.pods.known_pods import KnownPod
from phalanx.model.events import ClusterEvent, PodRemoved, PodUpdated
from phalanx.model.gang import MOST_EXPECTED, ExpectedMembers, Gang, GangKey
from phalanx.model.peers import NO_PEERS
from phalanx.model.pod import Pod, PodClass, bound_at
from phalanx.model.resources import CPU, MEMORY, PODS, Requests, add_requests, requests_of

# kube-scheduler's defaults for a container without requests in scores.
_SCORED_CPU, _SCORED_MEMORY = 100, 200 * 2**20


class _Run(msgspec.Struct):
    """Expected members of one leader: the uids that have `arrived`, the numbers of the placeholders that they
    replaced (`claimed`), and the `published` placeholders by number, for the gang, leader, number of minimum
    members and held nodes in `basis`. `complete` is the gang after all its members have arrived."""

    leader: str
    arrived: set[str] = msgspec.field(default_factory=set)
    claimed: set[int] = msgspec.field(default_factory=set)
    published: dict[int, Pod] = {}
    basis: tuple[Gang, Pod, int, tuple[str, ...]] | None = None
    complete: Gang | None = None


class ExpectedMemberIndex:
    """Creates a placeholder for each expected member that has not arrived.

    The leader of a gang is the active member that leads by its role, else the oldest active one. Each later pod
    beyond the gang's minimum replaces one expected member once it is placed, or at its arrival if the leader waits
    too; that member is not expected again. A placeholder equals the
    leader except for its requests and for properties that only one pod can have.
    """

    def __init__(self, gangs: GangIndex, pods: Mapping[str, KnownPod], schedulers: Collection[str]) -> None:
        self._gangs = gangs
        self._pods = pods
        self._schedulers = schedulers
        self._runs: dict[GangKey, _Run] = {}
        self._held: dict[str, tuple[str, ...]] = {}

    def note_held(self, uid: str, nodes: tuple[str, ...]) -> bool:
        """Record the nodes on which resources are held for the later members of a leader, as written when the
        leader was bound or nominated. Return whether they differ from the recorded ones."""
        changed = self._held.get(uid, ()) != nodes
        if nodes:
            self._held[uid] = nodes
        else:
            self._held.pop(uid, None)
        return changed

    def pod_removed(self, uid: str) -> None:
        self._held.pop(uid, None)

    def update(self, key: GangKey) -> list[ClusterEvent]:
        """Return the events about placeholders that follow from a change of a gang or its members."""
        gang = self._gangs.gang(key)
        events = self._update(key, gang)
        if gang is not None and gang.expected_by is not None and gang.expected_by != key:
            events += self._update(gang.expected_by, self._gangs.gang(gang.expected_by))
        return events

    def _update(self, key: GangKey, gang: Gang | None) -> list[ClusterEvent]:
        run = self._runs.get(key)
        if run is None and (gang is None or gang.expected is None):
            return []  # most gangs
        if run is not None and gang is not None and run.complete is gang and self._lives(run.leader):
            return []
        members = [self._pods[uid] for uid in self._gangs.member_uids(key) if uid in self._pods]
        leader = _leader(members, self._schedulers) if gang is not None and gang.expected is not None else None
        events: list[ClusterEvent] = []
        if run is not None and (leader is None or run.leader != leader.uid):
            events += [PodRemoved(placeholder.uid) for placeholder in run.published.values()]
            del self._runs[key]
            run = None
        if gang is None or leader is None:
            return events
        if run is None:
            run = self._runs[key] = _Run(leader.uid)
        arrived = _later_members(members, leader)
        uids = [uid for later in gang.later_gangs for uid in self._gangs.member_uids(later) if uid in self._pods]
        following = _later_members([self._pods[uid] for uid in uids], leader) if uids else []
        later = [*arrived[gang.min_member - 1 :], *following]
        for pod in later:
            # Room that is held for a running leader's members is held until they are placed.
            if pod.uid not in run.arrived and (pod.node or not leader.node):
                run.arrived.add(pod.uid)
                run.claimed.add(_place_of(pod, run))
        held = self._held.get(leader.uid, ())
        basis = (gang, leader, min(len(arrived) + 1, gang.min_member), held)
        if run.basis == basis:
            wanted = {
                number: placeholder for number, placeholder in run.published.items() if number not in run.claimed
            }
        else:
            run.basis, wanted = basis, self._placeholders(gang, leader, run.claimed, arrived, following)
        events += [
            PodRemoved(placeholder.uid) for number, placeholder in run.published.items() if number not in wanted
        ]
        events += [
            PodUpdated(placeholder)
            for number, placeholder in wanted.items()
            if run.published.get(number) != placeholder
        ]
        run.published, run.complete = wanted, None if wanted or basis[2] < gang.min_member else gang
        return events

    def _lives(self, uid: str) -> bool:
        known = self._pods.get(uid)
        return known is not None and not (known.pod.finished or known.pod.terminating)

    def _placeholders(
        self, gang: Gang, leader: Pod, claimed: set[int], arrived: list[Pod], following: list[Pod]
    ) -> dict[int, Pod]:
        """Return the placeholders by number, with the nodes on which room is held and not used by later members."""
        expected = gang.expected
        assert expected is not None
        number_of, requests = _sizes(expected, gang, leader, arrived)
        numbers = [number for number in range(number_of) if number not in claimed] if requests else []
        if not numbers:
            return {}
        free = list(self._held.get(leader.uid, ()))
        for pod in (*arrived, *following):
            if pod.node in free:
                free.remove(pod.node)
        amounts = dict(requests)
        pod_class = PodClass(
            requests=requests,
            node_selector=leader.pod_class.node_selector,
            affinity=leader.pod_class.affinity,
            tolerations=leader.pod_class.tolerations,
            scored_cpu=amounts.get(CPU, _SCORED_CPU),
            scored_memory=amounts.get(MEMORY, _SCORED_MEMORY),
            revocable=leader.pod_class.revocable,
            peers=NO_PEERS,
            pool=leader.pod_class.pool,
        )
        return {
            number: Pod(
                namespace=leader.namespace,
                name=f"{leader.name}-expected-{number}",
                uid=f"{leader.uid}/expected-{number}",
                pod_class=pod_class,
                usage=requests,
                scheduler=leader.scheduler,
                priority=leader.priority,
                preempts=leader.preempts,
                created=leader.created,
                gang=leader.gang,
                index=number,
                nominated_node=node if leader.node or leader.nominated_node else "",
                queue=leader.queue,
                quota=leader.quota,
                user=leader.user,
                firm=leader.firm,
                placeholder=True,
                expires=bound_at(leader) + expected.seconds if leader.node else 0,
            )
            for number, node in zip(numbers, chain(free, repeat("")), strict=False)
        }


def _later_members(members: list[KnownPod], leader: Pod) -> list[Pod]:
    """Return a gang's members that were created after its leader, oldest first; a gated pod does not count yet."""
    pods = [member.pod for member in members if member.pod.uid != leader.uid and not member.pod.gated]
    return sorted((p for p in pods if p.created >= leader.created), key=lambda p: (p.created, p.name))


def _place_of(pod: Pod, run: _Run) -> int:
    """Return the number of the placeholder that the pod replaces: the one on its node, else the first that no pod
    has replaced."""
    on_same_node = (
        number
        for number, placeholder in run.published.items()
        if pod.node and placeholder.nominated_node == pod.node
    )
    return next(on_same_node, next((number for number in count() if number not in run.claimed), 0))


def _leader(members: list[KnownPod], schedulers: Collection[str]) -> Pod | None:
    """Return the gang's leader with the properties from other objects; None if it belongs to another scheduler."""
    alive = [member for member in members if not (member.pod.finished or member.pod.terminating)]
    leader = min(
        alive, key=lambda member: (not member.pod.leads, member.pod.created, member.pod.name), default=None
    )
    if leader is None or leader.pod.scheduler not in schedulers:
        return None
    return leader.published or leader.pod


def _sizes(expected: ExpectedMembers, gang: Gang, leader: Pod, arrived: list[Pod]) -> tuple[int, Requests]:
    """Return the number of expected members, and the requests of each.

    The minResources beyond the requests of the minimum members are split among the expected ones; until the minimum
    exists they are unknown. Without a stated number, it is the smallest for which no expected member is larger than
    the leader. A memory sum below that of the minimum members is invalid (the Spark operator parses Spark's `512m`
    as a thousandth of 512 bytes, and `8g` not at all): then each expected member gets the leader's memory.

    The number is limited to MOST_EXPECTED, since tenants write the objects that state it.
    """
    count = min(expected.count, MOST_EXPECTED)
    if count and expected.requests:
        return count, expected.requests
    first = [leader, *arrived][: gang.min_member]
    if gang.min_resources and len(first) < gang.min_member:
        return 0, ()
    used: Requests = ()
    for pod in first:
        used = add_requests(used, pod.usage)
    own, used_amounts = dict(leader.usage), dict(used)
    remaining = {
        name: amount_left
        for name, amount in gang.min_resources or ()
        if name != PODS and (amount_left := amount - used_amounts.get(name, 0)) > 0
    }
    stated = dict(gang.min_resources or ())
    if not remaining:
        return count, expected.requests or (leader.usage if count else ())
    count = count or stated.get(PODS, 0) - gang.min_member
    if count <= 0:
        count = max(
            -(-amount_left // own[name]) if own.get(name) else _pieces(name, amount_left)
            for name, amount_left in remaining.items()
        )
    count = min(count, MOST_EXPECTED)
    amounts = {name: -(-amount_left // count) for name, amount_left in remaining.items()}
    if stated.get(MEMORY, 0) < used_amounts.get(MEMORY, 0):
        amounts[MEMORY] = own.get(MEMORY, 0)
    return count, expected.requests or requests_of(amounts)


def _pieces(name: str, amount_left: int) -> int:
    """Return the number of members among which a resource that the leader lacks is divided: one per device, else
    1."""
    return amount_left if "/" in name else 1

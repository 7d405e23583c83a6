"""Members that a gang's leader makes only once it runs: what is said of them, and the pods that stand for them."""

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

# Of kube-scheduler: what a container without requests counts as in scores.
_SCORED_CPU, _SCORED_MEMORY = 100, 200 * 2**20


class _Run(msgspec.Struct):
    """What one leader expects: the members that have `come`, the numbers of those in whose place they are, and what
    was `told` of the others, by number: for this gang and leader, when so many of its minimum were there (`basis`).
    `complete` is the gang of which all have come.
    """

    leader: str
    come: set[str] = msgspec.field(default_factory=set)
    claimed: set[int] = msgspec.field(default_factory=set)
    told: dict[int, Pod] = {}
    basis: tuple[Gang, Pod, int] | None = None
    complete: Gang | None = None


class ExpectedMemberIndex:
    """Makes a placeholder for each member that is expected and has not come.

    A gang's leader is of its members that are neither finished nor on their way out the one that leads by its role,
    else the oldest. Whoever comes after it, and
    beyond the gang's minimum, is one of those that were expected; none of them is expected again. Placeholders are
    like the leader but for what they ask for, and for what only one pod can have.
    """

    def __init__(self, gangs: GangIndex, pods: Mapping[str, KnownPod], schedulers: Collection[str]) -> None:
        self._gangs = gangs
        self._pods = pods
        self._schedulers = schedulers
        self._runs: dict[GangKey, _Run] = {}
        self._held: dict[str, tuple[str, ...]] = {}

    def note_held(self, uid: str, nodes: tuple[str, ...]) -> None:
        """Where room is held for the members of a leader, by what was written when it was bound."""
        self._held[uid] = nodes

    def pod_removed(self, uid: str) -> None:
        self._held.pop(uid, None)

    def update(self, key: GangKey) -> list[ClusterEvent]:
        """What follows from a change of a gang or its members."""
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
            events += [PodRemoved(each.uid) for each in run.told.values()]
            del self._runs[key]
            run = None
        if gang is None or leader is None:
            return events
        if run is None:
            run = self._runs[key] = _Run(leader.uid)
        came = _others(members, leader)
        uids = [uid for later in gang.later_gangs for uid in self._gangs.member_uids(later) if uid in self._pods]
        following = _others([self._pods[uid] for uid in uids], leader) if uids else []
        for pod in (*came[gang.min_member - 1 :], *following):
            if pod.uid not in run.come:
                run.come.add(pod.uid)
                run.claimed.add(_place_of(pod, run))
        basis = (gang, leader, min(len(came) + 1, gang.min_member))
        if run.basis == basis:
            wanted = {number: each for number, each in run.told.items() if number not in run.claimed}
        else:
            run.basis, wanted = basis, self._placeholders(gang, leader, run.claimed, came)
        events += [PodRemoved(each.uid) for number, each in run.told.items() if number not in wanted]
        events += [PodUpdated(each) for number, each in wanted.items() if run.told.get(number) != each]
        run.told, run.complete = wanted, None if wanted or basis[2] < gang.min_member else gang
        return events

    def _lives(self, uid: str) -> bool:
        known = self._pods.get(uid)
        return known is not None and not (known.pod.finished or known.pod.terminating)

    def _placeholders(self, gang: Gang, leader: Pod, claimed: set[int], came: list[Pod]) -> dict[int, Pod]:
        expected = gang.expected
        assert expected is not None
        number_of, requests = _sizes(expected, gang, leader, came)
        numbers = [number for number in range(number_of) if number not in claimed] if requests else []
        if not numbers:
            return {}
        free = list(self._held.get(leader.uid, ()))
        for pod in came:
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
                nominated_node=node if leader.node else "",
                queue=leader.queue,
                quota=leader.quota,
                user=leader.user,
                firm=leader.firm,
                placeholder=True,
                expires=bound_at(leader) + expected.seconds if leader.node else 0,
            )
            for number, node in zip(numbers, chain(free, repeat("")), strict=False)
        }


def _others(members: list[KnownPod], leader: Pod) -> list[Pod]:
    """The members that came after the leader, oldest first; who is gated has not come yet."""
    pods = [each.pod for each in members if each.pod.uid != leader.uid and not each.pod.gated]
    return sorted((p for p in pods if p.created >= leader.created), key=lambda p: (p.created, p.name))


def _place_of(pod: Pod, run: _Run) -> int:
    """The number of the one whose place it takes: on its node if it has one, else the first (as in the state)."""
    near = (number for number, each in run.told.items() if pod.node and each.nominated_node == pod.node)
    return next(near, next((number for number in count() if number not in run.claimed), 0))


def _leader(members: list[KnownPod], schedulers: Collection[str]) -> Pod | None:
    """With what others decide about it."""
    alive = [each for each in members if not (each.pod.finished or each.pod.terminating)]
    oldest = min(alive, key=lambda each: (not each.pod.leads, each.pod.created, each.pod.name), default=None)
    if oldest is None or oldest.pod.scheduler not in schedulers:
        return None
    return oldest.told or oldest.pod


def _sizes(expected: ExpectedMembers, gang: Gang, leader: Pod, came: list[Pod]) -> tuple[int, Requests]:
    """How many are expected, and what each asks for.

    What minResources leave beside the members of the minimum is shared by the others; until those are there nobody
    can tell. Where nobody says how many these are, none is larger than the leader. Less memory than the members of
    the minimum ask for themselves is no sum of anything (the Spark operator reads Spark's `512m` as a thousandth of
    512 bytes, and `8g` not at all): then each asks for as much as the leader.

    Whoever says how many, never more than MOST_EXPECTED: tenants write the objects that are read here.
    """
    count = min(expected.count, MOST_EXPECTED)
    if count and expected.requests:
        return count, expected.requests
    first = [leader, *came][: gang.min_member]
    if gang.min_resources and len(first) < gang.min_member:
        return 0, ()
    held: Requests = ()
    for pod in first:
        held = add_requests(held, pod.usage)
    own, taken = dict(leader.usage), dict(held)
    rest = {
        name: left
        for name, amount in gang.min_resources or ()
        if name != PODS and (left := amount - taken.get(name, 0)) > 0
    }
    stated = dict(gang.min_resources or ())
    if not rest:
        return count, expected.requests or (leader.usage if count else ())
    count = count or stated.get(PODS, 0) - gang.min_member
    if count <= 0:
        count = max(-(-left // own[name]) if own.get(name) else _pieces(name, left) for name, left in rest.items())
    count = min(count, MOST_EXPECTED)
    amounts = {name: -(-left // count) for name, left in rest.items()}
    if stated.get(MEMORY, 0) < taken.get(MEMORY, 0):
        amounts[MEMORY] = own.get(MEMORY, 0)
    return count, expected.requests or requests_of(amounts)


def _pieces(name: str, left: int) -> int:
    """Of devices that the leader has none of each member has one."""
    return left if "/" in name else 1

"""Proof of a plan of pod moves: the scheduler itself executes it on a copy of the cluster."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.events import ClusterEvent, NodeUpdated, PodRemoved, PodUpdated
from phalanx.model.node import HOLD, Node
from phalanx.model.pod import MemberState, Pod, PodPhase
from phalanx.model.promise_records import StoredReservation
from phalanx.scheduling.defragmentation.relocation import Goal, Placement, RoomFor
from phalanx.scheduling.framework.eviction_options import EvictionOptions
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.quota.usage_history import AccountUsage
from phalanx.scheduling.scheduler import Scheduler
from phalanx.scheduling.start_reservations.plugin import rehearse_promises

# Actions on bound pods are not part of the proof.
_HARMLESS = frozenset({"enqueue", "allocate", "backfill"})
_MOST_CYCLES = 100


class ClusterFacts(msgspec.Struct, frozen=True):
    """Known objects of a cluster as events, with its policy.

    `now` is in seconds since the epoch. `promises` are the promised starts of the scheduler; their room is
    reserved.
    """

    events: Sequence[ClusterEvent]
    policy: Policy
    now: float
    schedulers: Collection[str] = ("phalanx",)
    usages: Sequence[AccountUsage] = ()
    promises: Sequence[StoredReservation] = ()

    def build(self) -> Scheduler:
        """Return a scheduler without evictions on the cluster, after it has placed all pods that fit now."""
        state = ClusterState(self.schedulers)
        for event in self.events:
            state.apply(event)
        actions = tuple(action for action in self.policy.actions if action in _HARMLESS)
        policy = msgspec.structs.replace(self.policy, actions=actions, eviction=EvictionOptions())
        scheduler = Scheduler(state, policy)
        scheduler.history.restore(self.usages, self.now)
        rehearse_promises(scheduler.features, self.promises)
        run_to_rest(scheduler, self.now)
        return scheduler


def run_to_rest(scheduler: Scheduler, now: float) -> None:
    """Run cycles until the scheduler has nothing to do."""
    for _ in range(_MOST_CYCLES):
        scheduler.cycle(now)
        if scheduler.idle:
            return


class ProofFailure(msgspec.Struct, frozen=True):
    """Pod or gang that was not placed again, by its shown name, and the reason."""

    who: str
    reason: str


class RelocationProof:
    """Execution of a plan of moves on a copy of the cluster: pods are removed, and equal pods are placed in their
    stead.

    The held nodes are tainted first and opened again at the end. `targets` are, by uid, the nodes that the
    scheduler chose for moved pods.
    """

    def __init__(self, facts: ClusterFacts, held: Sequence[str]) -> None:
        self._facts = facts
        self._scheduler = facts.build()
        self._state = self._scheduler.state
        self._held = [self._node(name) for name in held]
        self.targets: dict[str, str] = {}

    def prove(self, waves: Sequence[Sequence[str]], goal: Goal) -> list[Placement] | ProofFailure:
        """Return the final placements of the waiting pods (none for other goals), or the pod that was not
        placed."""
        for node in self._held:
            self._state.apply(NodeUpdated(msgspec.structs.replace(node, taints=(*node.taints, HOLD))))
        for wave in waves:
            failure = self._wave(wave)
            if failure is not None:
                return failure
        for node in self._held:
            self._state.apply(NodeUpdated(node))
        return self._placed_gang(goal) if isinstance(goal, RoomFor) else []

    def _wave(self, uids: Sequence[str]) -> ProofFailure | None:
        replacements: dict[str, Pod] = {}
        for uid in uids:
            pod = self._state.pods[uid].pod
            replacements[uid] = self._replacement(pod)
            self._state.apply(PodRemoved(uid))
        for replacement in replacements.values():
            self._state.apply(PodUpdated(replacement))
        run_to_rest(self._scheduler, self._facts.now)
        for uid, replacement in replacements.items():
            record = self._state.pods[replacement.uid]
            if record.state is not MemberState.ASSUMED:
                return ProofFailure(f"pod {replacement.key.removesuffix('+')}", _why(record))
            if any(node.name == record.assumed_node for node in self._held):
                return ProofFailure(
                    f"pod {replacement.key.removesuffix('+')}", "it tolerates every taint and returns to its node"
                )
            self.targets[uid] = record.assumed_node
        return None

    def _replacement(self, pod: Pod) -> Pod:
        """Return the pod that a removed pod's controller creates in its stead."""
        return msgspec.structs.replace(
            pod,
            uid=f"{pod.uid}+",
            name=f"{pod.name}+",
            node="",
            phase=PodPhase.PENDING,
            mark=None,
            nominated_node="",
            created=int(self._facts.now),
            started=0,
            bound=0,
            checkpoint=0,
        )

    def _placed_gang(self, goal: RoomFor) -> list[Placement] | ProofFailure:
        run_to_rest(self._scheduler, self._facts.now)
        if isinstance(goal.target, str):
            records = [self._state.pods[goal.target]]
            satisfied = records[0].state is MemberState.ASSUMED
        else:
            gang = self._state.gangs[goal.target]
            records = sorted(gang.members.values(), key=lambda member: member.pod.name)
            satisfied = self._scheduler.new_session(self._facts.now).requirement(gang).satisfied
        if not satisfied:
            waits = next((record for record in records if record.state is MemberState.PENDING), records[0])
            return ProofFailure(goal.name, _why(waits))
        return [Placement(r.pod.key, r.assumed_node) for r in records if r.state is MemberState.ASSUMED]

    def _node(self, name: str) -> Node:
        node = self._state.nodes.nodes[self._state.nodes.row(name)]
        assert node is not None
        return node


def _why(record: PodRecord) -> str:
    """Return the text of the last verdict of the pod or its gang."""
    verdict = record.last_verdict
    if verdict is None and record.gang is not None and record.gang.last_verdict is not None:
        verdict = record.gang.last_verdict[0]
    return verdict.message if verdict is not None else "other units have their turn before it"

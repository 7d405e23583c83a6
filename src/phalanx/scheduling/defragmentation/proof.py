"""The proof of a plan: it is played through with the scheduler itself, on a cluster of its own."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from phalanx.cluster.pods.records import PodRecord
from phalanx.model.events import NodeUpdated, PodRemoved, PodUpdated
from phalanx.model.node import HOLD, Node
from phalanx.model.pod import MemberState, Pod, PodPhase
from phalanx.scheduling.defragmentation.facts import Facts, settle
from phalanx.scheduling.defragmentation.relocation import Goal, Placement, RoomFor


class Failure(msgspec.Struct, frozen=True):
    """Who could not be placed again, as people call it, and why."""

    who: str
    reason: str


class Rehearsal:
    """Pods leave wave by wave, others like them wait in their stead while the held nodes take nobody, and in the
    end the nodes are opened again. `targets` are, by uid, the nodes that the scheduler chose for those who moved.
    """

    def __init__(self, facts: Facts, held: Sequence[str]) -> None:
        self._facts = facts
        self._scheduler = facts.build()
        self._state = self._scheduler.state
        self._held = [self._node(name) for name in held]
        self.targets: dict[str, str] = {}

    def run(self, waves: Sequence[Sequence[str]], goal: Goal) -> list[Placement] | Failure:
        """Where the beneficiary is placed in the end (nowhere where nobody asks), or who could not be placed."""
        for node in self._held:
            self._state.apply(NodeUpdated(msgspec.structs.replace(node, taints=(*node.taints, HOLD))))
        for wave in waves:
            failure = self._wave(wave)
            if failure is not None:
                return failure
        for node in self._held:
            self._state.apply(NodeUpdated(node))
        return self._beneficiary(goal) if isinstance(goal, RoomFor) else []

    def _wave(self, uids: Sequence[str]) -> Failure | None:
        heirs: dict[str, Pod] = {}
        for uid in uids:
            pod = self._state.pods[uid].pod
            heirs[uid] = self._heir(pod)
            self._state.apply(PodRemoved(uid))
        for heir in heirs.values():
            self._state.apply(PodUpdated(heir))
        settle(self._scheduler, self._facts.now)
        for uid, heir in heirs.items():
            record = self._state.pods[heir.uid]
            if record.state is not MemberState.PLACED:
                return Failure(f"pod {heir.key.removesuffix('+')}", _why(record))
            if any(node.name == record.target for node in self._held):
                return Failure(f"pod {heir.key.removesuffix('+')}", "it tolerates everything and comes back")
            self.targets[uid] = record.target
        return None

    def _heir(self, pod: Pod) -> Pod:
        """The pod that its controller makes in its stead."""
        return msgspec.structs.replace(
            pod,
            uid=f"{pod.uid}+",
            name=f"{pod.name}+",
            node="",
            phase=PodPhase.PENDING,
            mark=None,
            nominated="",
            created=int(self._facts.now),
            started=0,
            bound=0,
            checkpoint=0,
        )

    def _beneficiary(self, goal: RoomFor) -> list[Placement] | Failure:
        settle(self._scheduler, self._facts.now)
        if isinstance(goal.target, str):
            records = [self._state.pods[goal.target]]
            satisfied = records[0].state is MemberState.PLACED
        else:
            gang = self._state.gangs[goal.target]
            records = sorted(gang.members.values(), key=lambda member: member.pod.name)
            satisfied = self._scheduler.new_session(self._facts.now).requirement(gang).satisfied
        if not satisfied:
            waits = next((record for record in records if record.state is MemberState.PENDING), records[0])
            return Failure(goal.name, _why(waits))
        return [Placement(r.pod.key, r.target) for r in records if r.state is MemberState.PLACED]

    def _node(self, name: str) -> Node:
        node = self._state.nodes.nodes[self._state.nodes.row(name)]
        assert node is not None
        return node


def _why(record: PodRecord) -> str:
    """What the pod, or its gang, was told last."""
    verdict = record.told
    if verdict is None and record.gang is not None and record.gang.told is not None:
        verdict = record.gang.told[0]
    return verdict.message if verdict is not None else "others would go first"

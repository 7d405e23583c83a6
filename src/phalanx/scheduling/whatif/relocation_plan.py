"""Entry point: from a goal to a plan of pod moves that a dry run has proved."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from phalanx.cluster.pods.records import PodRecord
from phalanx.scheduling.defragmentation.attempt import RelocationAttempt
from phalanx.scheduling.defragmentation.drain import NodeDrain
from phalanx.scheduling.defragmentation.relocation import (
    EmptyNodes,
    Goal,
    Move,
    Relocation,
    RelocationLimits,
    RelocationObstacle,
    RoomFor,
    counted,
)
from phalanx.scheduling.defragmentation.room_for_gang import RoomForGang, unit_of
from phalanx.scheduling.scheduler import Scheduler
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.whatif.relocation_proof import ClusterFacts, ProofFailure, RelocationProof

# Users need the main obstacles, not all.
_MOST_OBSTACLES = 20


def silently(text: str) -> None:
    """Ignore a progress message of the search."""


def plan(
    facts: ClusterFacts, goal: Goal, limits: RelocationLimits, tell: Callable[[str], None] = silently
) -> Relocation:
    """Return a plan of pod moves that reaches the goal, or the reason why there is none. It changes nothing.

    A plan counts only if the scheduler itself, in a dry run, places all moved pods and then the preemptor. The
    nodes in `targets` are the scheduler's choice. The result is deterministic: equal facts give equal answers.
    """
    scheduler = facts.build()
    session = scheduler.new_session(facts.now)
    if isinstance(goal, EmptyNodes):
        return _Planning(facts, session, limits, tell).empty_nodes(goal)
    return _Planning(facts, session, limits, tell).room_for(goal, scheduler)


class _Planning:
    def __init__(
        self, facts: ClusterFacts, session: Session, limits: RelocationLimits, tell: Callable[[str], None]
    ) -> None:
        self._facts = facts
        self._session = session
        self._limits = limits
        self._tell = tell
        self._names = session.state.nodes.names

    def empty_nodes(self, goal: EmptyNodes) -> Relocation:
        drain = NodeDrain(self._session, goal, self._limits, self._tell)
        answer = Relocation(goal, False, "", free=[self._names[row] for row in drain.free])
        if len(drain.free) >= goal.count:
            return _reached(answer, f"{len(drain.free)} nodes are empty already: no pod has to move")
        attempt = drain.best_attempt()
        if not drain.reached(attempt):
            empty_count = len(drain.free) + len(attempt.sources)
            return _failed(
                answer, f"only {empty_count} of {counted(goal.count, 'node')} can be empty", drain.obstacles
            )
        failure = self._prove(answer, attempt, [*attempt.sources, *drain.free])
        if failure is not None:
            return _failed(answer, _not_proved(failure), drain.obstacles)
        answer.freed = [self._names[row] for row in attempt.sources]
        freed = f"{answer.freed[0]} becomes" if len(answer.freed) == 1 else f"{len(answer.freed)} nodes become"
        return _reached(answer, f"{_moves(answer)} so that {freed} free")

    def room_for(self, goal: RoomFor, scheduler: Scheduler) -> Relocation:
        answer = Relocation(goal, False, "")
        unit = unit_of(scheduler.queue.all_units(), goal.target)
        if unit is None:
            return _reached(answer, f"{goal.name} does not wait: it is placed, or would be placed now")
        room = RoomForGang(self._session, unit, self._limits, self._tell)
        if not room.members:
            return _failed(answer, f"{goal.name} does not wait for room", {})
        attempt = room.best_attempt()
        if attempt is None:
            pods_text = f"the {counted(len(room.members), 'pod')} that {goal.name} needs"
            return _failed(answer, f"no room can be made for {pods_text}", room.obstacles)
        failure = self._prove(answer, attempt, list(dict.fromkeys([*attempt.sources, *attempt.placed.values()])))
        if failure is not None:
            return _failed(answer, _not_proved(failure), room.obstacles)
        return _reached(answer, f"{_moves(answer)} so that there is room for {goal.name}")

    def _prove(self, answer: Relocation, attempt: RelocationAttempt, held: Sequence[int]) -> ProofFailure | None:
        """Prove a plan of moves in a dry run and store it in the answer; return None on success."""
        self._tell("the plan is tried in a dry run")
        steps = sorted(attempt.steps, key=lambda step: -max(map(attempt.size, step), default=0.0))
        failure: ProofFailure | None = None
        for order in [attempt.steps] if steps == attempt.steps else [attempt.steps, steps]:
            proof = RelocationProof(self._facts, [self._names[row] for row in held])
            outcome = proof.prove([[record.pod.uid for record in step] for step in order], answer.goal)
            if not isinstance(outcome, ProofFailure):
                answer.waves = [[self._move(attempt, record, proof) for record in step] for step in order if step]
                answer.held = [self._names[row] for row in held]
                answer.placements = outcome
                answer.cost = attempt.cost()
                return None
            failure = failure or outcome
        return failure

    def _move(self, attempt: RelocationAttempt, record: PodRecord, proof: RelocationProof) -> Move:
        pod, gang = record.pod, record.gang
        return Move(
            pod.uid,
            pod.namespace,
            pod.name,
            pod.node,
            proof.targets[pod.uid],
            pod.usage or pod.pod_class.requests,
            pod.priority,
            gang.title if gang is not None else "",
            gang in attempt.whole,
        )


def _reached(answer: Relocation, message: str) -> Relocation:
    answer.reached, answer.message = True, message
    return answer


def _failed(answer: Relocation, message: str, obstacles: dict[int, RelocationObstacle]) -> Relocation:
    answer.message = message
    answer.obstacles = [obstacles[row] for row in sorted(obstacles)][:_MOST_OBSTACLES]
    return answer


def _not_proved(failure: ProofFailure) -> str:
    return f"in a dry run {failure.who} was not placed: {failure.reason}"


def _moves(answer: Relocation) -> str:
    return f"{counted(len(answer.moves), 'pod')} {'moves' if len(answer.moves) == 1 else 'move'}"

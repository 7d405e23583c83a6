"""Properties of every history: no node is overfilled, no gang starts in part, no message is repeated, and parking
only saves time.
"""

from __future__ import annotations

from collections import Counter

import pytest

from phalanx.model.decisions import Plan
from phalanx.model.gang import GangKey
from phalanx.scheduling.gangs.quorum import QuorumRequirement, quorum_requirement

from ..extent import examples
from .scenario import Scenario
from .worlds import Script

STEPS = 60


def needs(world: Scenario) -> dict[GangKey, QuorumRequirement]:
    return {
        key: quorum_requirement(gang, gang.spec) for key, gang in world.state.gangs.items() if gang.spec is not None
    }


def check_plan(world: Scenario, before: dict[GangKey, QuorumRequirement], plan: Plan) -> None:
    """Check that every gang got its whole requirement or nothing, every pod one node, every gang group all or
    none.
    """
    counts = Counter(bind.gang for bind in plan.binds if bind.gang is not None)
    for key, placed in counts.items():
        assert placed >= before[key].total, f"{key} started in part"
        for role, least in before[key].roles:
            got = sum(bind.gang == key and world.state.pods[bind.uid].pod.role == role for bind in plan.binds)
            assert got >= least
        spec = world.state.gangs[key].spec
        assert spec is not None
        assert spec.problem is None
        for mate in gang_group(world, key):
            assert counts[mate] >= before[mate].total
    assert len({bind.uid for bind in plan.binds}) == len(plan.binds)


def gang_group(world: Scenario, key: GangKey) -> set[GangKey]:
    """Return the gangs tied to a gang by their declarations, transitively."""
    found: set[GangKey] = set()
    ask = [key]
    while ask:
        key = ask.pop()
        if key not in found:
            found.add(key)
            record = world.state.gangs.get(key)
            assert record is not None
            assert record.spec is not None
            ask.extend(record.spec.gang_group)
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(examples(30)))
def test_plans_are_whole_and_the_scheduler_comes_to_rest(seed: int) -> None:
    world = Scenario(Script.policy(seed))
    script = Script(seed, world)
    try:
        for _ in range(STEPS):
            script.step()
            before = needs(world)
            check_plan(world, before, world.cycle())
            world.work()
            plan = world.cycle()
            assert plan == Plan(plan.cycle), "something was done or said although nothing had changed"
    except AssertionError as error:
        error.add_note("\n".join(script.story))
        raise


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(examples(30)))
def test_parking_does_not_change_decisions(seed: int) -> None:
    """A scheduler that tries every unit in every cycle decides and reports the same."""
    lazy, eager = Scenario(Script.policy(seed)), Scenario(Script.policy(seed))
    script = Script(seed, lazy, eager)
    try:
        for _ in range(STEPS):
            script.step()
            lazy.work()
            eager.scheduler.use(eager.policy)
            eager.work()
            assert decisions(lazy) == decisions(eager)
            assert verdicts(lazy) == verdicts(eager)
    except AssertionError as error:
        error.add_note("\n".join(script.story))
        raise


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(examples(30)))
def test_interrupted_cycles_add_up_to_a_whole_one(seed: int) -> None:
    whole, cut = Scenario(Script.policy(seed)), Scenario(Script.policy(seed))
    script = Script(seed, whole, cut)
    try:
        for number in range(STEPS):
            script.step()
            whole.work()
            while not cut.scheduler.idle:
                cut.cycle(Stop(after=1 + number % 3))
            assert decisions(whole) == decisions(cut)
            assert verdicts(whole) == verdicts(cut)
    except AssertionError as error:
        error.add_note("\n".join(script.story))
        raise


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(examples(10)))
def test_equal_histories_give_equal_plans(seed: int) -> None:
    one, other = Scenario(Script.policy(seed)), Scenario(Script.policy(seed))
    script = Script(seed, one, other)
    for _ in range(STEPS):
        script.step()
        assert one.cycle() == other.cycle()


class Stop:
    """Return true at the n-th call, and at every later call."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


def decisions(world: Scenario) -> dict[str, str]:
    return {name: world.where(name) for name in world.placed()}


def verdicts(world: Scenario) -> dict[str, str]:
    """Return the last published message of every waiting unit."""
    said = {}
    for gang in world.state.gangs.values():
        if gang.last_verdict is not None and gang.last_verdict[0] is not None:
            said[str(gang.key)] = (
                f"{gang.last_verdict[0].code}: {gang.last_verdict[0].message} -> {gang.last_verdict[0].change}"
            )
    for record in world.state.pods.values():
        if record.last_verdict is not None and not world.where(record.pod.name):
            said[record.pod.name] = (
                f"{record.last_verdict.code}: {record.last_verdict.message} -> {record.last_verdict.change}"
            )
    return said

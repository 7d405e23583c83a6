"""Lives of small clusters in which gangs move before they are bound: failed bindings, restarts, ended gangs."""

from __future__ import annotations

import random

import pytest

from phalanx.model.pod import MemberState

from ...extent import examples
from ..scenario import Scenario
from .worlds import check_placement, packing_world, scenario_of

LIVES = 80


def answer_bindings(scenario: Scenario, chance: random.Random) -> None:
    """Confirm some of the assumed pods; the binding of some others fails."""
    for uid, record in list(scenario.state.pods.items()):
        if record.state is not MemberState.ASSUMED:
            continue
        answer = chance.random()
        if answer < 0.6:
            scenario.confirm(uid)
        elif answer < 0.8:
            scenario.state.pods.binding_failed(uid)


@pytest.mark.parametrize("seed", range(examples(LIVES)))
def test_gangs_stay_whole_when_bindings_of_moved_gangs_fail_and_the_scheduler_restarts(seed: int) -> None:
    chance = random.Random(seed)
    world = packing_world(seed)
    scenario = scenario_of(world)
    for _ in range(4):
        scenario.cycle()
        answer_bindings(scenario, chance)
        if chance.random() < 0.5:
            scenario.restart()
        if chance.random() < 0.3 and (
            bound := [name for name in scenario.placed() if scenario.state.pods[name].pod.node]
        ):
            gang = chance.choice(bound).split("-")[0]
            for name in [uid for uid in scenario.state.pods if uid.startswith(f"{gang}-")]:
                scenario.gone(name)
    scenario.run()
    where = {name: scenario.where(name) for name in scenario.placed()}
    check_placement(world, where)
    scenario.restart()
    for _ in range(3):
        assert scenario.cycle().binds == []
    assert {name: scenario.where(name) for name in scenario.placed()} == where
